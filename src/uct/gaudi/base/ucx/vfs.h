/**
 * Numbers that UCX's virtual file system shows.
 */
#pragma once

#include <cstdint>
#include <span>

namespace gaudi::base {

struct vfs_number {
    const char *name;
    uint64_t (*read)();
};

/** Add a file for each number. @param directory  Below the object's. */
void add_vfs_numbers(void *object, const char *directory,
                     std::span<const vfs_number> numbers);

} // namespace gaudi::base
