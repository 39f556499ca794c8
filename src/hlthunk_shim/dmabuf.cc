/* SPDX-License-Identifier: BSD-3-Clause */
/* Dma-bufs of a card, and of others. */
#include "hlthunk_shim/card.h"

#include "hlthunk_shim/hlthunk/library.h"
#include "hlthunk_shim/memory.h"
#include "util/unique_fd.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace gaudi::shim {

namespace {

/* The only flags that the driver takes. */
constexpr uint32_t export_flags = O_RDWR | O_CLOEXEC;

/* ioctl(2). @return 0 or -errno. */
int call(const card &dev, unsigned long request, hl_mem_args &arguments)
{
    int ret;
    do {
        ret = (dev.lib().hlthunk_sys_ioctl != nullptr)
                  ? dev.lib().hlthunk_sys_ioctl(dev.fd(), request, &arguments)
                  : ioctl(dev.fd(), request, &arguments);
    } while ((ret != 0) && (errno == EINTR));
    return (ret == 0) ? 0 : -errno;
}

bool is_drm_node(int fd)
{
    struct stat info;
    return (fstat(fd, &info) == 0) && S_ISCHR(info.st_mode) &&
           (major(info.st_rdev) == accel_major);
}

int ask_for_import(const card &dev, int dmabuf, unsigned long number,
                   uint64_t size, uint64_t &va_p)
{
    hl_mem_args arguments = {.in = {.fd     = static_cast<uint32_t>(dmabuf),
                                    .length = size,
                                    .unused = 0,
                                    .op     = memory_op_import,
                                    .flags  = 0,
                                    .ctx_id = 0,
                                    .num_of_elements = 0}};
    const int ret         = call(dev, number, arguments);
    if (ret == 0) {
        va_p = arguments.out.device_virt_addr;
    }
    return ret;
}

int ask_for_import(const card &dev, int dmabuf, uint64_t size, uint64_t &va_p)
{
    const int ret = ask_for_import(dev, dmabuf, memory_ioctl, size, va_p);
    return ((ret == -ENOTTY) && !is_drm_node(dev.fd()))
               ? ask_for_import(dev, dmabuf, memory_ioctl_old, size, va_p)
               : ret;
}

/* The mainline driver answers -EINVAL, and so does one that can import, to what
 * it does not like. It says something else of a closed file. */
bool can_import(const card &dev, uint64_t size)
{
    uint64_t va;
    return ask_for_import(dev, -1, size, va) == -EBADF;
}

} // namespace

/* Which kernel it is, the numbers of its ioctls tell: Linux has taken DRM's in
 * 6.7, with whole series of changes to dma-bufs. Until then hl_map_dmabuf
 * (drivers/accel/habanalabs/common/memory.c) has no offset: importers get a
 * block from its first page on, and, where one block is exported in two
 * lengths, as much as the last one asked for. */
bool card::can_export_parts() const
{
    uint64_t va;
    return is_drm_node(fd_) || (ask_for_import(*this, -1, memory_ioctl,
                                               dmabuf_page(), va) != -ENOTTY);
}

int card::export_dmabuf(uint64_t address, uint64_t offset, uint64_t size,
                        int &fd_p) const
{
    if (is_lost()) {
        return -ENODEV;
    }
    const int ret = engine_->find_exported(address, offset, size);
    if (ret != 0) {
        return ret;
    }
    /* No driver rounds, and not all of them check it. */
    if ((size == 0) || ((address | offset | size) % dmabuf_page() != 0)) {
        return -EINVAL;
    }
    if ((lib_.hlthunk_device_mapped_memory_export_dmabuf_fd == nullptr) ||
        ((offset != 0) && !capabilities_.exports_parts)) {
        return -EOPNOTSUPP;
    }
    const int fd = lib_.hlthunk_device_mapped_memory_export_dmabuf_fd(
        fd_, address, size, offset, export_flags);
    if (fd < 0) {
        return judge(fd);
    }
    fd_p = fd;
    return 0;
}

int64_t card::dmabuf_size(int dmabuf) const
{
    auto *own       = lib_.hlthunk_sys_lseek;
    const auto seek = [&](long offset, int whence) {
        return (own != nullptr) ? own(dmabuf, offset, whence)
                                : lseek(dmabuf, offset, whence);
    };
    /* It may be any file of the caller's. */
    const long place = seek(0, SEEK_CUR);
    const long size  = seek(0, SEEK_END);
    const int error  = errno;
    if (place >= 0) {
        (void)seek(place, SEEK_SET);
    }
    errno = error;
    if (size >= 0) {
        return size;
    }
    return (errno == EBADF) ? -EBADF : 0;
}

/* The vendor's driver, built without peer-to-peer, has that answer to every
 * import: to one of this card's own memory, too. */
bool card::refuses_own_export() const
{
    const uint64_t size = dmabuf_page();
    allocation memory;
    int fd = -1;
    if ((card::allocate(size, 0, memory) != 0) ||
        (export_dmabuf(memory.address(), 0, size, fd) != 0)) {
        return false;
    }
    util::unique_fd own(fd);
    uint64_t va   = 0;
    const int ret = ask_for_import(*this, own.get(), size, va);
    if (ret == 0) {
        engine_->note_import(va, size);
    }
    const registration imported(*this, (ret == 0) ? va : 0);
    own.reset(); /* the memory goes with the last of it */
    return ret == -EPERM;
}

int card::import_dmabuf(int dmabuf, uint64_t size,
                        registration &registration_p) const
{
    uint64_t va = 0;
    if (is_lost()) {
        return -ENODEV;
    }
    if (dmabuf < 0) {
        return -EBADF;
    }
    int ret = ask_for_import(*this, dmabuf, size, va);
    switch (ret) {
    case 0:
        if (va == 0) {
            return -ENOMEM;
        }
        engine_->note_import(va, size);
        registration_p = {*this, va};
        return 0;
    case -EINVAL:
        return can_import(*this, size) ? -EINVAL : -EOPNOTSUPP;
    case -EBADF:
    case -ENOTTY: {
        /* Of the dma-buf, or of the driver, if the card itself answers. */
        hlthunk_hw_ip_info known{};
        if (lib_.hlthunk_get_hw_ip_info(fd_, &known) != 0) {
            return judge(ret);
        }
        return (ret == -EBADF) ? -EBADF : -EOPNOTSUPP;
    }
    case -EPERM:
        return refuses_own_export() ? -EOPNOTSUPP : -EPERM;
    case -EBUSY:
    case -ENODEV:
        /* Of this card, or of the one that it is of. */
        return (judge(-EBUSY) == -ENODEV) ? -ENODEV : ret;
    default:
        return ret;
    }
}

} // namespace gaudi::shim
