#include "uct/gaudi/base/ucx/statistics.h"

void gaudi::base::add_vfs_number(void *object,
                                 const std::atomic<uint64_t> &number,
                                 const std::string &path)
{
    const auto show = [](void *, ucs_string_buffer_t *text, void *shown,
                         uint64_t) {
        ucs_string_buffer_appendf(
            text, "%lu\n",
            static_cast<const std::atomic<uint64_t> *>(shown)->load(
                std::memory_order_relaxed));
    };
    (void)ucs_vfs_obj_add_ro_file(object, show,
                                  const_cast<std::atomic<uint64_t> *>(&number),
                                  0, "%s", path.c_str());
}
