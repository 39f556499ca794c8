/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The kernel below library.cc in the drop-in: the emulated driver, called right
 * away.
 */
#pragma once

#include "hlthunk_emulator/box.h"
#include "hlthunk_emulator/driver/ioctl.h"

#include <string>

namespace gaudi::hlthunk {

/** An ioctl. @return 0 or -errno. */
template <typename Arguments>
inline int ask_kernel(int fd, Arguments &arguments)
{
    return emu::driver::ask(fd, arguments);
}

/** The same; where the library repeats it without a pause, this sleeps. */
inline int ask_kernel(int fd, emu::driver::submit_args &arguments)
{
    for (;;) {
        const int ret = emu::driver::ask(fd, arguments);
        if (ret != -EAGAIN) [[likely]] {
            return ret;
        }
        if (const int none = emu::driver::wait_for_room(fd); none != 0) {
            return none;
        }
    }
}

/** Open a node of the card with this number.
 *  @return A descriptor or -errno. */
inline int open_node(bool is_control, int card)
{
    return emu::open_device_file(
        {is_control ? emu::file_of::control : emu::file_of::compute,
         static_cast<unsigned>(card)});
}

/** close(2). */
inline int close_file(int fd)
{
    return emu::close_device_file(fd);
}

/** Number of the card with a bus id, whose domain may be left out; -1: none. */
inline int number_of(const char *bus_id)
{
    return emu::index_of_bus_id(bus_id);
}

/** The bus id of the card that a descriptor stands for.
 *  @return 0, or what the library answers. */
inline int find_bus_id(int fd, std::string &bus_id_p)
{
    const emu::device_file file = emu::look_up(fd);
    if ((file.kind != emu::file_of::compute) &&
        (file.kind != emu::file_of::control)) {
        return (emu::why_no_card(fd) == -ENODEV) ? -ENODEV : -1;
    }
    bus_id_p = emu::bus_id_of(file.card);
    return 0;
}

/** What hlthunk_get_version says. */
inline constexpr char version[] = "ucx-gaudi emulator";

} // namespace gaudi::hlthunk
