/* Opening, closing and identifying cards. */
#include "hlthunk_shim/emu/asic.h"
#include "hlthunk_shim/emu/box.h"
#include "hlthunk_shim/emu/card.h"
#include "hlthunk_shim/emu/device_files.h"
#include "hlthunk_shim/emu/export.h"
#include "hlthunk_shim/emu/find_card.h"
#include "hlthunk_shim/emu/fork.h"
#include "hlthunk_shim/emu/settings.h"
#include "hlthunk_shim/emu/sysfs_view.h"
#include "util/made_once.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace gaudi::emu;

namespace {

int open_compute(unsigned index)
{
    card &wanted = card::at(index);
    int fd       = -ENOMEM;
    try {
        (void)sysfs_root();
        prepare_for_fork();
        fd = wanted.open();
    } catch (const std::bad_alloc &) {
        log("no memory to open card %u", index);
    }
    if ((fd >= 0) && !add_device_file(fd, {file_of::compute, index})) {
        wanted.close(fd);
        return -EMFILE;
    }
    return fd;
}

int open_control(unsigned index)
{
    char name[128];
    std::snprintf(name, sizeof(name), "hlthunk-emu/%s/accel_controlD%u",
                  get_settings().node.c_str(), index);
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    if (!add_device_file(fd, {file_of::control, index})) {
        close(fd);
        return -EMFILE;
    }
    return fd;
}

bool matches(hlthunk_device_name name)
{
    return (name == HLTHUNK_DEVICE_DONT_CARE) ||
           (name == HLTHUNK_DEVICE_GAUDI2);
}

unsigned device_count()
{
    return get_settings().devices;
}

} // namespace

HLTHUNK_PUBLIC int hlthunk_open(hlthunk_device_name name, const char *bus_id)
{
    if (bus_id != nullptr) {
        int index = index_of_bus_id(bus_id);
        return (index < 0) ? -EINVAL
                           : open_compute(static_cast<unsigned>(index));
    }

    int last_error = ENOENT;
    for (unsigned i = 0; matches(name) && (i < device_count()); ++i) {
        int fd = open_compute(i);
        if (fd >= 0) {
            return fd;
        }
        last_error = -fd;
    }
    errno = last_error;
    return -1;
}

HLTHUNK_PUBLIC int hlthunk_open_by_module_id(uint32_t module_id)
{
    for (unsigned i = 0; i < device_count(); ++i) {
        if (module_id_of(i) == module_id) {
            return open_compute(i);
        }
    }
    errno = ENOENT;
    return -1;
}

HLTHUNK_PUBLIC int hlthunk_open_control(int device_index, const char *bus_id)
{
    if (bus_id != nullptr) {
        device_index = index_of_bus_id(bus_id);
        if (device_index < 0) {
            return -EINVAL;
        }
    }
    if ((device_index < 0) ||
        (static_cast<unsigned>(device_index) >= device_count())) {
        return -ENOENT;
    }
    return open_control(static_cast<unsigned>(device_index));
}

HLTHUNK_PUBLIC int hlthunk_open_control_by_name(hlthunk_device_name name,
                                                const char *bus_id)
{
    if (bus_id != nullptr) {
        return hlthunk_open_control(0, bus_id);
    }
    if (!matches(name) || (device_count() == 0)) {
        errno = ENOENT;
        return -1;
    }
    return open_control(0);
}

HLTHUNK_PUBLIC int hlthunk_open_control_by_bus_id(const char *bus_id)
{
    if (bus_id == nullptr) {
        return -EINVAL;
    }
    int index = index_of_bus_id(bus_id);
    return (index < 0) ? -EBADF : open_control(static_cast<unsigned>(index));
}

HLTHUNK_PUBLIC int hlthunk_open_control_by_module_id(uint32_t module_id)
{
    for (unsigned i = 0; i < device_count(); ++i) {
        if (module_id_of(i) == module_id) {
            return open_control(i);
        }
    }
    return -EBADF;
}

HLTHUNK_PUBLIC int hlthunk_close(int fd)
{
    card *compute   = find_compute(fd);
    card *inherited = find_inherited(fd);
    if ((compute != nullptr) || (inherited != nullptr)) {
        remove_device_file(fd);
        int ret = (compute != nullptr) ? compute->close(fd)
                                       : inherited->close_inherited(fd);
        if (ret == 0) {
            return 0;
        }
        errno = -ret;
        return -1;
    }
    if (device_file_at(fd).kind == file_of::control) {
        remove_device_file(fd);
    }
    return close(fd);
}

HLTHUNK_PUBLIC int hlthunk_get_device_count(hlthunk_device_name name)
{
    if ((name == HLTHUNK_DEVICE_INVALID) || (name < HLTHUNK_DEVICE_GOYA) ||
        (name > HLTHUNK_DEVICE_GAUDI2D)) {
        return -EINVAL;
    }
    return matches(name) ? static_cast<int>(device_count()) : 0;
}

