/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/hlthunk/device.h"

#include "hlthunk_shim/memory.h"
#include "util/unique_fd.h"
#include "util/warning.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace gaudi::shim {

namespace {

/* What a driver call returned that gives 0 for a failure, and errno then.
 * @return 0 or -errno. */
int check_value(uint64_t value)
{
    return (value != 0) ? 0 : ((errno != 0) ? -errno : -ENOMEM);
}

/* The only flags that the driver takes. */
constexpr uint32_t export_flags = O_RDWR | O_CLOEXEC;

/* ioctl(2). @return 0 or -errno. */
int call(const device &dev, unsigned long request, hl_mem_args &arguments)
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

int ask_for_import(const device &dev, int dmabuf, unsigned long number,
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

int ask_for_import(const device &dev, int dmabuf, uint64_t size, uint64_t &va_p)
{
    const int ret = ask_for_import(dev, dmabuf, memory_ioctl, size, va_p);
    return ((ret == -ENOTTY) && !is_drm_node(dev.fd()))
               ? ask_for_import(dev, dmabuf, memory_ioctl_old, size, va_p)
               : ret;
}

/* The mainline driver answers -EINVAL, and so does one that can import, to what
 * it does not like. It says something else of a closed file. */
bool can_import(const device &dev, uint64_t size)
{
    uint64_t va;
    return ask_for_import(dev, -1, size, va) == -EBADF;
}

/* Which kernel it is, the numbers of its ioctls tell: Linux has taken DRM's in
 * 6.7, with whole series of changes to dma-bufs. Until then hl_map_dmabuf
 * (drivers/accel/habanalabs/common/memory.c) has no offset: importers get a
 * block from its first page on, and, where one block is exported in two
 * lengths, as much as the last one asked for. */
bool exports_parts(const device &dev)
{
    uint64_t va;
    return is_drm_node(dev.fd()) ||
           (ask_for_import(dev, -1, memory_ioctl, dmabuf_page(), va) !=
            -ENOTTY);
}

} // namespace

device::device(const library &lib, int fd, std::string bus_id, bool owned)
    : card(fd, std::move(bus_id)), lib_(lib), owned_(owned),
      submissions_(*this, lib)
{
    if (owned) {
        /* Else children would keep the card busy. */
        closed_in_children_ = util::closed_in_children(fd, lib.hlthunk_close);
    }
}

device::~device()
{
    closed_in_children_ = {};
    if (owned_ && (lib_.hlthunk_close(fd_) != 0)) {
        util::warn("closing card %s failed: %s", bus_id_.c_str(),
                   std::strerror(errno));
    }
}

int device::find_out()
{
    hlthunk_hw_ip_info info{};
    const int ret = lib_.hlthunk_get_hw_ip_info(fd_, &info);
    if (ret != 0) {
        return ret;
    }
    kind_ = &lib_.kind_of(fd_, info.device_id);
    for (size_t i = 0; i < dma_directions; ++i) {
        queues_[i] = find_queues(*kind_, info, static_cast<dma_direction>(i));
    }
    module_id_                  = info.module_id;
    capabilities_               = find_capabilities(*kind_, info);
    capabilities_.exports_parts = exports_parts(*this);
    return 0;
}

int device::open(const library &lib, const std::string &bus_id,
                 std::unique_ptr<device> &device_p)
{
    const int fd = lib.hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, bus_id.c_str());
    if (fd < 0) {
        return fd;
    }
    std::unique_ptr<device> made(new device(lib, fd, bus_id, true));
    const int ret = made->find_out();
    if (ret == 0) {
        device_p = std::move(made);
    }
    return ret;
}

int device::adopt(const library &lib, int fd, std::unique_ptr<device> &device_p)
{
    std::string bus_id;
    int ret = find_bus_id(lib, fd, bus_id);
    if (ret != 0) {
        return ret;
    }
    std::unique_ptr<device> made(new device(lib, fd, bus_id, false));
    ret = made->find_out();
    if (ret != 0) {
        return ret;
    }
    if (!is_supported(*made->kind_) ||
        !may_be_device_memory(made->capabilities_.memory_start)) {
        return -ENOTSUP;
    }
    device_p = std::move(made);
    return 0;
}

