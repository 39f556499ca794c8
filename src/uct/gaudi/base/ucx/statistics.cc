#include "uct/gaudi/base/ucx/statistics.h"

namespace gaudi::base {

namespace {

void show(void *, ucs_string_buffer_t *text, void *number, uint64_t) noexcept
{
    const auto &shown = *static_cast<const std::atomic<uint64_t> *>(number);
    ucs_string_buffer_appendf(text, "%lu\n",
                              shown.load(std::memory_order_relaxed));
}

} // namespace

void add_vfs_number(void *object, const std::atomic<uint64_t> &number,
                    const std::string &path)
{
    (void)ucs_vfs_obj_add_ro_file(object, show,
                                  const_cast<std::atomic<uint64_t> *>(&number),
                                  0, "%s", path.c_str());
}

} // namespace gaudi::base
