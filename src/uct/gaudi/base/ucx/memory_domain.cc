/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/memory_domain.h"

namespace gaudi::base {

void add_vfs_numbers(void *object, const char *directory,
                     std::span<const vfs_number> numbers)
{
    const auto show = [](void *, ucs_string_buffer_t *text, void *,
                         uint64_t read) {
        ucs_string_buffer_appendf(text, "%lu\n",
                                  reinterpret_cast<uint64_t (*)()>(read)());
    };
    for (const auto &[name, read] : numbers) {
        ucs_vfs_obj_add_ro_file(object, show, nullptr,
                                reinterpret_cast<uint64_t>(read), "%s/%s",
                                directory, name);
    }
}

} // namespace gaudi::base
