/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Which descriptors of this process stand for device files of which cards.
 *
 * Looked up by every call, without a lock. Knows cards by their index only.
 */
#pragma once

#include <atomic>
#include <cstdint>

namespace gaudi::emu {

enum class file_of : unsigned {
    nothing,
    compute,   /**< the compute node */
    control,   /**< the control node */
    inherited, /**< the compute node of the process that forked this one */
};

/* Aligned for clang, which loads it by a function of libatomic otherwise. */
struct alignas(uint64_t) device_file {
    file_of kind  = file_of::nothing;
    unsigned card = 0; /**< index */

    bool operator==(const device_file &) const = default;
};

/** By descriptor. */
inline constexpr unsigned max_device_files = 65536;
inline std::atomic<device_file> device_files[max_device_files];
static_assert(std::atomic<device_file>::is_always_lock_free);

/** What a descriptor is known to be. */
inline device_file device_file_at(int fd)
{
    return (static_cast<unsigned>(fd) < max_device_files)
               ? device_files[fd].load(std::memory_order_relaxed)
               : device_file();
}

/** Above all descriptors that were ever known. */
inline std::atomic<int> device_files_end{0};

/** Remember a descriptor. @return false when the number is too large. */
inline bool add_device_file(int fd, device_file file)
{
    if (static_cast<unsigned>(fd) >= max_device_files) {
        return false;
    }
    device_files[fd].store(file, std::memory_order_relaxed);
    int end = device_files_end;
    while ((end <= fd) &&
           !device_files_end.compare_exchange_weak(end, fd + 1)) {}
    return true;
}

/** Forget it. */
inline void remove_device_file(int fd)
{
    (void)add_device_file(fd, {});
}

/** The same, if it is known as this and nothing else. */
inline void remove_device_file(int fd, device_file file)
{
    if (device_file_at(fd) == file) {
        remove_device_file(fd);
    }
}

} // namespace gaudi::emu
