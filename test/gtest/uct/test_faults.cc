/* SPDX-License-Identifier: BSD-3-Clause */
/* All that goes wrong, under every operation: fault_rules.h has what is
 * expected. Each fault and each event has a process of its own. */
#include "common/needs.h"
#include "gtest/uct/fault_rules.h"
#include "gtest/uct/invalidate.h"
#include "gtest/uct/peers.h"

#include "common/process_state.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include <signal.h>

namespace gaudi::test {

namespace {

using std::string;

constexpr size_t size         = 1 << 20;
constexpr uint8_t own_message = 6;
/* In the peer's memory; puts go to its begin. */
constexpr size_t gets_from = 2 << 20;

/* Patterns. */
enum seeds : uint64_t { sent = 1, of_other, there, blank, later };

string routes()
{
    return std::getenv("UCX_GAUDI_IPC_ROUTES");
}

void wish(const string &what)
{
    EXPECT_EQ(0, emulator::instance().hlthunk_emu_fault(what.c_str()));
}

/* --- what they happen to -------------------------------------------------- */

struct card_memory {
    card_memory(uct_md_h md, unsigned card, size_t bytes)
        : status(allocate_memory(md, bytes, memory, 0, window_of_card(card)))
    {}
    ~card_memory() { (void)free(); }
    card_memory(const card_memory &)            = delete;
    card_memory &operator=(const card_memory &) = delete;

    ucs_status_t free()
    {
        const ucs_status_t had = std::exchange(status, UCS_ERR_NO_MEMORY);
        return (had == UCS_OK) ? uct_mem_free(&memory) : UCS_OK;
    }

    uct_allocated_memory_t memory{};
    ucs_status_t status;
};

/* Another process. */
struct neighbour {
    explicit neighbour(transport &by, const child_options &options = {})
        : process(options),
          key(process.device.key), to{by.make_ep(process.address), key.rkey()}
    {
        EXPECT_EQ(UCS_OK, key.status());
        process.connect(by.address());
    }
    ~neighbour() { uct_ep_destroy(to.ep); }
    neighbour(const neighbour &)            = delete;
    neighbour &operator=(const neighbour &) = delete;

    ipc_peer process;
    const unpacked_key key;
    const endpoint to;
};

/* One or two cards with memory. */
struct scene {
    uct_md_h md     = nullptr;
    uct_md_h ipc_md = nullptr;
    std::unique_ptr<transport> copy;
    std::unique_ptr<transport> ipc;
    std::unique_ptr<card_memory> near; /* of gaudi0: to send, and to receive */
    std::unique_ptr<card_memory> other;
    std::unique_ptr<neighbour> peer;
    std::vector<char> host = std::vector<char>(2 * size);
    unsigned messages      = 0;
    const size_t two_pages = 2 * device_page();

    explicit scene(unsigned cards)
    {
        EXPECT_EQ(UCS_OK, open_md(md));
        EXPECT_EQ(UCS_OK, open_md(ipc_md, {}, "gaudi_ipc"));
        copy = std::make_unique<transport>(md);
        ipc  = std::make_unique<transport>(ipc_md);
        near = std::make_unique<card_memory>(md, 0, 2 * size);
        if (cards > 1) {
            other = std::make_unique<card_memory>(md, 1, size);
        }
        for (const uint8_t id : {own_message, ipc_echo_id}) {
            const auto count = [](void *arg, void *, size_t, unsigned) {
                ++static_cast<scene *>(arg)->messages;
                return UCS_OK;
            };
            EXPECT_EQ(UCS_OK,
                      uct_iface_set_am_handler(ipc->iface, id, count, this, 0));
        }
    }
    ~scene() { close(); }
    scene(const scene &)            = delete;
    scene &operator=(const scene &) = delete;

    void close()
    {
        peer.reset();
        ipc.reset();
        copy.reset();
        near.reset();
        other.reset();
        if (md != nullptr) {
            uct_md_close(std::exchange(ipc_md, nullptr));
            drop_idle_registrations(md);
            uct_md_close(std::exchange(md, nullptr));
        }
    }

    /* Of this process. */
    [[nodiscard]] char *at(place where)
    {
        if ((where == place::host) || (where == place::host_got)) {
            return host.data() + ((where == place::host_got) ? size : 0);
        }
        const card_memory &memory = (where == place::other) ? *other : *near;
        return static_cast<char *>(memory.memory.address) +
               ((where == place::card_got) ? size : 0);
    }
    [[nodiscard]] uint64_t remote(place where)
    {
        return reinterpret_cast<uintptr_t>(at(where));
    }

    void fill()
    {
        const std::pair<place, seeds> all[] = {{place::card, sent},
                                               {place::card_got, blank},
                                               {place::other, of_other}};
        for (const auto &[where, seed] : all) {
            if ((where != place::other) || (other != nullptr)) {
                fill_pattern(host.data(), size, seed);
                EXPECT_EQ(UCS_OK,
                          copy->put_short(host.data(), size, remote(where)));
            }
        }
        fill_pattern(host.data(), size, sent);
        fill_pattern(host.data() + size, size, blank);
        if (peer != nullptr) {
            peer->process.fill(there);
        }
    }

