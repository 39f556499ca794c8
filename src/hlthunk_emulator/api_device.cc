/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening, closing and identifying cards. */
#include "hlthunk_emulator/api.h"
#include "hlthunk_emulator/box.h"
#include "hlthunk_emulator/device_files.h"
#include "hlthunk_emulator/ports/wiring.h"
#include "hlthunk_emulator/settings.h"
#include "hlthunk_emulator/sysfs_view.h"
#include "util/made_once.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::emu {

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

software_card *find_any(int fd)
{
    const device_file file = look_up(fd);
    return ((file.kind == file_of::compute) || (file.kind == file_of::control))
               ? &software_card::at(file.card)
               : nullptr;
}

int why_no_card(int fd)
{
    if (!is_inherited(fd)) {
        return -EBADF;
    }
    log("file descriptor %d is a card's of the process that forked this one, "
        "and only of use there",
        fd);
    return -ENODEV;
}

} // namespace gaudi::emu

using namespace gaudi::emu;

namespace {

int open_compute(unsigned index)
{
    software_card &wanted = software_card::at(index);
    int fd                = -ENOMEM;
    try {
        (void)sysfs_root();
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
    if (software_card::at(index).is_removed()) {
        return -ENODEV;
    }
    if (box::instance().error() != 0) {
        return box::instance().error();
    }
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
           (name == get_settings().kind->device_name);
}

unsigned device_count()
{
    return get_settings().devices;
}

/* OCP module ids are indices. */
bool has_module(uint32_t module_id)
{
    return module_id < device_count();
}

/* Make a call on the card of any node; as on_compute, and -ENODEV when the card
 * was removed. */
template <typename Call>
int on_any(int fd, const void *result, Call &&call)
{
    software_card *found = find_any(fd);
    if (result == nullptr) {
        return -EINVAL;
    }
    if (found == nullptr) {
        return why_no_card(fd);
    }
    if (found->is_removed()) {
        return -ENODEV;
    }
    try {
        call(*found);
        return 0;
    } catch (const std::bad_alloc &) {
        return -ENOMEM;
    }
}

/* A text that is made once; nullptr without memory for it. */
template <typename Make>
const char *text_or_null(Make &&make)
{
    try {
        static gaudi::util::made_once<std::string> text;
        return text.get(make).c_str();
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
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
    if (!has_module(module_id)) {
        errno = ENOENT;
        return -1;
    }
    return open_compute(module_id);
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
    return has_module(module_id) ? open_control(module_id) : -EBADF;
}

HLTHUNK_PUBLIC int hlthunk_close(int fd)
{
    if (software_card *compute = find_compute(fd)) {
        remove_device_file(fd);
        const int ret = compute->close(fd);
        if (ret == 0) {
            return 0;
        }
        errno = -ret;
        return -1;
    }
    remove_device_file(fd);
    return close(fd);
}

HLTHUNK_PUBLIC int hlthunk_get_device_count(hlthunk_device_name name)
{
    if ((name == HLTHUNK_DEVICE_INVALID) || (name < HLTHUNK_DEVICE_GOYA) ||
        (name > HLTHUNK_DEVICE_GAUDI3D)) {
        return -EINVAL;
    }
    return matches(name) ? static_cast<int>(device_count()) : 0;
}

HLTHUNK_PUBLIC uint32_t hlthunk_get_device_id_from_fd(int fd)
{
    return (find_any(fd) != nullptr) ? get_settings().kind->pci_id : 0;
}

HLTHUNK_PUBLIC hlthunk_device_name hlthunk_get_device_name_from_fd(int fd)
{
    return (find_any(fd) != nullptr) ? get_settings().kind->device_name
                                     : HLTHUNK_DEVICE_INVALID;
}

HLTHUNK_PUBLIC int hlthunk_get_pci_bus_id_from_fd(int fd, char *bus_id,
                                                  int length)
{
    if (bus_id == nullptr) {
        return -EINVAL;
    }
    const software_card *found = find_any(fd);
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
    return on_any(fd, info, [info](const software_card &found) {
        const settings &is       = get_settings();
        const asic &kind         = *is.kind;
        *info                    = {};
        info->sram_base_address  = kind.sram_start;
        info->sram_size          = kind.sram_bytes;
        info->dram_base_address  = kind.dram_start + is.hbm;
        info->dram_size          = is.user_hbm();
        info->reserved_dram_size = is.dram_page;
        info->device_id          = kind.pci_id;
        info->dram_enabled       = 1;
        info->module_id          = found.index();
        std::snprintf(reinterpret_cast<char *>(info->cpucp_version),
                      sizeof(info->cpucp_version), "emulator");
        std::snprintf(reinterpret_cast<char *>(info->card_name),
                      sizeof(info->card_name), "%s", kind.card_name);
        info->decoder_enabled_mask               = kind.decoder_mask;
        info->mme_master_slave_mode              = 1;
        info->tpc_enabled_mask_ext               = kind.tpc_mask;
        info->dram_page_size                     = is.dram_page;
        info->first_available_interrupt_id       = kind.first_user_interrupt;
        info->number_of_user_interrupts          = kind.user_interrupts;
        info->edma_enabled_mask                  = is.edma_mask;
        info->server_type                        = kind.server_type;
        info->device_mem_alloc_default_page_size = is.dram_page;
        info->revision_id                        = kind.revision;
        info->tpc_interrupt_id                   = kind.tpc_interrupt;
        info->rotator_enabled_mask               = kind.rotator_mask;
        const port_masks ports                   = ports_of(found.index());
        info->nic_ports_mask                     = ports.enabled;
        info->nic_ports_external_mask            = ports.external;
    });
}

HLTHUNK_PUBLIC int hlthunk_get_dram_usage(int fd, hlthunk_dram_usage_info *info)
{
    if ((info != nullptr) && (find_compute(fd) != nullptr)) {
        return on_compute(fd, &software_card::dram_usage, *info);
    }
    return on_any(fd, info, [&](software_card &c) {
        *info = {c.free_dram(), 0};
    });
}

HLTHUNK_PUBLIC int hlthunk_get_open_stats(int fd,
                                          hlthunk_open_stats_info *open_stats)
{
    return on_any(fd, open_stats,
                  [&](software_card &c) { c.open_stats(*open_stats); });
}

HLTHUNK_PUBLIC int hlthunk_get_device_status_info(int fd)
{
    software_card *found = find_any(fd);
    return (found != nullptr) ? found->status() : why_no_card(fd);
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
    return text_or_null(
        [] { return "/memfd:hlthunk-emu/" + get_settings().node; });
}

HLTHUNK_PUBLIC const char *hlthunk_sys_box()
{
    return text_or_null([] { return box_name(); });
}

HLTHUNK_PUBLIC void *hlthunk_malloc(size_t size)
{
    return calloc(1, size);
}

HLTHUNK_PUBLIC char *hlthunk_get_version()
{
    static constexpr char version[] = "ucx-gaudi emulator";

    auto *text = static_cast<char *>(hlthunk_malloc(sizeof(version)));
    return (text != nullptr) ? strcpy(text, version) : nullptr;
}

HLTHUNK_PUBLIC void hlthunk_free(void *memory)
{
    free(memory);
}
