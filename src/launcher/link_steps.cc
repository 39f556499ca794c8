/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps of two cards, of SynapseAI, of ports, and those that load a card or
 * reset it. */
#include "hlthunk_shim/ports/connection.h"
#include "launcher/tried_card.h"
#include "util/addresses.h"
#include "util/file_mapping.h"
#include "util/text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace launcher {

namespace {

namespace fs   = std::filesystem;
namespace shim = gaudi::shim;
using gaudi::util::first_line;
using shim::dma_direction;

/* Of a copy between cards: several packets of the links, no multiple. */
constexpr size_t pair_bytes = (size_t{64} << 10) + 8;

/* Of a short copy. */
constexpr size_t short_bytes = 8;

/* --- pairs -----------------------------------------------------------------*/

/* One end of a route. */
struct route_end : tried_card {
    route_end(const subject &with, const std::string &bus_id)
        : tried_card(with, bus_id), name(bus_id)
    {
        doing("allocating memory on " + name);
        memory = allocate(page());
    }

    std::vector<char> bytes() { return read(memory, pair_bytes); }

    const std::string name;
    uint64_t memory = 0;
};

void try_host_route(route_end &from, route_end &to, unsigned seed)
{
    doing("mapping host memory that two cards share");
    const std::vector<char> text = pattern(pair_bytes, seed);
    const size_t size = gaudi::util::round_up(pair_bytes, shim::dmabuf_page());
    const auto file   = gaudi::util::make_lasting_file("route", size);
    gaudi::util::file_mapping place;
    must_succeed((file && place.map(file.get(), 0, size)) ? 0 : -errno);
    shim::registration written;
    shim::registration read;
    must_succeed(from.device().register_host(place.start(), size, written));
    must_succeed(to.device().register_host(place.start(), size, read));
    from.write(from.memory, text);
    to.write(to.memory, pattern(pair_bytes, seed + 1));
    doing("copying from " + from.name + " to " + to.name +
          " through host memory");
    from.copy(dma_direction::device_to_host, written.address(), from.memory,
              pair_bytes);
    to.copy(dma_direction::host_to_device, to.memory, read.address(),
            pair_bytes);
    require_same(to.bytes().data(), text);
    must_succeed(written.close());
    must_succeed(read.close());
}

std::string try_pair(const subject &with)
{
    must_not_be_by_synapse(with, one_card);
    route_end one(with, with.bus_id);
    route_end other(with, with.peer_bus_id);
    try_host_route(one, other, 1);
    try_host_route(other, one, 4);
    one.close();
    other.close();
    return "through host memory";
}

/* --- SynapseAI, ports ------------------------------------------------------*/

std::string try_synapse(const subject &with)
{
    if (is_by_synapse(with)) {
        return "all steps have gone by it";
    }
    doing("loading SynapseAI");
    const std::string why = shim::driver::why_no_synapse();
    if (!why.empty()) {
        end_step(verdict::absent, why);
    }
    doing("having SynapseAI copy 8 bytes");
    shim::driver_options options = with.found->driver_options;
    options.used                 = shim::engine::synapse;
    const shim::driver driver(with.found->driver_file, options);
    tried_card card(with, with.bus_id, driver);
    doing("allocating memory by SynapseAI");
    return card.exchange(card.allocate(short_bytes));
}

/* Of writes over ports. */
constexpr size_t port_bytes_of_one = 8;
constexpr size_t port_bytes_of_all = size_t{1} << 20;

/* N of /dev/accel/accelN, which verbs devices are called by. */
unsigned number_of(const subject &with, const std::string &bus_id)
{
    return std::ranges::find(with.found->cards, bus_id, &card::bus_id)->number;
}

/* One end of a connection over ports. */
struct port_side : route_end {
    port_side(const subject &with, const std::string &bus_id,
              const shim::verbs_library &verbs)
        : route_end(with, bus_id)
    {
        doing("opening the ports of " + name);
        must_work(shim::port_device::open(driver_of(with).lib(), verbs,
                                          device(), number_of(with, bus_id),
                                          ports));
    }

    static void must_work(const std::string &why)
    {
        must_hold(why.empty(), why);
    }

    std::string make_connection(unsigned peer)
    {
        doing("making queue pairs on " + name);
        return shim::connection::open(*ports, peer, {}, connection);
    }

    std::string accept(const port_side &peer)
    {
        doing("connecting queue pairs on " + name);
        return connection->accept(peer.connection->offer());
    }
    std::string connect(const port_side &peer)
    {
        doing("connecting queue pairs on " + name);
        return connection->connect(peer.connection->offer());
    }

