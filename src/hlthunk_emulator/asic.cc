/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/asic.h"

namespace gaudi::emu {

namespace {

asic gaudi2()
{
    return {.name                 = "gaudi2",
            .device_type          = "GAUDI2",
            .card_name            = "HL225",
            .pci_id               = shim::pci_id_gaudi2,
            .revision             = 1,
            .server_type          = 5, /* HLS-2 */
            .user_queues          = true,
            .user_page_size       = false,
            .memory               = 96ull << 30,
            .dram_page            = 48ull << 20,
            .dram_start           = 0x1001000000000000,
            .dram_va_end          = 0x1002000000000000,
            .dram_hints           = {0x1001500000000000, 0x1001700000000000},
            .host                 = {0xfff0000000000000, 0xfff0800000000000},
            .host_huge            = {0xfff0800000000000, 0xfff1000000000000},
            .edma_mask            = 0xff,
            .sram_start           = 0x1000fffffd000000,
            .sram_bytes           = 0x3000000,
            .decoder_mask         = 0x3ff,
            .tpc_mask             = 0x1ffffff,
            .rotator_mask         = 0x3,
            .user_interrupts      = 64,
            .first_user_interrupt = 48,
            .tpc_interrupt        = 46};
}

asic gaudi3()
{
    return {.name                 = "gaudi3",
            .device_type          = "GAUDI3",
            .card_name            = "GAUDI3",
            .pci_id               = 0x1060,
            .revision             = 1,
            .server_type          = 10, /* HLS-3 */
            .user_queues          = false,
            .user_page_size       = true,
            .memory               = 128ull << 30,
            .dram_page            = 32ull << 20,
            .dram_start           = 0x0201000000000000,
            .dram_va_end          = 0x0202000000000000,
            .dram_hints           = {0x0201e00000000000, 0x0202000000000000},
            .host                 = {0xff70000000000000, 0xff70800000000000},
            .host_huge            = {0xfff0000000000000, 0xfff0800000000000},
            .edma_mask            = 0xff,
            .sram_start           = 0,
            .sram_bytes           = 0, /* all of it is cache */
            .decoder_mask         = 0x7f7f,
            .tpc_mask             = UINT64_MAX,
            .rotator_mask         = 0x77,
            .user_interrupts      = 256,
            .first_user_interrupt = 0, /* not known */
            .tpc_interrupt        = 0xffff};
}

/* A PCIe card. Its server's type is one of habanalabs_accel.h (enum
 * hl_server_type). */
asic addin_card(asic base, const char *card_name, uint32_t pci_id,
                uint16_t server_type)
{
    base.card_name   = card_name;
    base.pci_id      = pci_id;
    base.server_type = server_type;
    return base;
}

std::optional<asic> find_base(const std::string &name)
{
    return (name == "gaudi2")   ? std::optional(gaudi2())
           : (name == "gaudi3") ? std::optional(gaudi3())
           : (name == "hl288")  ? addin_card(gaudi2(), "HL288", 0x1021, 14)
           : (name == "hl338")  ? addin_card(gaudi3(), "HL338", 0x1063, 13)
                                : std::optional<asic>();
}

} // namespace

/* Device and revision ids tell the kinds apart, as in the vendor's driver:
 * get_asic_type of habanalabs_drv.c, hl_revision_id of pci_general.h; what
 * sysfs calls them: device_type_show of sysfs.c. */
std::optional<asic> parse_asic(const std::string &name)
{
    const bool is_addin      = name.starts_with("hl");
    const size_t length      = is_addin ? 5 : 6;
    std::optional<asic> kind = find_base(name.substr(0, length));
    const std::string letter =
        (name.size() > length) ? name.substr(length) : "";
    const std::string known = name.starts_with("gaudi2") ? "bcde" : "de";
    if (!kind || (letter.size() > 1) ||
        (known.find(letter) == std::string::npos)) {
        return std::nullopt;
    }
    if (!letter.empty()) {
        kind->revision = static_cast<uint8_t>(letter[0] - 'a' + 1);
        kind->device_type += static_cast<char>(letter[0] - 'a' + 'A');
    }
    if (is_addin) {
        kind->device_type += " HL-" + name.substr(2, 3);
    }
    kind->name = name;
    return kind;
}

} // namespace gaudi::emu
