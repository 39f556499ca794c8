/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps of one card, but for those over its links. */
#include "launcher/tried_card.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>

#include <unistd.h>

namespace launcher {

namespace {

namespace shim = gaudi::shim;
using shim::dma_direction;

std::string to_hex(uint64_t value)
{
    char text[32];
    std::snprintf(text, sizeof(text), "%#lx", value);
    return text;
}

/* --- library ---------------------------------------------------------------*/

/* How much of a structure a library fills: into two patterns, with room behind.
 * No more than is known here. */
template <typename Info>
size_t find_written(const char *name, int fd, int (*ask)(int, Info *))
{
    struct {
        Info info;
        unsigned char behind[4096];
    } place;
    static_assert(sizeof(place) == sizeof(Info) + sizeof(place.behind));
    auto *bytes    = reinterpret_cast<unsigned char *>(&place);
    size_t written = 0;
    for (const int pattern : {0xa5, 0x5a}) {
        std::memset(bytes, pattern, sizeof(place));
        must_succeed((ask != nullptr) ? ask(fd, &place.info) : 0);
        for (size_t i = written; i < sizeof(place); ++i) {
            written = (bytes[i] != pattern) ? i + 1 : written;
        }
    }
    must_hold(written <= sizeof(Info),
              "it writes " + std::to_string(written) + " bytes of " + name +
                  ", which has " + std::to_string(sizeof(Info)) + " here");
    return written;
}

std::string try_library(const subject &with)
{
    doing("loading the driver library");
    const shim::driver &driver = driver_of(with);
    const auto &lib            = driver.lib();
    doing("asking a control node");
    const int fd = lib.hlthunk_open_control(-1, with.bus_id.c_str());
    must_succeed(std::min(fd, 0));
    const size_t info =
        find_written("hlthunk_hw_ip_info", fd, lib.hlthunk_get_hw_ip_info);
    find_written("hlthunk_dram_usage_info", fd, lib.hlthunk_get_dram_usage);
    find_written("hlthunk_open_stats_info", fd, lib.hlthunk_get_open_stats);
    lib.hlthunk_close(fd);
    return driver.file() +
           (lib.lacks().empty() ? ", all functions"
                                : ", without " + lib.lacks()) +
           "; " + std::to_string(info) + " bytes of hlthunk_hw_ip_info";
}

/* --- open ------------------------------------------------------------------*/

template <size_t size>
std::string to_text(const uint8_t (&bytes)[size])
{
    const auto *text = reinterpret_cast<const char *>(bytes);
    return to_printable({text, strnlen(text, size)});
}

std::string try_open(const subject &with)
{
    const tried_card card(with, with.bus_id);
    const shim::driver &driver = driver_of(with);
    const auto &lib            = driver.lib();
    const int fd               = card.device().fd();
    if (!is_by_synapse(with)) {
        doing("opening it a second time");
        std::unique_ptr<shim::card> again;
        const int ret = driver.open(with.bus_id, again);
        must_hold(ret != 0, "it can be opened twice");
        must_hold(ret == -EBUSY, std::string("it says ") + std::strerror(-ret) +
                                     ", and not that it is in use");
    }
    doing("asking it which one it is");
    char bus_id[32] = {};
    must_succeed(
        lib.hlthunk_get_pci_bus_id_from_fd(fd, bus_id, sizeof(bus_id)));
    must_hold(with.bus_id == bus_id, "it says " + to_printable(bus_id));
    doing("asking it what it is");
    hlthunk_hw_ip_info info{};
    must_succeed(lib.hlthunk_get_hw_ip_info(fd, &info));
    const shim::capabilities &knows = card.knows();
    must_hold((card.page() % (1u << 20) == 0) &&
                  (card.page() <= knows.memory_bytes),
              "pages of " + std::to_string(card.page()) + " bytes in " +
                  std::to_string(knows.memory_bytes) + " cannot be");
    must_hold(shim::may_be_device_memory(knows.memory_start),
              "memory from " + to_hex(knows.memory_start) +
                  " on could be memory of the host");
    if (lib.hlthunk_get_device_status_info != nullptr) {
        const int status = lib.hlthunk_get_device_status_info(fd);
        must_hold(status == 0, "its status is " + std::to_string(status));
    }
    doing("asking another node of it whether it is in use");
    const int control = lib.hlthunk_open_control(-1, with.bus_id.c_str());
    must_succeed(std::min(control, 0));
    must_hold(shim::is_taken(driver, control).value_or(true), "it says no");
    lib.hlthunk_close(control);

    return with.bus_id + ": " + to_text(info.card_name) + ", PCI device " +
           to_hex(info.device_id) + ", firmware " +
           to_text(info.cpucp_version) + ", " + to_size(knows.memory_bytes) +
           " from " + to_hex(knows.memory_start) + " on in pages of " +
           to_size(card.page()) + ", EDMA mask " +
           to_hex(info.edma_enabled_mask) + ", server type " +
           std::to_string(info.server_type) + ", port mask " +
           to_hex(info.nic_ports_mask) + card.wait();
}

/* --- memory ----------------------------------------------------------------*/

bool is_of_card(const tried_card &card, uint64_t address)
{
    return (address >= card.knows().memory_start) &&
           (address < card.knows().memory_end);
}

std::string try_memory(const subject &with)
{
    const tried_card card(with, with.bus_id);
    const shim::capabilities &knows = card.knows();
    const auto before               = card.device().allocated_bytes();
    doing("allocating and mapping a page");
    shim::allocation first;
    must_succeed(card.device().allocate(card.page(), 0, first));
    must_hold(is_of_card(card, first.address()),
              "it is at " + to_hex(first.address()) + ", and not between " +
                  to_hex(knows.memory_start) + " and " +
                  to_hex(knows.memory_end));
    std::string detail = "a page at " + to_hex(first.address());
    shim::allocation second;
    if (knows.window_bytes != 0) {
        doing("mapping a page where it is wished for");
        const uint64_t wished =
            knows.next_page(knows.memory_start + knows.window_bytes);
        must_succeed(card.device().allocate(card.page(), wished, second));
        must_hold(second.address() == wished, "wished for " + to_hex(wished) +
                                                  ", got " +
                                                  to_hex(second.address()));
        detail += ", another one at the wished-for address";
    }
    doing("giving it back");
    const auto during = card.device().allocated_bytes();
    must_succeed(first.close());
    must_succeed(second.close());
    const auto after = card.device().allocated_bytes();
    /* SynapseAI has all of it as one block, whatever programs get. */
    if (before.has_value() && !is_by_synapse(with)) {
        must_hold(*during > *before, "the driver has not counted it");
        must_hold(after == before, "the driver counts it still");
    }
    return detail;
}

/* --- host ------------------------------------------------------------------*/

std::string try_host(const subject &with)
{
    const tried_card card(with, with.bus_id);
    const size_t page = shim::dmabuf_page();
    doing("mapping host memory at an odd address");
    const std::unique_ptr<char, decltype(&std::free)> pages(
        static_cast<char *>(std::aligned_alloc(page, 4 * page)), &std::free);
    std::memset(pages.get(), 0, 4 * page);
    shim::registration first;
    must_be_there(
        card.device().register_host(pages.get() + 1, 2 * page + 1, first),
        "SynapseAI maps no memory of programs");
    const uint64_t address = first.address();
    must_hold(address % page == 1,
              "it is at " + to_hex(address) + ", at another place of its page");
    must_hold(!is_of_card(card, address),
              "it is at " + to_hex(address) + ", among the card's memory");
    doing("mapping the same memory once more");
    shim::registration second;
    must_succeed(card.device().register_host(pages.get(), 4 * page, second));
    doing("unmapping host memory");
    must_succeed(first.close());
    must_succeed(second.close());
    return "at " + to_hex(address);
}

/* --- copies ----------------------------------------------------------------*/

constexpr size_t margin         = 64; /* bytes that a copy has to leave alone */
constexpr size_t largest        = (size_t{4} << 20) + 1;
constexpr size_t sizes[]        = {1,    2,    3,     7,     8,        9,
                                   63,   64,   65,    127,   255,      4095,
                                   4096, 4097, 65535, 65537, 1u << 20, largest};
constexpr size_t shifts[]       = {0, 1, 7, 33};
constexpr char written_beside[] = "bytes beside it were written, too";

std::string try_copy(const subject &with)
{
    tried_card card(with, with.bus_id);
    doing("allocating memory for the copy");
    std::string detail = card.exchange(card.allocate(card.page()));
    card.close();
    return detail;
}

/* @param within  Copies from one place of the card to another. */
std::string try_sizes(const subject &with, bool within)
{
    tried_card card(with, with.bus_id);
    const auto direction = within ? dma_direction::device_to_device
                                  : dma_direction::host_to_device;
    if (card.knows().streams[static_cast<size_t>(direction)] == 0) {
        end_step(verdict::absent, "no queue for it");
    }
    doing("allocating memory for the copies");
    constexpr size_t space = largest + 4 * margin;
    const uint64_t target  = card.allocate(card.page());
    const uint64_t other   = target + 2 * space;
    auto &host             = card.pin(space);
    unsigned seed          = 0;
    for (const size_t size : sizes) {
        for (const size_t from : shifts) {
            const size_t to = margin + shifts[++seed % std::size(shifts)];
            doing("copying " + std::to_string(size) + " bytes from a place " +
                  std::to_string(from) + " behind a page to one " +
                  std::to_string(to - margin) + " behind another");
            const std::vector<char> text = pattern(size, seed);
            std::vector<char> expected(to + size + margin);
            card.write(target, expected);
            /* What follows is not to be copied. */
            std::memset(host.data() + from, 'x', size + margin);
            std::ranges::copy(text, host.data() + from);
            if (within) {
                card.copy(dma_direction::host_to_device, other + from,
                          host.address() + from, size + margin);
            }
            card.copy(direction, target + to,
                      within ? other + from : host.address() + from, size);
            const std::vector<char> seen = card.read(target, expected.size());
            require_same(seen.data() + to, text);
            std::ranges::copy(text, expected.data() + to);
            must_hold(seen == expected, written_beside);
        }
    }
    /* The other way is as odd. */
    const std::vector<char> text = pattern(largest, 0);
    card.write(target + 3, text);
    std::memset(host.data(), 0, space);
    doing("copying " + std::to_string(largest) + " bytes to an odd address");
    card.copy(dma_direction::device_to_host, host.address() + 1, target + 3,
              largest);
    require_same(host.data() + 1, text);
    must_hold((host.data()[0] == 0) && (host.data()[largest + 1] == 0),
              written_beside);
    card.close();
    return "1 byte to " + std::to_string(largest) +
           ", odd addresses: " + std::to_string(seed + 1) + " copies";
}

/* --- dma-bufs --------------------------------------------------------------*/

std::string try_export(const subject &with)
{
    tried_card card(with, with.bus_id);
    const shim::capabilities &knows = card.knows();
    const uint64_t size =
        knows.exports_parts ? shim::dmabuf_page() : card.page();
    doing("exporting device memory as a dma-buf");
    shim::allocation memory;
    must_succeed(card.device().allocate(card.page(), 0, memory));
    int fd = -1;
    must_be_there(card.device().export_dmabuf(memory.address(), 0, size, fd),
                  "this driver exports no dma-bufs");
    const int64_t told = card.device().dmabuf_size(fd);
    must_hold(told == static_cast<int64_t>(size),
              "its size is said to be " + std::to_string(told));
    if (!is_by_synapse(with)) {
        doing("unmapping memory of which there is a dma-buf");
        must_hold((memory.close() != 0) && (memory.address() != 0),
                  "it is not refused");
    }
    close(fd);
    if (knows.exports_parts) {
        doing("exporting a part of a page");
        must_succeed(
            card.device().export_dmabuf(memory.address(), size, size, fd));
        close(fd);
    }
    doing("unmapping memory of which there was a dma-buf");
    must_succeed(memory.close());
    return knows.exports_parts ? "of parts of a page" : "of whole blocks alone";
}

std::string try_import(const subject &with)
{
    if (with.peer_bus_id.empty()) {
        end_step(verdict::absent, "no second card is free");
    }
    must_not_be_by_synapse(with, one_card);
    tried_card card(with, with.bus_id);
    tried_card peer(with, with.peer_bus_id);
    doing("exporting memory of " + with.peer_bus_id);
    const uint64_t size = peer.page();
    int fd              = -1;
    const uint64_t from = peer.allocate(size);
    must_succeed(peer.device().export_dmabuf(from, 0, size, fd));
    doing("importing it");
    shim::registration import;
    const int ret = card.device().import_dmabuf(fd, size, import);
    if (ret == -EPERM) {
        end_step(verdict::absent,
                 "the driver refuses it (EPERM): these cards do not reach "
                 "each other over PCIe");
    }
    must_be_there(ret, "this driver imports no dma-bufs");
    const std::string where = to_hex(import.address());
    doing("unmapping an import");
    must_succeed(import.close());
    close(fd);
    peer.close();
    return to_size(size) + " of " + with.peer_bus_id + " at " + where;
}

} // namespace

const step library_step = {
    "library", nullptr,
    "the driver library is another one than this release knows: do not run "
    "programs with it",
    try_library};

const std::vector<step> card_steps = {
    {"open", "library",
     "the card cannot be taken, or does not say of itself what the transports "
     "rely on: they will not open it, or mistake it",
     try_open},
    {"memory", "open",
     "device memory cannot be had as the transports want it: they have no "
     "memory, or cannot tell cards apart by addresses",
     try_memory},
    {"host", "open",
     "host memory cannot be mapped at any address: the transports stage, or "
     "fail",
     try_host},
    {"copy", "memory",
     "the card does not do what the transports submit: nothing will work",
     try_copy},
    {"sizes", "copy",
     "some copies between host and card fail or bring wrong bytes: do not "
     "trust any transfer",
     [](const subject &with) { return try_sizes(with, false); }},
    {"on card", "copy",
     "copies within a card fail or bring wrong bytes: gaudi to gaudi of one "
     "card does not work",
     [](const subject &with) { return try_sizes(with, true); }},
    {"export", "memory",
     "dma-bufs are not as expected: programs and NICs that get one cannot use "
     "device memory",
     try_export},
    {"import", "export",
     "cards cannot map memory of others: do not use ucx_gaudi_dmabuf_import",
     try_import},
};

} // namespace launcher