    std::unique_ptr<shim::port_device> ports;
    std::unique_ptr<shim::connection> connection; /* goes first */
};

void write_over_ports(port_side &from, port_side &to, size_t size,
                      unsigned seed)
{
    const std::vector<char> text = pattern(size, seed);
    from.write(from.memory, text);
    to.write(to.memory, pattern(size, seed + 1));
    doing("writing " + std::to_string(size) + " bytes from " + from.name +
          " to " + to.name + " over ports");
    must_succeed(from.connection->post(to.memory, from.memory, size, nullptr));
    shim::dma_completion ended{};
    while (from.connection->poll(&ended, 1) == 0) {
        std::this_thread::yield(); /* the step has a time limit */
    }
    must_succeed(ended.status);
    require_same(to.read(to.memory, size).data(), text);
}

/* @return How many ports were used. */
std::string write_both_ways(port_side &one, port_side &other)
{
    unsigned seed = 1;
    for (const size_t size : {port_bytes_of_one, port_bytes_of_all}) {
        write_over_ports(one, other, size, seed++);
        write_over_ports(other, one, size, seed++);
    }
    return std::to_string(one.connection->usable_ports());
}

std::string try_ports(const subject &with)
{
    must_not_be_by_synapse(with, one_card);
    if (with.peer_bus_id.empty()) {
        end_step(verdict::absent, "there is no second card");
    }
    const std::string &sys = with.found->sys;
    const unsigned number  = number_of(with, with.bus_id);
    if (!sys.empty() && !shim::has_verbs_device(sys, number)) {
        end_step(verdict::absent, "no verbs device of a card in sysfs");
    }
    doing("loading libhbl");
    const shim::verbs_library verbs(driver_of(with).lib());
    if (verbs.file().empty()) {
        end_step(verdict::absent, verbs.reason());
    }
    if (verbs.reason().empty() &&
        !verbs.has_device(shim::verbs_device(number))) {
        end_step(verdict::absent, "no verbs device of a card");
    }
    port_side one(with, with.bus_id, verbs);
    port_side other(with, with.peer_bus_id, verbs);
    const std::string map = one.ports->place().map.name;
    if (one.ports->place()
            .map.between(one.device().module_id(), other.device().module_id())
            .empty()) {
        end_step(verdict::absent,
                 "no port leads from one to the other (" + map + ")");
    }
    port_side::must_work(one.make_connection(other.device().module_id()));
    port_side::must_work(other.make_connection(one.device().module_id()));
    port_side::must_work(other.accept(one));
    port_side::must_work(one.connect(other));
    const std::string count = write_both_ways(one, other);
    for (port_side *each : {&one, &other}) {
        each->connection.reset();
        each->ports.reset();
        each->close();
    }
    return "8 bytes and 1 MiB both ways by " + count + " ports (" + map + ")";
}

/* --- bandwidth -------------------------------------------------------------*/

constexpr uint64_t piece_bytes = uint64_t{4} << 20;
constexpr unsigned piece_count = 64; /* at a time: what a card takes */

std::string measure(tried_card &card, dma_direction direction, uint64_t dst,
                    uint64_t src)
{
    using clock = std::chrono::steady_clock;
    card.copy(direction, dst, src, piece_bytes); /* a first time */
    const auto start = clock::now();
    card.copy(direction, dst, src, piece_bytes, piece_count);
    const std::chrono::duration<double> time = clock::now() - start;
    return to_decimal(static_cast<double>(piece_bytes * piece_count) /
                      time.count() / 1e9);
}

std::string or_unknown(const fs::path &attribute)
{
    const std::string text = first_line(attribute);
    return text.empty() ? "?" : text;
}

/* The vendor's hl_qual has the same tests (hl_qual -p -b, and -mb), and no
 * public text says what they give on a good machine. */
std::string try_bandwidth(const subject &with)
{
    tried_card card(with, with.bus_id);
    doing("allocating memory for large copies");
    const uint64_t there = card.allocate(2 * piece_bytes);
    const auto &host     = card.pin(piece_bytes);
    doing("copying much to the card");
    std::string detail = "GB/s: " + measure(card, dma_direction::host_to_device,
                                            there, host.address());
    doing("copying much from the card");
    detail += " to the card, " + measure(card, dma_direction::device_to_host,
                                         host.address(), there);
    doing("copying much within the card");
    if (card.knows().streams[2] != 0) {
        detail += " from it, " +
                  measure(card, dma_direction::device_to_device,
                          there + piece_bytes, there) +
                  " within it";
    }
    card.close();
    if (with.found->software) {
        return detail + ": of this computer's cores";
    }
    const fs::path link =
        fs::path(with.found->sys) / "bus/pci/devices" / with.bus_id;
    return detail + "; the transports reckon with " +
           to_decimal(card.knows().link_bandwidth / 1e9) + " each way; link " +
           or_unknown(link / "current_link_speed") + " x" +
           or_unknown(link / "current_link_width") +
           "; hl_qual: no reference found, run it to compare";
}

/* --- reset -----------------------------------------------------------------*/

std::string try_reset(const subject &with)
{
    must_not_be_by_synapse(with, "not by SynapseAI");
    {
        tried_card card(with, with.bus_id);
        doing("allocating memory for a bad copy");
        const uint64_t there = card.allocate(card.page());
        card.exchange(there); /* what it needs is mapped from now on */
        auto &gone             = card.pin(short_bytes);
        const uint64_t nowhere = gone.address();
        gone                   = {};
        doing("copying from an address where nothing is");
        const int ret = card.try_copy(dma_direction::host_to_device, there,
                                      nowhere, short_bytes);
        must_hold(ret != 0, "it has gone well");
        must_hold(card.device().is_lost(),
                  std::string("the card goes on after ") + std::strerror(-ret));
    }
    tried_card card(with, with.bus_id);
    doing("allocating memory after a reset");
    card.exchange(card.allocate(card.page()));
    return "a page fault resets the card, and it works again" + card.wait();
}

} // namespace

const step pair_step = {
    "pair", "copy",
    "these cards do not meet in host memory: gaudi_ipc does not work between "
    "them",
    try_pair};

const std::vector<step> late_steps = {
    {"synapse", "open",
     "cards cannot be used beside a framework: set UCX_GAUDI_ENGINE=cs",
     try_synapse},
    {"ports", "copy",
     "these cards do not write to each other over their ports: set "
     "UCX_GAUDI_IPC_ROUTES=host",
     try_ports},
    {"bandwidth", "copy", "large copies fail where small ones do not",
     try_bandwidth},
};

const step reset_step = {
    "reset", "copy",
    "a reset is not noticed, or the card does not come back: programs hang, or "
    "go on with what is lost",
    try_reset};

} // namespace launcher
