/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A driver library that shows cards as its variables say, for what the emulator
 * does not do: cards of other users, other kinds of card, errors of the driver.
 * Whatever moves data or opens a card fails.
 *
 * FAKE_CARDS        how many (1)
 * FAKE_TAKEN        "1": all are open in some process; "1,0": the first one is
 * FAKE_DEVICE_ID    PCI device id (Gaudi2's)
 * FAKE_DEVICE_NAME  hlthunk_device_name (Gaudi2's)
 * FAKE_INFO_ERROR   errno of hlthunk_get_hw_ip_info
 * FAKE_BUS_ERROR    "1": hlthunk_get_pci_bus_id_from_fd fails
 * FAKE_STATUS       result of hlthunk_get_device_status_info (0); a list has
 * one for each card FAKE_NODE_ERROR   errno of opening a control node
 * FAKE_OPEN_ERROR   errno of opening a card (EBUSY)
 */
#include "hlthunk_shim/abi/hlthunk.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include <sys/mman.h>
#include <unistd.h>

namespace {

int setting(const char *name, int otherwise)
{
    const char *text = std::getenv(name);
    return (text != nullptr) ? static_cast<int>(std::strtol(text, nullptr, 0))
                             : otherwise;
}

/* Cards whose control nodes are open, by their descriptors. */
int cards[1024];

int &card_of(int fd)
{
    return cards[fd % static_cast<int>(std::size(cards))];
}

/* Of a list with one number for each card; the last one is for all others. */
[[maybe_unused]] int setting_of(const char *name, int fd, int otherwise)
{
    const char *text = std::getenv(name);
    if (text == nullptr) {
        return otherwise;
    }
    for (int i = 0; i < card_of(fd); ++i) {
        const char *next = std::strchr(text, ',');
        text             = (next != nullptr) ? next + 1 : text;
    }
    return static_cast<int>(std::strtol(text, nullptr, 0));
}

} // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE int hlthunk_open(hlthunk_device_name, const char *)
{
    return -setting("FAKE_OPEN_ERROR", EBUSY);
}

FAKE int hlthunk_close(int fd)
{
    return close(fd);
}

FAKE int hlthunk_open_control(int index, const char *)
{
    const int error = setting("FAKE_NODE_ERROR", 0);
    if (index >= setting("FAKE_CARDS", 1)) {
        return -ENOENT;
    }
    if (error != 0) {
        return -error;
    }
    const int fd = memfd_create("control", MFD_CLOEXEC);
    if (fd >= 0) {
        card_of(fd) = (index > 0) ? index : 0;
    }
    return fd;
}

FAKE hlthunk_device_name hlthunk_get_device_name_from_fd(int)
{
    return static_cast<hlthunk_device_name>(
        setting("FAKE_DEVICE_NAME", HLTHUNK_DEVICE_GAUDI2));
}

FAKE int hlthunk_get_pci_bus_id_from_fd(int fd, char *bus_id, int length)
{
    std::snprintf(bus_id, static_cast<size_t>(length), "00ff:%02x:00.0",
                  0x19 + static_cast<unsigned>(card_of(fd)));
    return -setting("FAKE_BUS_ERROR", 0);
}

FAKE int hlthunk_get_hw_ip_info(int, hlthunk_hw_ip_info *info)
{
    *info           = {};
    info->device_id = static_cast<uint32_t>(
        setting("FAKE_DEVICE_ID", gaudi::shim::pci_id_gaudi2));
    info->module_id = 5;
    std::memcpy(info->card_name, "HL-fake", sizeof("HL-fake"));
    info->dram_base_address = 0x1001000000000000;
    info->dram_size         = 96ull << 30;
    return -setting("FAKE_INFO_ERROR", 0);
}

FAKE int hlthunk_get_dram_usage(int, hlthunk_dram_usage_info *info)
{
    *info = {24ull << 30, 0};
    return 0;
}

#ifndef FAKE_IS_OLD
FAKE int hlthunk_get_device_status_info(int fd)
{
    return setting_of("FAKE_STATUS", fd, 0);
}

FAKE int hlthunk_get_open_stats(int fd, hlthunk_open_stats_info *info)
{
    *info                       = {};
    info->is_compute_ctx_active = (setting_of("FAKE_TAKEN", fd, 0) != 0);
    return 0;
}
#endif

FAKE uint64_t hlthunk_device_memory_alloc(int, uint64_t, uint64_t, bool, bool)
{
    return 0;
}

FAKE int hlthunk_device_memory_free(int, uint64_t)
{
    return -EINVAL;
}

FAKE uint64_t hlthunk_device_memory_map(int, uint64_t, uint64_t)
{
    return 0;
}

FAKE uint64_t hlthunk_host_memory_map(int, void *, uint64_t, uint64_t)
{
    return 0;
}

FAKE int hlthunk_memory_unmap(int, uint64_t)
{
    return -EINVAL;
}

FAKE int hlthunk_command_submission(int, hlthunk_cs_in *, hlthunk_cs_out *)
{
    return -EINVAL;
}

FAKE int hlthunk_wait_for_cs(int, uint64_t, uint64_t, uint32_t *)
{
    return -EINVAL;
}