    bool have_moved(const operation &of)
    {
        const size_t bytes  = of.bytes();
        const bool is_get   = (of.from == place::peer);
        const uint64_t seed = is_get                      ? there
                              : (of.from == place::other) ? of_other
                                                          : sent;
        if (of.to == place::peer) {
            return peer->process.has(true, bytes, seed);
        }
        std::vector<char> seen(at(of.to), at(of.to));
        if (of.to == place::host_got) {
            seen.assign(at(of.to), at(of.to) + bytes);
        } else {
            seen.resize(bytes);
            transport(md).read_device(seen.data(), remote(of.to), bytes);
        }
        return has_pattern(seen.data(), bytes, seed, is_get ? gets_from : 0);
    }

    /* Whether bytes get to a card and back. */
    bool works(place where)
    {
        uint64_t bytes = 7;
        EXPECT_EQ(UCS_OK,
                  copy->put_short(&bytes, sizeof(bytes), remote(where)));
        bytes = 0;
        EXPECT_EQ(UCS_OK,
                  copy->get_short(&bytes, sizeof(bytes), remote(where)));
        return bytes == 7;
    }

    bool reaches(const std::function<bool()> &condition)
    {
        return eventually([&] {
            if (copy != nullptr) {
                copy->progress();
            }
            ipc->progress();
            return condition();
        });
    }
};

bool is_flushed(uct_iface_h iface)
{
    return uct_iface_flush(iface, 0, nullptr) != UCS_INPROGRESS;
}

/* --- operations ----------------------------------------------------------- */

ucs_status_t status_of(ssize_t result)
{
    return (result < 0) ? static_cast<ucs_status_t>(result) : UCS_OK;
}

/* One that moves bytes between this process's memory and others'. */
ucs_status_t start(const operation &of, const endpoint &over, void *local,
                   uint64_t remote, counted_completion *done)
{
    const size_t bytes = of.bytes();
    packed_bytes packed{local, bytes};
    switch (of.what) {
    case verb::put_short:
        return over.put_short(local, bytes, remote);
    case verb::get_short:
        return over.get_short(local, bytes, remote);
    case verb::put_bcopy:
        return status_of(over.put_bcopy(local, bytes, remote));
    case verb::get_bcopy:
        return uct_ep_get_bcopy(over.ep, unpack_by_memcpy(), local, bytes,
                                remote, over.rkey, done);
    case verb::put_zcopy:
    case verb::put_registered:
        return over.put_zcopy(local, bytes, remote, done);
    case verb::get_zcopy:
        return over.get_zcopy(local, bytes, remote, done);
    case verb::message:
        packed.size = 64;
        return status_of(uct_ep_am_bcopy(over.ep, ipc_echo_id,
                                         packed_bytes::pack, &packed, 0));
    case verb::flush: {
        const ucs_status_t status =
            over.put_zcopy(local, bytes, remote, nullptr);
        return UCS_STATUS_IS_ERR(status) ? status
                                         : uct_ep_flush(over.ep, 0, done);
    }
    default:
        return UCS_ERR_NOT_IMPLEMENTED;
    }
}

/* How it ended. */
answers run(scene &s, const operation &of)
{
    transport &by = of.has_peer() ? *s.ipc : *s.copy;
    const endpoint over =
        of.has_peer() ? s.peer->to : static_cast<endpoint>(*s.copy);
    const place there = of.is_get() ? of.from : of.to;
    const uint64_t remote =
        (there != place::peer)
            ? s.remote(there)
            : s.peer->process.device.address + (of.is_get() ? gets_from : 0);
    counted_completion done;
    s.messages = 0;
    std::optional<registration> known;
    if (of.what == verb::put_registered) {
        known.emplace(s.md, s.at(of.from), of.bytes());
    }
    answers seen;
    seen.call            = start(of, over, s.at(of.local()), remote, &done);
    const bool has_begun = (seen.call == UCS_INPROGRESS);
    EXPECT_TRUE(!has_begun || s.reaches([&] { return done.calls > 0; }));
    EXPECT_TRUE(s.reaches([&] { return is_flushed(by.iface); }));
    if ((of.what == verb::message) && (seen.call == UCS_OK)) {
        EXPECT_TRUE(s.reaches([&] { return s.messages > 0; }));
    }
    by.progress();
    EXPECT_EQ(has_begun ? 1u : 0u, done.calls);
    if (has_begun) {
        seen.call       = UCS_OK;
        seen.completion = done.status;
    }
    if (!by.failures.empty()) {
        EXPECT_EQ(1u, by.failures.size());
        seen.endpoint = by.failures[0].second;
    }
    return seen;
}

/* With copies under way, which may fail then. */
void close_amid_copies(scene &s, verb what)
{
    counted_completion done[4];
    unsigned begun = 0;
    for (counted_completion &each : done) {
        begun +=
            (s.copy->put_zcopy(s.host.data(), size, s.remote(place::card_got),
                               &each) == UCS_INPROGRESS);
    }
    if (what == verb::iface_close) {
        s.copy.reset();
    } else {
        uct_ep_destroy(std::exchange(s.copy->ep, s.copy->make_ep()));
        EXPECT_TRUE(s.reaches([&] { return is_flushed(s.copy->iface); }));
    }
    unsigned ended = 0;
    for (const counted_completion &each : done) {
        ended += each.calls;
        EXPECT_LE(each.calls, 1u);
    }
    EXPECT_EQ(begun, ended);
}

ucs_status_t register_and(uct_md_h md, void *address, bool packs)
{
    uct_mem_h memh      = nullptr;
    ucs_status_t status = register_memory(md, address, size, memh);
    if (status == UCS_OK) {
        uct_md_attr_t attr;
        EXPECT_EQ(UCS_OK, uct_md_query(md, &attr));
        std::vector<char> packed(attr.rkey_packed_size);
        status = packs ? uct_md_mkey_pack(md, memh, packed.data()) : UCS_OK;
        EXPECT_EQ(UCS_OK, uct_md_mem_dereg(md, memh));
    }
    return status;
}

answers run_any(scene &s, const operation &of)
{
    switch (of.what) {
    case verb::allocate:
        return {card_memory(s.md, 0, s.two_pages).status};
    case verb::release:
        return {s.near->free()};
    case verb::mem_reg:
        return {register_and(s.md, s.host.data(), false)};
    case verb::mkey_pack:
        return {register_and(s.ipc_md, s.at(place::card), true)};
    case verb::rkey_unpack:
        return {unpacked_key(s.peer->process.device.key).status()};
    case verb::ep_close:
    case verb::iface_close:
        close_amid_copies(s, of.what);
        return {};
    case verb::reopen: {
        uct_md_h md = nullptr;
        s.close();
        const ucs_status_t status = open_md(md);
        if (status == UCS_OK) {
            uct_md_close(md);
        }
        return {status};
    }
    default:
        return run(s, of);
    }
}

/* --- faults of the own card ----------------------------------------------- */

const auto named = [](const char *variable) {
    return [name = string(std::getenv(variable))](const auto &row) {
        return name == row.name;
    };
};

constexpr char of_fault[]     = "GAUDI_FAULT";
constexpr char of_operation[] = "GAUDI_OPERATION";

unsigned own_cards()
{
    return has_one_card() ? 1 : 2;
}

void add_peer(scene &s)
{
    s.peer = std::make_unique<neighbour>(
        *s.ipc,
        child_options{{{"UCX_GAUDI_DEVICES", std::to_string(own_cards())}}});
}

/* Once per process, what is made then. */
void warm_up()
{
    scene s(own_cards());
    add_peer(s);
    s.fill();
    for (const operation &each : operations()) {
        const bool has_other =
            (each.from == place::other) || (each.to == place::other);
        if ((each.what < verb::iface_close) && (!has_other || s.other)) {
            SCOPED_TRACE(each.name);
            const answers seen = run_any(s, each);
            EXPECT_TRUE((seen.call == UCS_OK) && (seen.completion == UCS_OK) &&
                        (seen.endpoint == UCS_OK));
        }
    }
}

void expect_end(const fault &what, const operation &of, const answers &seen)
{
    const answers wanted = expected(what, of);
    EXPECT_STREQ(ucs_status_string(wanted.call), ucs_status_string(seen.call));
    EXPECT_STREQ(ucs_status_string(wanted.completion),
                 ucs_status_string(seen.completion));
    EXPECT_STREQ(ucs_status_string(wanted.endpoint),
                 ucs_status_string(seen.endpoint));
}

/* All but the lost card's. */
void expect_others_to_work(scene &s, bool lost)
{
    s.copy.reset();
    if (!lost || (s.other != nullptr)) { /* else there is no such transport */
        s.copy = std::make_unique<transport>(s.md);
    }
    EXPECT_TRUE((s.other == nullptr) || s.works(place::other));
    s.messages = 0;
    EXPECT_EQ(UCS_OK,
              uct_ep_am_short(s.ipc->ep, own_message, 0, "12345678", 8));
    EXPECT_TRUE(s.reaches([&] { return s.messages > 0; }));
    if (!lost && (s.near->status == UCS_OK)) {
        EXPECT_TRUE(s.works(place::card));
    }
}

/* That a card is lost is told once. */
unsigned count_losses()
{
    unsigned count = 0;
    for (const string &line : take_logs()) {
        count += (line.find(" was reset") != line.npos) ||
                 (line.find(" was removed") != line.npos);
    }
    return count;
}

void meet(const fault &what, const operation &of, unsigned files)
{
    SCOPED_TRACE(of.name);
    scene s(own_cards());
    if (of.has_peer()) {
        add_peer(s);
    }
    s.fill();
    EXPECT_EQ(0u, take_logs().size());

    const bool lost = (what.card != after::works);
    const auto &met = emulator::instance().hlthunk_emu_faults_met;
    wish(what.wish);
    const uint64_t before = met();
    const answers seen    = run_any(s, of);
    EXPECT_TRUE(!what.is_met_by(of) || what.is_at_once() || (met() > before));
    wish("");
    expect_end(what, of, seen);
    if (of.what != verb::reopen) {
        const bool is_good = (seen.call == UCS_OK) &&
                             (seen.completion == UCS_OK) &&
                             (seen.endpoint == UCS_OK);
        EXPECT_TRUE(!is_good || (of.to == place::none) || s.have_moved(of));
        bool is_known = !what.is_at_once();
        if ((s.copy != nullptr) && (s.near->status == UCS_OK)) {
            is_known = true;
            uct_ep_destroy(std::exchange(s.copy->ep, s.copy->make_ep()));
            EXPECT_EQ(
                lost ? UCS_ERR_NO_DEVICE : UCS_OK,
                s.copy->put_short(s.host.data(), 8, s.remote(place::card)));
        }
        expect_others_to_work(s, lost);
        s.close();
        /* Who frees memory need not find out. */
        const unsigned losses = count_losses();
        EXPECT_TRUE((losses == (lost ? 1u : 0u)) || (!is_known && !losses))
            << losses;
    }
    s.close();
    EXPECT_TRUE(eventually([&] { return count_open_fds() <= files; }));
    (void)take_logs();
}

/* Between faults the card is opened anew: it serves again once all have closed
 * it. */
GAUDI_CHILD(meets_a_fault)
{
    const fault &what = *std::ranges::find_if(faults, named(of_fault));
    const string only = std::getenv(of_operation);
    load_module();
    collect_logs();
    if (only.empty()) {
        warm_up();
    }
    const unsigned files = only.empty() ? count_open_fds() : UINT_MAX;
    for (const operation &each : operations()) {
        if (only.empty() ? is_tried(what, each) : (only == each.name)) {
            meet(what, each, files);
            GAUDI_CHILD_REQUIRE_NO_FAILURE();
        }
    }
    return 0;
}

class faults_of_a_card : public ::testing::TestWithParam<const fault *> {};

TEST_P(faults_of_a_card, are_told_once_and_all_else_goes_on)
{
    const fault &what = *GetParam();
    if (!what.is_at_once() && ((what.hits & (copies | accesses)) == no_step)) {
        GAUDI_NEEDS(driver_calls);
    }
    if ((what.card == after::works) && (what.status != UCS_OK)) {
        GAUDI_NEEDS(failing_jobs);
    }
    child_options options{
        {{of_fault, what.name},
         {of_operation, ""},
         {"UCX_PROTO_ENABLE", "y"}, /* for all keys */
         {"HLTHUNK_EMU_DEVICES", "3"},
         {"UCX_GAUDI_DEVICES", (own_cards() == 1) ? "0" : "0,1"}}};
    const bool once =
        (what.card == after::is_gone) ||
        ((what.card == after::comes_back) && runs_beside_framework());
    if (!once) {
        EXPECT_TRUE(child_passes("meets_a_fault", options));
        return;
    }
    for (const operation &each : operations()) {
        if (is_tried(what, each)) {
            options.environment[1].second = each.name;
            EXPECT_TRUE(child_passes("meets_a_fault", options)) << each.name;
        }
    }
}

template <typename Rows>
auto all_of(const Rows &rows)
{
    std::vector<decltype(&*std::begin(rows))> all;
    for (const auto &each : rows) {
        all.push_back(&each);
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(all, faults_of_a_card,
                         ::testing::ValuesIn(all_of(faults)),
                         [](const auto &tested) { return tested.param->name; });

/* --- what befalls the other process, the way, or the own card ------------- */

constexpr char of_event[]    = "GAUDI_EVENT";
constexpr char ports_first[] = "ports,host";

/* Beside a framework ports do not reach host memory. */
bool moves_host_memory()
{
    return !runs_beside_framework() || (routes() != "ports");
}

/* With a process that nothing happens to: it is used through the same
 * interface, and through another one by another thread. */
struct shared_scene : scene {
    shared_scene() : scene(1)
    {
        fill();
        use(by_other);
        use(by_same.to);
    }
    ~shared_scene() { uct_ep_destroy(by_other.ep); }

    void use(const endpoint &by) const
    {
        use(by, by_same.process.device.address);
    }
    void use(const endpoint &by, uint64_t at) const
    {
        char bytes[8]      = "bytes";
        char got[8]        = {};
        const bool is_host = moves_host_memory();
        EXPECT_EQ(UCS_OK, by.put_short(is_host ? bytes : word.address, 8, at));
        EXPECT_EQ(UCS_OK, by.get_short(is_host ? got : word.address, 8, at));
        EXPECT_TRUE(!is_host || (std::memcmp(bytes, got, 8) == 0));
    }

    const device_buffer word{md, 8};
    transport second{ipc_md};
    neighbour by_same{*ipc};
    const endpoint by_other{second.make_ep(by_same.process.address),
                            by_same.key.rkey()};
};

void happen(fate what, shared_scene &s, ipc_peer &to)
{
    const auto ports = [&](size_t from, size_t count) {
        const auto all = wires_to(to.card());
        for (size_t i = from; i < std::min(all.size(), from + count); ++i) {
            wish("port=down@" + all[i]);
        }
    };
    switch (what) {
    case fate::killed:
        to.process().kill(SIGKILL);
        break;
    case fate::exits:
        EXPECT_EQ(0, to.quit().exit_code);
        break;
    case fate::executes:
        to.execute();
        break;
    case fate::stopped:
        to.process().stop();
        s.use(s.by_other);
        to.process().kill(SIGCONT);
        break;
    case fate::invalidates:
        to.invalidate();
        to.fill(later);
        break;
    case fate::ends_key:
        to.end_key();
        to.fill(later);
        break;
    case fate::closes_domain:
        (void)to.reopen();
        break;
    case fate::peer_reset:
        to.break_card("now=reset");
        break;
    case fate::peer_removed:
        to.break_card("now=remove");
        break;
    case fate::own_reset:
        wish("now=reset");
        break;
    case fate::port_down:
        ports(1, 1);
        break;
    case fate::port_down_and_up:
        ports(1, 1);
        s.use(s.by_other);
        wish("port=up");
        break;
    case fate::all_ports_down:
        ports(0, SIZE_MAX / 2);
        break;
    case fate::entries_fail:
        to.break_card("wqe#1=abort");
        wish("wqe#1=abort@0");
        break;
    }
}

/* Operations of one kind, by an endpoint of their own: one at a time. */
struct series {
    const operation *of;
    endpoint to;
    statuses ends; /* as it shall come to */
    std::vector<char> got{};
    std::unique_ptr<counted_completion> under_way{};
    std::vector<std::unique_ptr<counted_completion>> over{};
    std::vector<ucs_status_t> results{};
    statuses failures{};

    void end(ucs_status_t status)
    {
        results.push_back(status);
        over.push_back(std::move(under_way));
        if (status != UCS_OK) {
            failures.push_back(status);
        } else if (of->is_get() && (of->to == place::host_got)) {
            EXPECT_TRUE(has_pattern(got.data(), got.size(), there, gets_from));
        }
    }
};

/* All kinds of operations, side by side. */
class stream {
public:
    stream(shared_scene &s, neighbour &with, const event &what)
        : s_(s), with_(with)
    {
        for (const operation &of : operations()) {
            const bool is_host =
                (of.local() == place::host) || (of.local() == place::host_got);
            if (of.is_of_stream() && (moves_host_memory() || !is_host)) {
                all_.push_back(
                    {&of,
                     {s.ipc->make_ep(with.process.address), with.key.rkey()},
                     ends_of(what, of, routes())});
            }
        }
    }
    ~stream()
    {
        for (const series &each : all_) {
            uct_ep_destroy(each.to.ep);
        }
    }
    stream(const stream &)            = delete;
    stream &operator=(const stream &) = delete;

    /* Start one, and take what has ended. */
    void go_on()
    {
        series &next = all_[turn_++ % all_.size()];
        if ((next.under_way == nullptr) && may_start()) {
            start(next);
        }
        progress();
    }

    /* Until each kind has come to what it shall. */
    [[nodiscard]] bool comes_to_its_end()
    {
        bool all = true;
        for (series &each : all_) {
            const size_t before = each.results.size();
            const bool ends     = eventually([&] {
                if ((each.under_way == nullptr) && may_start()) {
                    start(each);
                }
                progress();
                return (each.results.size() > before) &&
                       (std::ranges::find(each.ends, each.results.back()) !=
                        each.ends.end());
            });
            EXPECT_TRUE(ends) << each.of->name << ": "
                              << (each.results.empty()
                                      ? "none has ended"
                                      : ucs_status_string(each.results.back()));
            all = all && ends && finish();
        }
        return all;
    }

    [[nodiscard]] bool finish()
    {
        return eventually([this] {
            progress();
            return std::ranges::all_of(all_, [](const series &each) {
                const ucs_status_t flushed =
                    uct_ep_flush(each.to.ep, 0, nullptr);
                return (each.under_way == nullptr) &&
                       (flushed != UCS_INPROGRESS) &&
                       (flushed != UCS_ERR_NO_RESOURCE);
            });
        });
    }

    /* As rules have it, once each, and with the right bytes, which a lost card
     * cannot be asked for. */
    void check(const event &what)
    {
        bool has_put = (what.what != fate::own_reset);
        bool has_got = (what.what != fate::own_reset);
        for (const series &each : all_) {
            SCOPED_TRACE(each.of->name);
            statuses may = each.ends;
            may.insert(may.end(), what.of_ports.begin(), what.of_ports.end());
            may.push_back(UCS_OK);
            EXPECT_THAT(each.results,
                        ::testing::Each(::testing::AnyOfArray(may)));
            for (const auto &done : each.over) {
                EXPECT_TRUE((done == nullptr) || (done->calls <= 1));
            }
            has_put = has_put && (!each.of->is_put() || each.failures.empty());
            has_got = has_got && (!each.of->is_get() || each.failures.empty());
        }
        ipc_peer &to = with_.process;
        if (what.leaves == memory::as_later) {
            EXPECT_TRUE(to.has(true, size, later));
        } else if ((what.leaves == memory::as_put) && has_put) {
            EXPECT_TRUE(to.has(true, size, sent));
        }
        if (has_got) {
            EXPECT_TRUE(s_.copy->holds(s_.remote(place::card_got), size, there,
                                       gets_from));
        }
    }

    std::atomic<unsigned> begun{0};

private:
    /* ThreadSanitizer would take two for the same memory for a race. */
    [[nodiscard]] bool may_start() const
    {
#ifdef __SANITIZE_THREAD__
        return std::ranges::none_of(
            all_, [](const series &each) { return each.under_way != nullptr; });
#else
        return true;
#endif
    }

    void start(series &next)
    {
        const operation &of = *next.of;
        void *local         = s_.at(of.local());
        if (of.to == place::host_got) {
            next.got.assign(of.bytes(), 0);
            local = next.got.data();
        }
        next.under_way            = std::make_unique<counted_completion>();
        const ucs_status_t status = gaudi::test::start(
            of, next.to, local,
            with_.process.device.address + (of.is_get() ? gets_from : 0),
            next.under_way.get());
        if (status == UCS_ERR_NO_RESOURCE) {
            next.under_way.reset();
            return;
        }
        ++begun;
        if (status != UCS_INPROGRESS) {
            EXPECT_EQ(0u, next.under_way->calls);
            next.end(status);
        }
    }

    void progress()
    {
        s_.ipc->progress();
        for (series &each : all_) {
            if ((each.under_way != nullptr) && (each.under_way->calls > 0)) {
                each.end(each.under_way->status);
            }
        }
    }

    shared_scene &s_;
    neighbour &with_;
    std::vector<series> all_;
    unsigned turn_ = 0;
};

/* Have the peer's card answer over ports, whose memory stays as it is. */
void await_ports(shared_scene &s, neighbour &with)
{
    EXPECT_TRUE(eventually([&] {
        const uint64_t before = with.process.moved_bytes();
        return (with.to.get_short(s.word.address, 8,
                                  with.process.device.address) == UCS_OK) &&
               (with.process.moved_bytes() == before);
    }));
}

/* @param begun  So many operations before; 0: while the first one connects. */
void interrupt(shared_scene &s, const event &what, unsigned begun)
{
    SCOPED_TRACE(begun);
    neighbour with(*s.ipc);
    with.process.fill(there);
    stream all(s, with, what);
    if ((routes() == ports_first) && (begun > 0)) {
        await_ports(s, with);
    }
    if (runs_beside_framework()) {
        /* SynapseAI kills a process that has memory mapped in the moment of a
         * reset: what the peer needs is mapped before. */
        s.use(with.to, with.process.device.address);
    }
    const bool is_of_all =
        (what.what == fate::own_reset) || (what.what == fate::entries_fail);
    std::atomic<bool> happened{false};
    std::thread fate([&] {
        while (all.begun < begun) {
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
        happen(what.what, s, with.process);
        happened = true;
    });
    EXPECT_TRUE(eventually([&] {
        all.go_on();
        if (!is_of_all) {
            s.use(s.by_same.to);
        }
        return happened.load();
    }));
    fate.join();
    EXPECT_TRUE(all.finish());
    EXPECT_TRUE(all.comes_to_its_end());
    wish("");
    wish("port=up");
    if (what.what == fate::own_reset) { /* if nobody has found out yet */
        EXPECT_EQ(UCS_ERR_NO_DEVICE, s.copy->put_short(s.at(place::host), 1,
                                                       s.remote(place::card)));
        EXPECT_TRUE(eventually([] { return count_losses() > 0; }));
    }
    all.check(what);
    (void)take_logs();
}

/* The route, and what happens. */
using interruption = std::pair<string, const event *>;

GAUDI_CHILD(is_interrupted)
{
    const event &what     = *std::ranges::find_if(events(), named(of_event));
    const bool is_drained = what.leaves_ports() && (routes() == "ports");
    load_module();
    collect_logs();
    std::optional<shared_scene> s(std::in_place);
    /* Files of a dead peer are closed at the next connection. The last round
     * leaves its own, so what it leaves is compared with what one leaves. */
    const auto invalidates =
        std::ranges::find(events(), fate::invalidates, &event::what);
    interrupt(*s, *invalidates, 4);
    const unsigned files = count_open_fds();
    const unsigned rings = std::max(1u, count_mappings("ucx-gaudi-link"));
    for (const unsigned begun : {0, 7, 20}) {
        if (is_drained && (begun < 20)) {
            continue;
        }
        interrupt(*s, what, begun);
        GAUDI_CHILD_REQUIRE_NO_FAILURE();
        if (what.what == fate::own_reset) {
            s.emplace();
        }
    }
    if (what.what != fate::own_reset) {
        EXPECT_TRUE(s->reaches([&] {
            return (count_open_fds() <= files) &&
                   (count_mappings("ucx-gaudi-link") <= rings);
        })) << count_open_fds()
            << ", not " << files;
    }
    return 0;
}

class interruptions : public ::testing::TestWithParam<interruption> {};

TEST_P(interruptions, hang_nobody_up_and_leave_nothing)
{
    const auto &[route, what] = GetParam();
    if (what->what == fate::own_reset) {
        GAUDI_NEEDS(card_to_reset);
    }
    const bool is_survived =
        (what->over_ports.empty() && what->of_ports.size() < 2);
    EXPECT_TRUE(
        child_passes("is_interrupted",
                     {{{"UCX_GAUDI_IPC_ROUTES", route},
                       {"HLTHUNK_EMU_PORTS", "y"},
                       {"HLTHUNK_EMU_PORT_RETRIES", is_survived ? "254" : "10"},
                       {of_event, what->name},
                       {peer_habit, "sleeps"}}}));
}

std::vector<interruption> all_interruptions()
{
    std::vector<interruption> all;
    for (const event &each : events()) {
        if (each.what < fate::port_down) {
            all.emplace_back("host", &each);
        } else {
            all.emplace_back(ports_first, &each);
        }
        /* The end of a registration waits for no card of another process: that
         * is what an invalidation does. Where a connection has failed the next
         * one is five seconds later. */
        if ((each.what != fate::ends_key) && (each.what != fate::port_down) &&
            (each.what != fate::entries_fail)) {
            all.emplace_back("ports", &each);
        }
    }
    return all;
}

string
name_of_interruption(const ::testing::TestParamInfo<interruption> &tested)
{
    const auto &[route, what] = tested.param;
    return ((route == ports_first) ? "ports_or_host" : route) + "_when_" +
           what->name;
}

INSTANTIATE_TEST_SUITE_P(over, interruptions,
                         ::testing::ValuesIn(all_interruptions()),
                         name_of_interruption);

/* --- the other way round -------------------------------------------------- */

child_options between_peers(const char *route, child_environment more = {})
{
    more.insert(more.end(), {{"UCX_GAUDI_IPC_ROUTES", route},
                             {"HLTHUNK_EMU_PORTS", "y"},
                             {peer_habit, "sleeps"}});
    return {more};
}

/* Nothing is over before what a card may still write over ports has ended,
 * which the driver waits for. */
void expect_drained(std::chrono::steady_clock::time_point since)
{
    if (routes() == "ports") {
        EXPECT_GE(std::chrono::steady_clock::now() - since,
                  std::chrono::seconds(6));
    }
}

/* Memory of this process, which others may use. */
struct lent_memory {
    lent_memory(const scene &s, void *address, size_t bytes)
        : registered(s.ipc_md, address, bytes)
    {
        key.key     = pack_key(s.ipc_md, registered.memh);
        key.address = reinterpret_cast<uintptr_t>(address);
    }

    /* Let a process connect for it. */
    void use_by(ipc_peer &user) const
    {
        user.hold(key, size);
        user.let_go();
    }

    registration registered;
    ipc_peer::memory key;
};

class killed_peers : public ::testing::TestWithParam<const char *> {};

INSTANTIATE_TEST_SUITE_P(over, killed_peers, ::testing::Values("ports", "host"),
                         [](const auto &route) { return string(route.param); });

/* While the card here has begun to copy for it. */
TEST_P_IN_CHILD(killed_peers, leave_memory_to_its_owner,
                between_peers(GetParam()))
{
    const checked_log log;
    shared_scene s;
    lent_memory lent(s, s.at(place::card), 2 * size);
    unsigned files = 0;
    auto killed    = std::chrono::steady_clock::now();
    for (unsigned round = 0; round < 3; ++round) {
        neighbour user(*s.ipc);
        lent.use_by(user.process);
        wish((routes() == "ports") ? "wqe=lose" : "");
        user.process.hold(lent.key, size);
        killed = std::chrono::steady_clock::now();
        user.process.process().kill(SIGKILL);
        EXPECT_TRUE(
            eventually([&] { return user.process.process().is_killed(); }));
        wish("");
        /* What was for it goes, though nothing is called here; but for what the
         * first one has had made. */
        EXPECT_TRUE((round == 0) ||
                    eventually([&] { return count_open_fds() <= files; }));
        files = std::max(files, count_open_fds());
        s.use(s.by_other);
    }
    counted_completion over;
    EXPECT_EQ(UCS_OK,
              invalidate(s.ipc_md, std::exchange(lent.registered.memh, nullptr),
                         over));
    EXPECT_TRUE(s.reaches([&] { return over.calls == 1; }));
    EXPECT_EQ(UCS_OK, over.status);
    expect_drained(killed);
    EXPECT_TRUE(s.copy->holds(s.remote(place::card), size, sent));
    (void)take_logs();
}

/* The last ones wait for room behind the first: a connection takes 512. */
TEST_P_IN_CHILD(killed_peers, fail_what_waits_for_room_like_what_is_under_way,
                between_peers(GetParam()))
{
    const checked_log log;
    shared_scene s;
    neighbour with(*s.ipc);
    const uint64_t at = with.process.device.address;
    std::vector<counted_completion> all(600);
    EXPECT_EQ(UCS_OK, with.to.put_short(s.at(place::card), 8, at));
    with.process.process().stop();
    for (counted_completion &each : all) {
        EXPECT_EQ(
            UCS_INPROGRESS,
            (&each == &all[0])
                ? with.to.get_zcopy(s.at(place::card_got), size, at, &each)
                : with.to.put_zcopy(s.at(place::card), 8, at, &each));
    }
    const auto killed = std::chrono::steady_clock::now();
    with.process.process().kill(SIGKILL);
    EXPECT_TRUE(s.reaches([&] { return all[0].calls == 1; }));
    expect_drained(killed); /* of what it gets: the peer's card writes that */
    for (const counted_completion &each : all) {
        EXPECT_TRUE(s.reaches([&] { return each.calls == 1; }));
        EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, each.status);
    }
    (void)take_logs();
}

/* Nothing of one that has ended in order is under way any more: what it used
 * is given out again, which there is no other room for. */
TEST_IN_CHILD(ended_peers, are_not_waited_for, between_peers("ports"))
{
    GAUDI_NEEDS(own_pool);
    const checked_log log;
    shared_scene s;
    const size_t bytes = s.two_pages / 8 * 3;
    card_memory memory(s.md, 0, bytes);
    const lent_memory lent(s, memory.memory.address, bytes);
    ipc_peer user;
    user.connect(s.ipc->address());
    lent.use_by(user);
    EXPECT_EQ(0, user.quit().exit_code);
    const uint64_t blocks = engine_hooks::counters().allocations;
    EXPECT_EQ(UCS_OK, memory.free());
    const card_memory next(s.md, 0, bytes);
    EXPECT_EQ(UCS_OK, next.status);
    EXPECT_EQ(blocks, engine_hooks::counters().allocations);
}

/* Writes of a killed one may still arrive: what is deregistered and freed then
 * is not given out again. */
TEST_IN_CHILD(ended_peers, that_were_killed_write_to_nobody_elses_memory,
              between_peers("ports"))
{
    GAUDI_NEEDS(own_pool);
    const checked_log log;
    shared_scene s;
    const size_t bytes = s.two_pages / 8 * 3;
    card_memory memory(s.md, 0, bytes);
    std::optional<lent_memory> lent(std::in_place, s, memory.memory.address,
                                    bytes);
    neighbour user(*s.ipc);
    lent->use_by(user.process);
    user.process.process().kill(SIGKILL);
    EXPECT_TRUE(eventually([&] { return user.process.process().is_killed(); }));
    lent.reset();
    const uint64_t blocks = engine_hooks::counters().allocations;
    EXPECT_EQ(UCS_OK, memory.free());
    const card_memory next(s.md, 0, bytes);
    EXPECT_EQ(UCS_OK, next.status);
    EXPECT_LT(blocks, engine_hooks::counters().allocations);
    (void)take_logs();
}

/* One that has closed its interface may be idle to others: UCP asks now and
 * then. */
TEST_IN_CHILD(ended_peers, are_found_out_by_who_asks, between_peers("host"))
{
    const checked_log log;
    shared_scene s;
    ipc_peer silent;
    const uct_ep_h ep = s.ipc->make_ep(silent.address);
    EXPECT_EQ(UCS_OK, uct_ep_check(ep, 0, nullptr));
    s.ipc->progress_much();
    EXPECT_EQ(0u, s.ipc->failures.size());
    EXPECT_EQ(0, silent.quit().exit_code);
    EXPECT_EQ(UCS_OK, uct_ep_check(ep, 0, nullptr));
    EXPECT_TRUE(s.reaches([&] { return !s.ipc->failures.empty(); }));
    EXPECT_THAT(s.ipc->failures, ::testing::ElementsAre(
                                     std::pair(ep, UCS_ERR_ENDPOINT_TIMEOUT)));
    uct_ep_destroy(ep);
}

/* Though it is registered still. */
TEST_IN_CHILD(freed_memory, is_kept_while_copies_of_others_use_it,
              between_peers("host"))
{
    const checked_log log;
    shared_scene s;
    card_memory memory(s.md, 0, size);
    const lent_memory lent(s, memory.memory.address, size);
    neighbour user(*s.ipc);
    lent.use_by(user.process);
    const uint64_t before = engine_hooks::counters().jobs;
    engine_hooks::pause(true);
    /* One copy, so that nothing is asked for after the memory is free. */
    user.process.hold(lent.key, 4096);
    EXPECT_TRUE(
        eventually([&] { return engine_hooks::counters().jobs > before; }));
    std::atomic<bool> is_free{false};
    std::thread freeing([&] {
        EXPECT_EQ(UCS_OK, memory.free());
        is_free = true;
    });
    for (unsigned i = 0; i < 1000; ++i) {
        s.ipc->progress();
        std::this_thread::yield();
    }
    EXPECT_FALSE(is_free);
    engine_hooks::pause(false);
    freeing.join();
    user.process.let_go();
}

/* SynapseAI ends a process if the driver refuses a mapping: that of the memory
 * by which it was to copy for the first time. */
TEST_IN_CHILD(first_copies, of_a_process_that_synapse_ends_fail_as_it_ends,
              between_peers("host", {{"GAUDI_TEST_FRAMEWORK", "y"}}))
{
    const checked_log log;
    shared_scene s;
    neighbour with(*s.ipc);
    with.process.break_card("map=ENODEV");
    counted_completion put;
    with.to.start_put(s.at(place::host), size, with.process.device.address,
                      &put);
    EXPECT_TRUE(s.reaches([&] { return put.calls > 0; }));
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, put.status);
    EXPECT_TRUE(eventually([&] { return with.process.process().is_killed(); }));
    s.use(s.by_other);
    (void)take_logs();
}

} // namespace

} // namespace gaudi::test
