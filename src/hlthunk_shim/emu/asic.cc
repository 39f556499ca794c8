#include "hlthunk_shim/emu/asic.h"

#include <algorithm>

namespace gaudi::emu {

namespace {

constexpr asic gaudi2 = {.name           = "gaudi2",
                         .device_type    = "GAUDI2",
                         .card_name      = "HL225",
                         .device_name    = HLTHUNK_DEVICE_GAUDI2,
                         .pci_id         = shim::pci_id_gaudi2,
                         .revision       = 1,
                         .server_type    = 5, /* HLS-2 */
                         .user_queues    = true,
                         .user_page_size = false,
                         .memory         = 96ull << 30,
                         .dram_page      = 48ull << 20,
                         .dram_start     = 0x1001000000000000,
                         .dram_va_end    = 0x1002000000000000,
                         .dram_hints = {0x1001500000000000, 0x1001700000000000},
                         .host       = {0xfff0000000000000, 0xfff0800000000000},
                         .host_huge  = {0xfff0800000000000, 0xfff1000000000000},
                         .edma_mask  = 0xff,
                         .sram_start = 0x1000fffffd000000,
                         .sram_bytes = 0x3000000,
                         .decoder_mask         = 0x3ff,
                         .tpc_mask             = 0x1ffffff,
                         .rotator_mask         = 0x3,
                         .user_interrupts      = 64,
                         .first_user_interrupt = 48,
                         .tpc_interrupt        = 46};

/* The revision says which it is: drivers/accel/habanalabs,
 * include/hw_ip/pci/pci_general.h. */
constexpr asic revision_of_gaudi2(const char *name, const char *device_type,
                                  hlthunk_device_name device_name,
                                  uint8_t revision)
{
    asic result        = gaudi2;
    result.name        = name;
    result.device_type = device_type;
    result.device_name = device_name;
    result.revision    = revision;
    return result;
}

constexpr asic kinds[] = {
    gaudi2,
    revision_of_gaudi2("gaudi2b", "GAUDI2B", HLTHUNK_DEVICE_GAUDI2B, 2),
    revision_of_gaudi2("gaudi2c", "GAUDI2C", HLTHUNK_DEVICE_GAUDI2C, 3),
    revision_of_gaudi2("gaudi2d", "GAUDI2D", HLTHUNK_DEVICE_GAUDI2D, 4),
    {.name                 = "gaudi3",
     .device_type          = "GAUDI3",
     .card_name            = "GAUDI3",
     .device_name          = HLTHUNK_DEVICE_GAUDI3,
     .pci_id               = 0x1060,
     .revision             = 1,
     .server_type          = 0, /* none is known */
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
     .tpc_interrupt        = 0xffff}};

} // namespace

const asic *find_asic(const std::string &name)
{
    const auto *found =
        std::find_if(std::begin(kinds), std::end(kinds),
                     [&](const asic &kind) { return kind.name == name; });
    return (found == std::end(kinds)) ? nullptr : found;
}

std::string asic_names()
{
    std::string names;
    for (const asic &kind : kinds) {
        names += (names.empty() ? "" : ", ") + std::string(kind.name);
    }
    return names;
}

} // namespace gaudi::emu
