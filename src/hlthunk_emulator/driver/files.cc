/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/driver/files.h"

#include "hlthunk_emulator/settings.h"
#include "hlthunk_emulator/sysfs_view.h"

#include <cstdio>

#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::emu {

namespace {

int open_compute(unsigned card)
{
    software_card &wanted = software_card::at(card);
    int fd                = -ENOMEM;
    try {
        (void)sysfs_root();
        fd = wanted.open();
    } catch (const std::bad_alloc &) {
        log("no memory to open card %u", card);
    }
    if ((fd >= 0) && !add_device_file(fd, {file_of::compute, card})) {
        wanted.close(fd);
        return -EMFILE;
    }
    return fd;
}

int open_control(unsigned card)
{
    if (software_card::at(card).is_removed()) {
        return -ENODEV;
    }
    if (box::instance().error() != 0) {
        return box::instance().error();
    }
    char name[128];
    std::snprintf(name, sizeof(name), "hlthunk-emu/%s/accel_controlD%u",
                  get_settings().node.c_str(), card);
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    if (!add_device_file(fd, {file_of::control, card})) {
        close(fd);
        return -EMFILE;
    }
    return fd;
}

} // namespace

int open_device_file(device_file which)
{
    if (which.card >= get_settings().devices) {
        return -ENOENT;
    }
    return (which.kind == file_of::control) ? open_control(which.card)
                                            : open_compute(which.card);
}

int close_device_file(int fd)
{
    software_card *const compute = find_compute(fd);
    remove_device_file(fd);
    if (compute == nullptr) {
        return close(fd);
    }
    const int ret = compute->close(fd);
    errno         = (ret == 0) ? errno : -ret;
    return (ret == 0) ? 0 : -1;
}

device_file look_up(int fd)
{
    const device_file known = device_file_at(fd);
    if ((known.kind != file_of::nothing) || (fd < 0)) {
        return known;
    }
    for (unsigned i = 0; i < get_settings().devices; ++i) {
        if (software_card::at(i).recognize(fd)) {
            break;
        }
    }
    return device_file_at(fd);
}

int why_no_card(int fd)
{
    if (device_file_at(fd).kind != file_of::inherited) {
        return -EBADF;
    }
    log("file descriptor %d is a card's of the process that forked this one, "
        "and only of use there",
        fd);
    return -ENODEV;
}

} // namespace gaudi::emu
