/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The kernel below library.cc in the small libhl-thunk.so of the tests, for
 * where there is no real one: that which runs. Numbers of ioctls are DRM's for
 * nodes of DRM, else the old ones.
 */
#pragma once

#include "hlthunk_emulator/driver/abi.h"
#include "hlthunk_shim/abi/hlthunk.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace gaudi::hlthunk {

/** Asked of a compute node: control nodes have a major number of their own. */
inline bool has_drm_nodes()
{
    static const bool drm = [] {
        struct stat info;
        return (stat("/dev/accel/accel0", &info) == 0) &&
               (major(info.st_rdev) == shim::accel_major);
    }();
    return drm;
}

/** An ioctl. @return 0 or -errno. */
template <typename Arguments>
int ask_kernel(int fd, Arguments &arguments)
{
    constexpr auto number =
        static_cast<unsigned>(emu::driver::call_with<Arguments>);
    const bool drm = has_drm_nodes();
    const unsigned long request =
        _IOC(_IOC_READ | _IOC_WRITE, drm ? 'd' : 'H',
             number + (drm ? emu::driver::first_drm_number
                           : emu::driver::first_old_number),
             sizeof(arguments));
    return (ioctl(fd, request, &arguments) != 0) ? -errno : 0;
}

/** Open a node of the card with this number.
 *  @return A descriptor or -errno. */
inline int open_node(bool is_control, int card)
{
    const bool accel = access("/dev/accel", F_OK) == 0;
    const std::string path =
        std::string(accel ? "/dev/accel/accel" : "/dev/hl") +
        (is_control ? "_controlD" : "") + std::to_string(card);
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    return (fd < 0) ? -errno : fd;
}

/** close(2). */
inline int close_file(int fd)
{
    return close(fd);
}

/** Empty without such a card. */
inline std::string bus_id_of(int card)
{
    const std::string digits = std::to_string(card);
    for (const std::string &path :
         {"/sys/class/accel/accel" + digits + "/device/pci_addr",
          "/sys/class/accel/accel" + digits + "/pci_addr",
          "/sys/class/habanalabs/hl" + digits + "/pci_addr"}) {
        std::ifstream file(path);
        std::string text;
        if (file >> text) {
            return text;
        }
    }
    return {};
}

/** Number of the card with a bus id, whose domain may be left out; -1: none. */
inline int number_of(const char *bus_id)
{
    std::string wanted(bus_id);
    if (wanted.size() == strlen("00:00.0")) {
        wanted.insert(0, "0000:");
    }
    for (int card = 0; card < 256; ++card) {
        if (!wanted.empty() && (bus_id_of(card) == wanted)) {
            return card;
        }
    }
    return -1;
}

/** The bus id of the card that a descriptor stands for.
 *  @return 0, or what the library answers. */
inline int find_bus_id(int fd, std::string &bus_id_p)
{
    struct stat info;
    if ((fstat(fd, &info) != 0) || !S_ISCHR(info.st_mode)) {
        return -1;
    }
    const auto number = static_cast<int>(minor(info.st_rdev));
    bus_id_p          = bus_id_of(has_drm_nodes() ? number : number / 2);
    return bus_id_p.empty() ? -1 : 0;
}

/** What hlthunk_get_version says. */
inline constexpr char version[] = "ucx-gaudi small library";

} // namespace gaudi::hlthunk