HLTHUNK_PUBLIC uint32_t hlthunk_get_device_id_from_fd(int fd)
{
    return (find_any(fd) != nullptr) ? gaudi::shim::pci_id_gaudi2 : 0;
}

HLTHUNK_PUBLIC hlthunk_device_name hlthunk_get_device_name_from_fd(int fd)
{
    return (find_any(fd) != nullptr) ? HLTHUNK_DEVICE_GAUDI2
                                     : HLTHUNK_DEVICE_INVALID;
}

HLTHUNK_PUBLIC int hlthunk_get_pci_bus_id_from_fd(int fd, char *bus_id,
                                                  int length)
{
    if (bus_id == nullptr) {
        return -EINVAL;
    }
    const card *found = find_any(fd);
    if (found == nullptr) {
        return (why_no_card(fd) == -ENODEV) ? -ENODEV : -1;
    }
    if (length < 0) {
        return -1;
    }
    /* The library pads, and leaves a short buffer unterminated. */
    const std::string text = bus_id_of(found->index());
    for (size_t i = 0; i < static_cast<size_t>(length); ++i) {
        bus_id[i] = (i < text.size()) ? text[i] : '\0';
    }
    return 0;
}

HLTHUNK_PUBLIC int hlthunk_get_device_index_from_pci_bus_id(const char *bus_id)
{
    return (bus_id == nullptr) ? -EINVAL : index_of_bus_id(bus_id);
}

HLTHUNK_PUBLIC int hlthunk_get_hw_ip_info(int fd, hlthunk_hw_ip_info *info)
{
    const card *found = find_any(fd);
    if (info == nullptr) {
        return -EINVAL;
    }
    if (found == nullptr) {
        return why_no_card(fd);
    }

    const uint64_t memory   = get_settings().hbm / dram_page * dram_page;
    *info                   = {};
    info->sram_base_address = 0x1000fffffd000000;
    info->sram_size         = 0x3000000;
    info->dram_base_address = dram_physical + memory;
    info->dram_size         = memory;
    info->device_id         = gaudi::shim::pci_id_gaudi2;
    info->dram_enabled      = 1;
    std::snprintf(reinterpret_cast<char *>(info->cpucp_version),
                  sizeof(info->cpucp_version), "emulator");
    info->module_id = module_id_of(found->index());
    std::snprintf(reinterpret_cast<char *>(info->card_name),
                  sizeof(info->card_name), "HL225");
    info->decoder_enabled_mask               = 0x3ff;
    info->mme_master_slave_mode              = 1;
    info->dram_page_size                     = dram_page;
    info->edma_enabled_mask                  = 0xff;
    info->server_type                        = 5; /* HLS-2 */
    info->device_mem_alloc_default_page_size = dram_page;
    info->revision_id                        = 1;
    return 0;
}

HLTHUNK_PUBLIC int hlthunk_get_dram_usage(int fd, hlthunk_dram_usage_info *info)
{
    card *found = find_any(fd);
    if (info == nullptr) {
        return -EINVAL;
    }
    if (found == nullptr) {
        return why_no_card(fd);
    }
    if (device_file_at(fd).kind != file_of::control) {
        return found->dram_usage(*info);
    }
    try {
        *info = {found->free_dram(), 0};
    } catch (const std::bad_alloc &) {
        return -ENOMEM;
    }
    return 0;
}

HLTHUNK_PUBLIC int hlthunk_get_open_stats(int fd,
                                          hlthunk_open_stats_info *open_stats)
{
    card *found = find_any(fd);
    if (open_stats == nullptr) {
        return -EINVAL;
    }
    if (found == nullptr) {
        return why_no_card(fd);
    }
    try {
        found->open_stats(*open_stats);
    } catch (const std::bad_alloc &) {
        return -ENOMEM;
    }
    return 0;
}

HLTHUNK_PUBLIC int hlthunk_get_device_status_info(int fd)
{
    return (find_any(fd) != nullptr) ? 0 /* operational */ : why_no_card(fd);
}

HLTHUNK_PUBLIC const char *hlthunk_sys_sysfs()
{
    try {
        return sysfs_root();
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

HLTHUNK_PUBLIC const char *hlthunk_sys_dev()
{
    try {
        static gaudi::util::made_once<std::string> name;
        return name
            .get([] { return "/memfd:hlthunk-emu/" + get_settings().node; })
            .c_str();
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

HLTHUNK_PUBLIC const char *hlthunk_sys_box()
{
    try {
        static gaudi::util::made_once<std::string> name;
        const auto make = [] {
            struct stat net {};
            (void)stat("/proc/self/ns/net", &net);
            return get_settings().node + "@" + std::to_string(net.st_ino);
        };
        return name.get(make).c_str();
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

HLTHUNK_PUBLIC char *hlthunk_get_version()
{
    return strdup("ucx-gaudi emulator");
}

HLTHUNK_PUBLIC void *hlthunk_malloc(size_t size)
{
    return calloc(1, size);
}

HLTHUNK_PUBLIC void hlthunk_free(void *memory)
{
    free(memory);
}
