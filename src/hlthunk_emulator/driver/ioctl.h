/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The habanalabs driver, emulated: what its ioctls check, do and answer. A file
 * for each, to be held against the driver's own. Any thread.
 *
 * Linux 6.12 `drivers/accel/habanalabs/common`: habanalabs_ioctl.c,
 * command_buffer.c, command_submission.c, memory.c.
 */
#pragma once

#include "hlthunk_emulator/driver/abi.h"
#include "hlthunk_emulator/driver/files.h"

#include <cstddef>

namespace gaudi::emu::driver {

/** What differs between drivers. */
struct release {
    bool is_drm;        /**< nodes of DRM, and its numbers of ioctls: behind
                             Linux 6.6 */
    bool exports;       /**< device memory of Gaudi2, as dma-bufs */
    bool shows_ports;   /**< in hw_ip_info; the vendor's own driver */
    size_t hw_ip_bytes; /**< of hw_ip_info */
};

/** The one that is emulated: the vendor's, unless somebody sets another one
 *  before there is a card. */
inline release emulated{true, true, true, sizeof(hw_ip_info)};

/*
 * The ioctls on the device file of a card; all but `info` on compute nodes
 * only. They answer in the place of what was asked, which stays as it is where
 * the driver leaves it so.
 *
 * @return 0 or -errno, as the driver. @throws bad_alloc.
 */

int answer(device_file file, info_args &arguments);
int answer(device_file file, command_buffer_args &arguments);
/** -EAGAIN while as many submissions as the card takes are under way. */
int answer(device_file file, submit_args &arguments);
inline int answer(device_file file, wait_args &arguments);
int answer(device_file file, memory_args &arguments);

/** Why an ioctl is not for what a descriptor is: -ENOTTY for a control node,
 *  else as @ref why_no_card. */
int why_not(int fd);

/** An ioctl with these arguments on any descriptor.
 *  @return As answer(), -ENOMEM, or as @ref why_not. */
template <typename Arguments>
[[gnu::always_inline]] inline int ask(int fd, Arguments &arguments) noexcept
{
    device_file file = device_file_at(fd);
    if (file.kind == file_of::nothing) {
        file = look_up(fd);
    }
    const bool fits = (file.kind == file_of::compute) ||
                      ((file.kind == file_of::control) &&
                       (call_with<Arguments> == call::info));
    if (!fits) {
        return why_not(fd);
    }
    try {
        return answer(file, arguments);
    } catch (const std::bad_alloc &) {
        return -ENOMEM;
    }
}

/** The answer to a wait but for a job that is known to have completed. */
int answer_wait(device_file file, wait_args &arguments);

inline int answer(device_file file, wait_args &arguments)
{
    if ((arguments.in.flags == 0) &&
        software_card::at(file.card).has_completed(arguments.in.seq)) {
        arguments            = {};
        arguments.out.status = shim::cs_completed;
        return 0;
    }
    return answer_wait(file, arguments);
}

/** ioctl(2) on a device file of a card. @return 0 or -errno. */
int control(int fd, unsigned long request, void *argument);

/** Sleep until a card takes a submission that it has just answered with
 *  -EAGAIN.
 *  @return 0, or -errno when it never will. */
int wait_for_room(int fd);

/** What no correct program asks for is refused: log it, and tell who watches.
 *  @param rule  Name of the rule that is broken.
 *  @return -error. */
[[gnu::format(printf, 3, 4)]] int broken(const char *rule, int error,
                                         const char *format, ...);

/** Watches broken rules, if somebody does. */
inline void (*watcher)(const char *rule, const char *what) = nullptr;

} // namespace gaudi::emu::driver
