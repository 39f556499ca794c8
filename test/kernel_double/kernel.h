/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Which kernel the double is: KERNEL_DOUBLE_KERNEL, 6.1, 6.6 (the default) or
 * 6.12. The files by which it shows cards are in a folder of the build tree
 * that stands over / for programs, one for each kind of box; it is filled when
 * somebody first looks. Any thread.
 *
 * | kernel | numbers | device files          | attributes                  |
 * | 6.1    | 'H'     | /dev/hlN              | /sys/class/habanalabs/hlN   |
 * | 6.6    | 'H'     | /dev/accel/accelN     | /sys/class/accel/accelN     |
 * | 6.12   | DRM's   | /dev/accel/accelN     | of the PCI function         |
 *
 * Nodes of a card: to 6.6 minors 2N and 2N + 1 of one major, behind it N of two
 * (device.c of the driver in 6.1 and 6.12; 6.6 by what libhl-thunk v1.10 looks
 * for, its source was not read).
 */
#pragma once

#include "hlthunk_emulator/device_files.h"
#include "hlthunk_emulator/driver/ioctl.h"

#include <string>

#include <sys/types.h>

namespace gaudi::kernel_double {

/** While one lives, system calls of this thread are the emulator's own and
 *  pass through the double. */
class own_call {
public:
    own_call() { ++depth; }
    ~own_call() { --depth; }
    own_call(const own_call &)            = delete;
    own_call &operator=(const own_call &) = delete;

    static bool is_active() { return depth > 0; }

private:
    static inline thread_local int depth = 0;
};

using emu::device_file;
using emu::file_of;

struct kernel {
    const char *release;
    emu::driver::release driver;
    const char *dev;     /**< folder of the device files, with / */
    const char *primary; /**< names there, without the number */
    const char *control;
    const char *sysfs_class;
};

const kernel &the_kernel();

/** Number of the device file of a card. */
dev_t device_number(device_file of);

/** What a path below /dev names: a device file of the box, or nothing. */
device_file find_device_file(const std::string &path);

/** The path to use for a path: in the double's folder if that has it, else the
 *  same. The result stays until the thread's next call. */
const char *redirect(const char *path);

/** The same for a pattern of glob(3). */
std::string redirect_pattern(const char *pattern);

/** A path without the double's folder, where it is in there. */
std::string without_folder(std::string path);

/** What the link of a descriptor shows: its device file, where the descriptor
 *  is a node of the box, else the same. */
std::string shown_link(const std::string &target);

/** What a descriptor of any process is, by the link that the kernel shows. */
device_file find_linked(const std::string &target);

} // namespace gaudi::kernel_double
