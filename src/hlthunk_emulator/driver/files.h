/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Device files of the cards: opening and closing them, finding the card that a
 * descriptor stands for, and doing something with it. Any thread.
 */
#pragma once

#include "hlthunk_emulator/device_files.h"
#include "hlthunk_emulator/software_card.h"

#include <cerrno>
#include <functional>
#include <new>

namespace gaudi::emu {

/** Open the compute or the control node of a card.
 *  @return A descriptor that is closed on exec, or -errno. */
int open_device_file(device_file which);

/** As close(2), of any descriptor. */
int close_device_file(int fd);

/** What a descriptor is. Duplicates of compute nodes are found out at their
 *  first use, under the locks of cards. */
device_file look_up(int fd);

/** @return The card whose compute node this is, else nullptr. */
inline software_card *find_compute(int fd)
{
    device_file file = device_file_at(fd);
    if (file.kind == file_of::nothing) {
        file = look_up(fd);
    }
    return (file.kind == file_of::compute) ? &software_card::at(file.card)
                                           : nullptr;
}

/** Why a descriptor is of no card: -EBADF, or -ENODEV (logged) where only the
 *  parent process can use it. */
int why_no_card(int fd);

/** Make a call, a member of the card say, on the card of a compute node; no
 *  exception leaves it.
 *  @return What the call returns, -EBADF, -ENODEV as @ref why_no_card, or
 *          -ENOMEM. */
template <typename Call, typename... Arguments>
int on_compute(int fd, Call &&call, Arguments &&...arguments) noexcept
{
    software_card *compute = find_compute(fd);
    if (compute == nullptr) {
        return why_no_card(fd);
    }
    try {
        return std::invoke(call, *compute,
                           std::forward<Arguments>(arguments)...);
    } catch (const std::bad_alloc &) {
        return -ENOMEM;
    }
}

} // namespace gaudi::emu
