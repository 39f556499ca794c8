/**
 * Which descriptors of this process stand for device files of which cards.
 *
 * Looked up by every call, without a lock. Knows cards by their index only.
 */
#pragma once

#include <atomic>

namespace gaudi::emu {

enum class file_of : unsigned {
    nothing,
    compute,   /**< the compute node */
    control,   /**< the control node */
    inherited, /**< the compute node of the process that forked this one */
};

struct device_file {
    file_of kind  = file_of::nothing;
    unsigned card = 0; /**< index */

    bool operator==(const device_file &) const = default;
};

/** By descriptor. */
inline constexpr unsigned max_device_files = 65536;
extern std::atomic<device_file> device_files[max_device_files];
static_assert(std::atomic<device_file>::is_always_lock_free);

/** What a descriptor is known to be. */
inline device_file device_file_at(int fd)
{
    return (static_cast<unsigned>(fd) < max_device_files)
               ? device_files[fd].load(std::memory_order_relaxed)
               : device_file();
}

/** Remember a descriptor. @return false when the number is too large. */
bool add_device_file(int fd, device_file file);

/** Forget it. */
void remove_device_file(int fd);

/** The same, if it is known as this and nothing else. */
void remove_device_file(int fd, device_file file);

/** Above all descriptors that were ever known. */
int device_files_end();

} // namespace gaudi::emu
