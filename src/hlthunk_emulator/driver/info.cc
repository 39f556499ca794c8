/* SPDX-License-Identifier: BSD-3-Clause */
/* What a card tells of itself: hl_info_ioctl of habanalabs_ioctl.c. */
#include "hlthunk_emulator/driver/ioctl.h"

#include "hlthunk_emulator/ports/wiring.h"
#include "hlthunk_emulator/settings.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace gaudi::emu::driver {

namespace {

/* copy_to_user, as much as the caller has room for. */
int give(const info_args &asked, const void *data, size_t size)
{
    std::memcpy(reinterpret_cast<void *>(asked.pointer), data,
                std::min<size_t>(size, asked.size));
    return 0;
}

hw_ip_info describe(unsigned card)
{
    const settings &is = get_settings();
    const asic &kind   = *is.kind;
    hw_ip_info info{};
    info.sram_base_address            = kind.sram_start;
    info.dram_base_address            = kind.dram_start + is.hbm;
    info.dram_size                    = is.user_hbm();
    info.sram_size                    = kind.sram_bytes;
    info.device_id                    = kind.pci_id;
    info.module_id                    = card; /* OCP module ids are indices */
    info.decoder_enabled_mask         = kind.decoder_mask;
    info.first_available_interrupt_id = kind.first_user_interrupt;
    info.server_type                  = kind.server_type;
    info.tpc_enabled_mask             = static_cast<uint8_t>(kind.tpc_mask);
    info.dram_enabled                 = 1;
    info.mme_master_slave_mode        = 1;
    std::snprintf(reinterpret_cast<char *>(info.cpucp_version),
                  sizeof(info.cpucp_version), "emulator");
    std::snprintf(reinterpret_cast<char *>(info.card_name),
                  sizeof(info.card_name), "%s", kind.card_name);
    info.tpc_enabled_mask_ext               = kind.tpc_mask;
    info.dram_page_size                     = is.dram_page;
    info.edma_enabled_mask                  = is.edma_mask;
    info.number_of_user_interrupts          = kind.user_interrupts;
    info.device_mem_alloc_default_page_size = is.dram_page;
    info.revision_id                        = kind.revision;
    info.tpc_interrupt_id                   = kind.tpc_interrupt;
    info.rotator_enabled_mask               = kind.rotator_mask;
    info.reserved_dram_size                 = is.dram_page;
    if (emulated.shows_ports) {
        const port_masks ports       = ports_of(card);
        info.nic_ports_mask          = ports.enabled;
        info.nic_ports_external_mask = ports.external;
    }
    return info;
}

} // namespace

int answer(device_file file, info_args &arguments)
{
    const info_args &asked = arguments;
    software_card &card    = software_card::at(file.card);
    if (card.is_removed()) {
        return -ENODEV;
    }
    if (emulated.is_drm && (asked.pad != 0)) {
        return broken("info-padding", EINVAL, "the padding of INFO is %u",
                      asked.pad);
    }
    if ((asked.pointer == 0) || (asked.size == 0)) {
        return broken("info-result", EINVAL, "%u bytes for INFO %u", asked.size,
                      asked.op);
    }
    switch (asked.op) {
    case info_hw_ip: {
        const hw_ip_info found = describe(file.card);
        return give(asked, &found, emulated.hw_ip_bytes);
    }
    case info_dram_usage: {
        dram_usage_info found{};
        if (file.kind == file_of::control) {
            found.free = card.free_dram();
        } else if (const int ret = card.dram_usage(found); ret != 0) {
            return ret;
        }
        return give(asked, &found, sizeof(found));
    }
    case info_device_status: {
        const int status = card.status();
        const device_status_info found{static_cast<uint32_t>(status), 0};
        return (status < 0) ? status : give(asked, &found, sizeof(found));
    }
    case info_open_stats: {
        open_stats_info found{};
        card.open_stats(found);
        return give(asked, &found, sizeof(found));
    }
    case info_page_sizes: {
        const settings &is = get_settings();
        const page_sizes_info found{is.kind->user_page_size ? is.dram_page : 0};
        return give(asked, &found, sizeof(found));
    }
    default:
        /* No answer is better than a made-up one. */
        std::fprintf(stderr, "hlthunk-emu: INFO %u is not there\n", asked.op);
        std::abort();
    }
}

} // namespace gaudi::emu::driver