int device::find_bus_id(const library &lib, int fd, std::string &bus_id_p)
{
    char text[bus_id_size] = {};
    const int ret = lib.hlthunk_get_pci_bus_id_from_fd(fd, text, sizeof(text));
    if (ret == 0) {
        bus_id_p = text;
    }
    return (ret > 0) ? -EINVAL : ret;
}

bool device::is_of(int kind) const
{
    return (kind == HLTHUNK_DEVICE_DONT_CARE) ||
           (kind == lib_.hlthunk_get_device_name_from_fd(fd_));
}

int device::allocate(uint64_t size, uint64_t wished,
                     allocation &allocation_p) const
{
    if (is_lost()) {
        return -ENODEV;
    }
    errno = 0;
    /* Page size 0 is the card's own; "shared" only allows an export. */
    const uint64_t handle =
        lib_.hlthunk_device_memory_alloc(fd_, size, 0, false, true);
    int ret = lib_.judge(*this, check_value(handle));
    if (ret != 0) {
        return ret;
    }
    allocation made(*this, handle);
    errno             = 0;
    const uint64_t va = lib_.hlthunk_device_memory_map(fd_, handle, wished);
    ret               = lib_.judge(*this, check_value(va));
    if (ret == 0) {
        made.add({*this, va});
        allocation_p = std::move(made);
    }
    return ret;
}

int device::register_host(void *host, uint64_t size,
                          registration &registration_p) const
{
    if (is_lost()) {
        return -ENODEV;
    }
    errno             = 0;
    const uint64_t va = lib_.hlthunk_host_memory_map(fd_, host, 0, size);
    const int ret     = lib_.judge(*this, check_value(va));
    if (ret == 0) {
        registration_p = {*this, va};
    }
    return ret;
}

int device::unmap(uint64_t address) const
{
    return lib_.judge(*this, lib_.hlthunk_memory_unmap(fd_, address));
}

int device::free_memory(uint64_t handle) const
{
    return lib_.judge(*this, lib_.hlthunk_device_memory_free(fd_, handle));
}

std::optional<uint64_t> device::allocated_bytes() const
{
    hlthunk_dram_usage_info usage{};
    const auto ask = lib_.hlthunk_get_dram_usage;
    return ((ask != nullptr) && (ask(fd_, &usage) == 0))
               ? std::optional(usage.ctx_dram_mem)
               : std::nullopt;
}

/* --- dma-bufs --------------------------------------------------------------*/

int device::export_dmabuf(uint64_t address, uint64_t offset, uint64_t size,
                          int &fd_p) const
{
    if (is_lost()) {
        return -ENODEV;
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
        return lib_.judge(*this, fd);
    }
    fd_p = fd;
    return 0;
}

int64_t device::dmabuf_size(int dmabuf) const
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
bool device::refuses_own_export() const
{
    const uint64_t size = dmabuf_page();
    allocation memory;
    int fd = -1;
    if ((device::allocate(size, 0, memory) != 0) ||
        (export_dmabuf(memory.address(), 0, size, fd) != 0)) {
        return false;
    }
    util::unique_fd own(fd);
    uint64_t va   = 0;
    const int ret = ask_for_import(*this, own.get(), size, va);
    const registration imported(*this, (ret == 0) ? va : 0);
    own.reset(); /* the memory goes with the last of it */
    return ret == -EPERM;
}

int device::import_dmabuf(int dmabuf, uint64_t size,
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
        registration_p = {*this, va};
        return 0;
    case -EINVAL:
        return can_import(*this, size) ? -EINVAL : -EOPNOTSUPP;
    case -ENOTTY:
        return -EOPNOTSUPP;
    case -EPERM:
        return refuses_own_export() ? -EOPNOTSUPP : -EPERM;
    case -EBUSY:
    case -ENODEV:
        /* Of this card, or of the one that it is of. */
        return (lib_.judge(*this, -EBUSY) == -ENODEV) ? -ENODEV : ret;
    default:
        return ret;
    }
}

} // namespace gaudi::shim
