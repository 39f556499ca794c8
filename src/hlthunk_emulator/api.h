/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the functions of the library share: being public, and finding the card
 * that a descriptor stands for.
 */
#pragma once

#include "hlthunk_emulator/device_files.h"
#include "hlthunk_emulator/software_card.h"

#include <cerrno>
#include <functional>
#include <new>

/** A function of the library's public ABI. */
#define HLTHUNK_PUBLIC extern "C" __attribute__((visibility("default")))

namespace gaudi::emu {

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

/** @return The card whose compute or control node this is, else nullptr. */
software_card *find_any(int fd);

/** Whether this is a compute node of the process that forked this one. The
 *  functions above do not find it. */
inline bool is_inherited(int fd)
{
    return device_file_at(fd).kind == file_of::inherited;
}

/** Why these functions do not find a card: -EBADF, or -ENODEV (logged) for a
 *  descriptor that only the parent process can use. */
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

/** Do something, work(context, lock), on the open card of a compute node.
 *  @param call  The fault that it may meet with.
 *  @return What it returns; or as @ref on_compute and software_card::with_open.
 */
template <typename Work>
int on_open(int fd, std::optional<faulty_call> call, Work &&work) noexcept
{
    return on_compute(
        fd, [&](software_card &of) { return of.with_open(call, work); });
}

/** A card was to map something. @param va  Where; 0: nowhere.
 *  @return 0 or -ENOMEM. */
inline int count_mapping(software_card::context &card, uint64_t va)
{
    card.totals.mappings += (va != 0) ? 1 : 0;
    return (va != 0) ? 0 : -ENOMEM;
}

} // namespace gaudi::emu
