/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small libhl-thunk.so of the tests' own, for where there is no real one: it
 * makes the ioctls that a real one makes, and has the functions that the shim
 * and the tests call. As the real ones do it repeats calls that were
 * interrupted or are to be repeated, gives 0 and leaves errno where the result
 * is a handle or an address, and -errno else. Numbers of ioctls are those of
 * the kernel that runs: DRM's for nodes of DRM, else the old ones.
 */
#include "hlthunk_shim/abi/hlthunk.h"
#include "kernel_double/kernel_abi.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define HLTHUNK_PUBLIC extern "C" __attribute__((visibility("default")))

using namespace gaudi;
using namespace gaudi::kernel_double;

namespace {

constexpr int max_cards = 256;

dev_t device_of(int fd)
{
    struct stat info;
    return ((fstat(fd, &info) == 0) && S_ISCHR(info.st_mode)) ? info.st_rdev
                                                              : 0;
}

/* Asked of a compute node: control nodes have a major number of their own. */
bool has_drm_nodes()
{
    static const bool drm = [] {
        struct stat info;
        return (stat("/dev/accel/accel0", &info) == 0) &&
               (major(info.st_rdev) == shim::accel_major);
    }();
    return drm;
}

int ask(int fd, call which, void *arguments)
{
    const auto number = static_cast<unsigned>(which);
    const bool drm    = has_drm_nodes();
    const unsigned long request =
        _IOC(_IOC_READ | _IOC_WRITE, drm ? 'd' : 'H',
             (drm ? first_drm_number : first_old_number) + number,
             argument_bytes[number]);
    int ret;
    do {
        ret = ioctl(fd, request, arguments);
    } while ((ret != 0) && ((errno == EINTR) || (errno == EAGAIN)));
    return (ret != 0) ? -errno : 0;
}

template <typename Result>
int inform(int fd, info_op op, Result &result)
{
    info_in in{};
    in.pointer = reinterpret_cast<uint64_t>(&result);
    in.size    = sizeof(result);
    in.op      = op;
    return ask(fd, call::info, &in);
}

union memory_arguments {
    memory_in in;
    memory_out out;
};

/* For calls that give 0 for a failure. */
uint64_t value_of(int fd, memory_arguments arguments)
{
    const int ret = ask(fd, call::memory, &arguments);
    if (ret != 0) {
        errno = -ret;
        return 0;
    }
    return arguments.out.value;
}

int open_file(const char *name, int number)
{
    const bool accel = access("/dev/accel", F_OK) == 0;
    const std::string path =
        std::string(accel ? "/dev/accel/accel" : "/dev/hl") + name +
        std::to_string(number);
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    return (fd < 0) ? -errno : fd;
}

int open_compute(int number)
{
    return open_file("", number);
}

int open_control(int number)
{
    return open_file("_controlD", number);
}

std::string bus_id_of(int number)
{
    const std::string digits = std::to_string(number);
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

int number_of(const char *bus_id)
{
    std::string wanted(bus_id);
    if (wanted.size() == strlen("00:00.0")) {
        wanted.insert(0, "0000:");
    }
    for (int number = 0; number < max_cards; ++number) {
        if (!wanted.empty() && (bus_id_of(number) == wanted)) {
            return number;
        }
    }
    return -1;
}

hlthunk_device_name name_of(int fd)
{
    hw_ip_info info{};
    return ((inform(fd, info_hw_ip, info) == 0) &&
            (info.device_id == shim::pci_id_gaudi2))
               ? HLTHUNK_DEVICE_GAUDI2
               : HLTHUNK_DEVICE_INVALID;
}

/* The first card for which a test of its control node says yes. */
template <typename Test>
int find_card(Test &&test)
{
    for (int number = 0; number < max_cards; ++number) {
        const int fd = open_control(number);
        if (fd >= 0) {
            const bool found = test(number, fd);
            close(fd);
            if (found) {
                return number;
            }
        }
    }
    return -1;
}

} // namespace

/* --- opening ---------------------------------------------------------------
 */

HLTHUNK_PUBLIC int hlthunk_open(hlthunk_device_name name, const char *bus_id)
{
    if (bus_id != nullptr) {
        const int number = number_of(bus_id);
        return (number < 0) ? -EINVAL : open_compute(number);
    }
    int opened = -ENOENT;
    (void)find_card([&](int number, int fd) {
        if ((name == HLTHUNK_DEVICE_DONT_CARE) || (name == name_of(fd))) {
            opened = open_compute(number);
        }
        return opened >= 0;
    });
    if (opened < 0) {
        errno = -opened;
        return -1;
    }
    return opened;
}

HLTHUNK_PUBLIC int hlthunk_close(int fd)
{
    return close(fd);
}

HLTHUNK_PUBLIC int hlthunk_open_by_module_id(uint32_t module_id)
{
    const int number = find_card([&](int, int fd) {
        hw_ip_info info{};
        return (inform(fd, info_hw_ip, info) == 0) &&
               (info.module_id == module_id);
    });
    return (number < 0) ? -1 : open_compute(number);
}

HLTHUNK_PUBLIC int hlthunk_open_control(int device_index, const char *bus_id)
{
    const int number = (bus_id != nullptr) ? number_of(bus_id) : device_index;
    return (number < 0) ? -EINVAL : open_control(number);
}

/* --- what a card is --------------------------------------------------------
 */

HLTHUNK_PUBLIC hlthunk_device_name hlthunk_get_device_name_from_fd(int fd)
{
    return name_of(fd);
}

HLTHUNK_PUBLIC int hlthunk_get_device_count(hlthunk_device_name name)
{
    int count = 0;
    if (name == HLTHUNK_DEVICE_INVALID) {
        return -EINVAL;
    }
    (void)find_card([&](int, int fd) {
        count += (name == HLTHUNK_DEVICE_DONT_CARE) || (name == name_of(fd));
        return false;
    });
    return count;
}

HLTHUNK_PUBLIC int hlthunk_get_pci_bus_id_from_fd(int fd, char *bus_id,
                                                  int length)
{
    const dev_t device = device_of(fd);
    if (bus_id == nullptr) {
        return -EINVAL;
    }
    if ((device == 0) || (length < 0)) {
        return -1;
    }
    const auto number    = static_cast<int>(minor(device));
    const std::string id = bus_id_of(has_drm_nodes() ? number : number / 2);
    strncpy(bus_id, id.c_str(), static_cast<size_t>(length));
    return id.empty() ? -1 : 0;
}

HLTHUNK_PUBLIC int hlthunk_get_hw_ip_info(int fd, hlthunk_hw_ip_info *info)
{
    hw_ip_info from{};
    if (info == nullptr) {
        return -EINVAL;
    }
    const int ret = inform(fd, info_hw_ip, from);
    if (ret != 0) {
        return ret;
    }
    *info = {};
    copy_facts(from, *info);
    return 0;
}

HLTHUNK_PUBLIC int hlthunk_get_dram_usage(int fd, hlthunk_dram_usage_info *info)
{
    dram_usage_info from{};
    const int ret =
        (info == nullptr) ? -EINVAL : inform(fd, info_dram_usage, from);
    if (ret == 0) {
        *info = {from.free, from.of_context};
    }
    return ret;
}

HLTHUNK_PUBLIC int hlthunk_get_device_status_info(int fd)
{
    device_status_info from{};
    const int ret = inform(fd, info_device_status, from);
    return (ret != 0) ? ret : static_cast<int>(from.status);
}

HLTHUNK_PUBLIC int hlthunk_get_open_stats(int fd,
                                          hlthunk_open_stats_info *open_stats)
{
    open_stats_info from{};
    const int ret =
        (open_stats == nullptr) ? -EINVAL : inform(fd, info_open_stats, from);
    if (ret == 0) {
        *open_stats = {from.open_counter, from.last_open_period_ms,
                       from.is_compute_ctx_active, from.compute_ctx_in_release,
                       0};
    }
    return ret;
}

/* --- memory ----------------------------------------------------------------
 */

HLTHUNK_PUBLIC uint64_t hlthunk_device_memory_alloc(int fd, uint64_t size,
                                                    uint64_t page_size,
                                                    bool contiguous,
                                                    bool shared)
{
    memory_arguments arguments{};
    arguments.in.alloc = {size, page_size};
    arguments.in.op    = memory_alloc;
    arguments.in.flags = (contiguous ? memory_flag_contiguous : 0) |
                         (shared ? memory_flag_shared : 0);
    return value_of(fd, arguments);
}

HLTHUNK_PUBLIC int hlthunk_device_memory_free(int fd, uint64_t handle)
{
    memory_arguments arguments{};
    arguments.in.free = {handle};
    arguments.in.op   = memory_free;
    return ask(fd, call::memory, &arguments);
}

HLTHUNK_PUBLIC uint64_t hlthunk_device_memory_map(int fd, uint64_t handle,
                                                  uint64_t hint_addr)
{
    memory_arguments arguments{};
    arguments.in.map_device = {hint_addr, handle};
    arguments.in.op         = memory_map;
    return value_of(fd, arguments);
}

HLTHUNK_PUBLIC uint64_t hlthunk_host_memory_map(int fd, void *host,
                                                uint64_t hint_addr,
                                                uint64_t size)
{
    memory_arguments arguments{};
    arguments.in.map_host = {reinterpret_cast<uint64_t>(host), hint_addr, size};
    arguments.in.op       = memory_map;
    arguments.in.flags    = memory_flag_userptr;
    return value_of(fd, arguments);
}

HLTHUNK_PUBLIC int hlthunk_memory_unmap(int fd, uint64_t device_va)
{
    memory_arguments arguments{};
    arguments.in.unmap = {device_va};
    arguments.in.op    = memory_unmap;
    return ask(fd, call::memory, &arguments);
}

HLTHUNK_PUBLIC int hlthunk_device_mapped_memory_export_dmabuf_fd(
    int fd, uint64_t device_va, uint64_t size, uint64_t offset, uint32_t flags)
{
    memory_arguments arguments{};
    if (flags != (O_RDWR | O_CLOEXEC)) {
        return -EINVAL;
    }
    arguments.in.export_dmabuf = {device_va, size, offset};
    arguments.in.op            = memory_export;
    arguments.in.flags         = flags;
    const int ret              = ask(fd, call::memory, &arguments);
    return (ret != 0) ? ret : static_cast<int>(arguments.out.value);
}

/* --- submissions -----------------------------------------------------------
 */

HLTHUNK_PUBLIC int hlthunk_command_submission(int fd, hlthunk_cs_in *in,
                                              hlthunk_cs_out *out)
{
    union {
        submit_in in;
        submit_out out;
    } arguments{};
    if ((in == nullptr) || (out == nullptr)) {
        return -EINVAL;
    }
    arguments.in.restore     = reinterpret_cast<uint64_t>(in->chunks_restore);
    arguments.in.execute     = reinterpret_cast<uint64_t>(in->chunks_execute);
    arguments.in.num_restore = in->num_chunks_restore;
    arguments.in.num_execute = in->num_chunks_execute;
    arguments.in.flags       = in->flags;
    const int ret            = ask(fd, call::submit, &arguments);
    if (ret == 0) {
        out->seq    = arguments.out.seq;
        out->status = arguments.out.status;
    }
    return ret;
}

HLTHUNK_PUBLIC int hlthunk_wait_for_cs(int fd, uint64_t seq,
                                       uint64_t timeout_us, uint32_t *status)
{
    union {
        wait_in in;
        wait_out out;
    } arguments{};
    if (status == nullptr) {
        return -EINVAL;
    }
    arguments.in.seq        = seq;
    arguments.in.timeout_us = timeout_us;
    const int ret           = ask(fd, call::wait, &arguments);
    *status                 = arguments.out.status; /* on errors, too */
    return ret;
}
