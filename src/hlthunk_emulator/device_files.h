/**
 * Which descriptors of this process stand for device files of which cards.
 *
 * Looked up by every call, without a lock. Knows cards by their index only.
 */
#pragma once

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

/** What a descriptor is known to be. */
device_file device_file_at(int fd);

/** Remember a descriptor. @return false when the number is too large. */
bool add_device_file(int fd, device_file file);

/** Forget it. */
void remove_device_file(int fd);

/** The same, if it is known as this and nothing else. */
void remove_device_file(int fd, device_file file);

/** Above all descriptors that were ever known. */
int device_files_end();

} // namespace gaudi::emu
