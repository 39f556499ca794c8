#include "uct/gaudi/base/ucx/vfs.h"

#include "uct/gaudi/base/ucx/ucx.h"

namespace gaudi::base {

namespace {

void show(void *, ucs_string_buffer_t *text, void *, uint64_t read) noexcept
{
    ucs_string_buffer_appendf(text, "%lu\n",
                              reinterpret_cast<uint64_t (*)()>(read)());
}

} // namespace

void add_vfs_numbers(void *object, const char *directory,
                     std::span<const vfs_number> numbers)
{
    for (const auto &[name, read] : numbers) {
        ucs_vfs_obj_add_ro_file(object, show, nullptr,
                                reinterpret_cast<uint64_t>(read), "%s/%s",
                                directory, name);
    }
}

} // namespace gaudi::base
