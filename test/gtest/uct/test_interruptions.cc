/* SPDX-License-Identifier: BSD-3-Clause */
/* What befalls either end of a route between two processes while they use it:
 * all that can happen, in the middle of all operations, over each. Nothing
 * hangs, what ends well has the right bytes, what ends badly says why, others
 * are not held up, and nothing is left. In children: routes are read once per
 * process. */
#include "gtest/uct/invalidate.h"
#include "gtest/uct/peers.h"

#include "common/framework.h"
#include "common/process_state.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <signal.h>

namespace gaudi::test {

namespace {

constexpr size_t size = 1 << 20;

/* What the other process has, and what is put there. */
enum seeds : uint64_t { there = 1, here, later };

constexpr char ports_first[] = "ports,host";

std::string routes()
{
    return std::getenv("UCX_GAUDI_IPC_ROUTES");
}

/* Whether copies may be of host memory: beside a framework ports do not reach
 * it. */
bool moves_host_memory()
{
    return !runs_beside_framework() || (routes() != "ports");
}

/* The test process, with a peer that nothing happens to. */
struct scene : beside_a_peer {
    using beside_a_peer::copy;
    using beside_a_peer::copy_md;
    using beside_a_peer::ipc_md;
    using beside_a_peer::peer;
    using beside_a_peer::tl;

    scene()
    {
        /* Echoes are not of interest. */
        EXPECT_EQ(UCS_OK,
                  uct_iface_set_am_handler(
                      tl->iface, ipc_echo_id,
                      [](void *, void *, size_t, unsigned) { return UCS_OK; },
                      nullptr, 0));
        fill_pattern(pattern.data(), size, seeds::here);
        EXPECT_EQ(UCS_OK, copy.put_short(pattern.data(), size, near.remote()));
        use_peer(by_other);
        use_peer(by_same);
    }
    ~scene() override
    {
        uct_ep_destroy(by_other.ep);
        uct_ep_destroy(by_same.ep);
    }

    void TestBody() override {}

    void use_peer(const endpoint &by) const
    {
        const uint64_t at = peer.device.address;
        uint64_t bytes    = 5;
        if (!moves_host_memory()) {
            EXPECT_EQ(UCS_OK, by.put_short(word.address, sizeof(bytes), at));
            EXPECT_EQ(UCS_OK, by.get_short(word.address, sizeof(bytes), at));
            return;
        }
        EXPECT_EQ(UCS_OK, by.put_short(&bytes, sizeof(bytes), at));
        bytes = 0;
        EXPECT_EQ(UCS_OK, by.get_short(&bytes, sizeof(bytes), at));
        EXPECT_EQ(5u, bytes);
    }

    std::vector<char> pattern = std::vector<char>(size);
    device_buffer near{copy_md, size};
    const device_buffer word{copy_md, sizeof(uint64_t)};
    transport second{ipc_md};
    const unpacked_key key_of_peer{peer.device.key};
    /* Through an interface that nothing else goes through, or does. */
    const endpoint by_other{second.make_ep(peer.address), key_of_peer.rkey()};
    const endpoint by_same{tl->make_ep(peer.address), key_of_peer.rkey()};
};

/* With another peer. */
struct encounter {
    explicit encounter(scene &of) : s(of)
    {
        other.fill(seeds::there);
        other.connect(s.tl->address());
    }
    ~encounter() { uct_ep_destroy(to.ep); }
    encounter(const encounter &)            = delete;
    encounter &operator=(const encounter &) = delete;

    [[nodiscard]] uint64_t at() const { return other.device.address; }
    [[nodiscard]] unsigned card() { return other.card(); }

    scene &s;
    ipc_peer other;
    const unpacked_key key{other.device.key};
    const endpoint to{s.tl->make_ep(other.address), key.rkey()};
};

/* One that was started, and what it brings. */
struct started : counted_completion {
    std::vector<char> got;
    bool is_under_way   = false;
    ucs_status_t result = UCS_OK;
};

enum class moves : uint8_t { message, put, get };

struct operation {
    const char *name;
    moves what;
    bool here_device;
    size_t bytes; /* 0: as bcopy can */
    ucs_status_t (*start)(encounter &e, void *local, size_t length,
                          started &op);
    bool stands_for_all = false; /* where all would take too long */
};

ucs_status_t status_of(ssize_t result)
{
    return (result < 0) ? static_cast<ucs_status_t>(result) : UCS_OK;
}

const operation operations[] = {
    {"message", moves::message, false, 0,
     [](encounter &e, void *local, size_t length, started &) {
         packed_bytes bytes{local, length};
         return status_of(uct_ep_am_bcopy(e.to.ep, ipc_echo_id,
                                          packed_bytes::pack, &bytes, 0));
     }},
    {"put_short", moves::put, false, size,
     [](encounter &e, void *local, size_t length, started &) {
         return e.to.put_short(local, length, e.at());
     }},
    {"put_short from a card", moves::put, true, size,
     [](encounter &e, void *local, size_t length, started &) {
         return e.to.put_short(local, length, e.at());
     }},
    {"put_bcopy", moves::put, false, 0,
     [](encounter &e, void *local, size_t length, started &) {
         return status_of(e.to.put_bcopy(local, length, e.at()));
     }},
    {"put_zcopy", moves::put, false, size,
     [](encounter &e, void *local, size_t length, started &op) {
         return e.to.put_zcopy(local, length, e.at(), &op);
     }},
    {"put_zcopy from a card", moves::put, true, size,
     [](encounter &e, void *local, size_t length, started &op) {
         return e.to.put_zcopy(local, length, e.at(), &op);
     },
     true},
    {"short put_zcopy from a card", moves::put, true, 8,
     [](encounter &e, void *local, size_t length, started &op) {
         return e.to.put_zcopy(local, length, e.at(), &op);
     }},
    {"get_short", moves::get, false, size,
     [](encounter &e, void *local, size_t length, started &) {
         return e.to.get_short(local, length, e.at());
     }},
    {"get_bcopy", moves::get, false, 0,
     [](encounter &e, void *local, size_t length, started &op) {
         return uct_ep_get_bcopy(e.to.ep, unpack_by_memcpy(), local, length,
                                 e.at(), e.to.rkey, &op);
     }},
    {"get_zcopy", moves::get, false, size,
     [](encounter &e, void *local, size_t length, started &op) {
         return e.to.get_zcopy(local, length, e.at(), &op);
     }},
    {"get_zcopy to a card", moves::get, true, size,
     [](encounter &e, void *local, size_t length, started &op) {
         return e.to.get_zcopy(local, length, e.at(), &op);
     },
     true},
    {"short get_zcopy to a card", moves::get, true, 8,
     [](encounter &e, void *local, size_t length, started &op) {
         return e.to.get_zcopy(local, length, e.at(), &op);
     }},
};

/* What was put is, when it has happened, */
enum class memory : uint8_t {
    unknown,
    as_put,
    as_later /* what the other process wrote then, and is nobody else's */
};

struct event {
    const char *name;
    void (*happens)(encounter &e);
    /* What is under way ends so, or well; later puts and gets do, */
    std::vector<ucs_status_t> ends;
    ucs_status_t of_messages;
    memory leaves;
    bool ends_the_scene = false; /* this process has no card any more */
    std::vector<ucs_status_t> over_ports{}; /* if not as over host memory */
    /* Of what is under way alone, over ports, which is all that it befalls. */
    std::vector<ucs_status_t> of_ports{};
    bool befalls_all  = false; /* whatever uses the own card's ports */
    bool leaves_ports = false; /* to which writes may be under way */

    [[nodiscard]] bool ends_well() const
    {
        const auto is_ok = [](ucs_status_t each) { return each == UCS_OK; };
        return std::ranges::all_of(ends, is_ok) &&
               std::ranges::all_of(of_ports, is_ok);
    }
};

void break_own_card(const std::string &wish)
{
    EXPECT_EQ(0, emulator::instance().hlthunk_emu_fault(wish.c_str()));
}

const event events[] = {
    {"it_is_killed",
     [](encounter &e) { e.other.process().kill(SIGKILL); },
     {UCS_ERR_ENDPOINT_TIMEOUT},
     UCS_ERR_ENDPOINT_TIMEOUT,
     memory::unknown,
     false,
     {},
     {},
     false,
     true},
    {"it_is_stopped",
     [](encounter &e) {
         e.other.process().stop();
         e.s.use_peer(e.s.by_other);
         e.other.process().kill(SIGCONT);
     },
     {UCS_OK},
     UCS_OK,
     memory::as_put},
    {"it_invalidates_the_key",
     [](encounter &e) {
         e.other.invalidate();
         e.other.fill(seeds::later);
     },
     {UCS_ERR_REJECTED},
     UCS_OK,
     memory::as_later},
    {"it_ends_the_key",
     [](encounter &e) {
         e.other.end_key();
         e.other.fill(seeds::later);
     },
     {UCS_ERR_REJECTED},
     UCS_OK,
     memory::as_later},
    {"it_closes_its_domain",
     [](encounter &e) { (void)e.other.reopen(); },
     {UCS_ERR_ENDPOINT_TIMEOUT, UCS_ERR_REJECTED, UCS_ERR_UNSUPPORTED},
     UCS_ERR_ENDPOINT_TIMEOUT,
     memory::unknown,
     false,
     {},
     {},
     false,
     true},
    {"its_card_is_reset",
     [](encounter &e) { e.other.break_card("now=reset"); },
     {UCS_ERR_NO_DEVICE},
     UCS_OK,
     memory::unknown,
     false,
     {UCS_ERR_IO_ERROR, UCS_ERR_NO_DEVICE}},
    {"its_card_is_removed",
     [](encounter &e) { e.other.break_card("now=remove"); },
     {UCS_ERR_NO_DEVICE},
     UCS_OK,
     memory::unknown,
     false,
     {UCS_ERR_IO_ERROR, UCS_ERR_NO_DEVICE}},
    {"the_own_card_is_reset",
     [](encounter &) { break_own_card("now=reset"); },
     {UCS_ERR_NO_DEVICE},
     UCS_OK,
     memory::as_put,
     true,
     {UCS_ERR_IO_ERROR, UCS_ERR_NO_DEVICE}},
    {"a_port_goes_down",
     [](encounter &e) { break_own_card("port=down@" + wires_to(e.card())[1]); },
     {UCS_OK},
     UCS_OK,
     memory::as_put,
     false,
     {},
     {UCS_OK, UCS_ERR_IO_ERROR}},
    {"a_port_goes_down_and_up",
     [](encounter &e) {
         break_own_card("port=down@" + wires_to(e.card())[1]);
         e.s.use_peer(e.s.by_other);
         break_own_card("port=up");
     },
     {UCS_OK},
     UCS_OK,
     memory::as_put,
     false,
     {},
     {UCS_OK}},
    {"all_ports_go_down",
     [](encounter &e) {
         for (const std::string &each : wires_to(e.card())) {
             break_own_card("port=down@" + each);
         }
     },
     {UCS_OK},
     UCS_OK,
     memory::as_put,
     false,
     {UCS_ERR_IO_ERROR},
     {UCS_OK, UCS_ERR_IO_ERROR}},
    {"entries_of_ports_fail",
     [](encounter &e) {
         e.other.break_card("wqe#1=abort");
         break_own_card("wqe#1=abort@0");
     },
     {UCS_OK},
     UCS_OK,
     memory::as_put,
     false,
     {},
     {UCS_OK, UCS_ERR_IO_ERROR},
     true},
};

bool is_over_host()
{
    return routes() == "host";
}

/* Operations, a few of them at a time. */
class stream {
public:
    stream(encounter &e, const operation &of)
        : e_(e), of_(of),
          length_((of.bytes > 0) ? of.bytes : e.s.tl->attr.cap.am.max_bcopy)
    {}

    /* Start one if there is room, and take what has ended. */
    void go_on(bool starts)
    {
        if (starts && (under_way() < most)) {
            start();
        }
        e_.s.tl->progress();
        for (auto &each : all_) {
            if (each->is_under_way && (each->calls > 0)) {
                end(*each, each->status);
            }
        }
    }

    [[nodiscard]] bool finish()
    {
        return eventually([this] {
            go_on(false);
            const ucs_status_t flushed = uct_ep_flush(e_.to.ep, 0, nullptr);
            return (under_way() == 0) && (flushed != UCS_INPROGRESS) &&
                   (flushed != UCS_ERR_NO_RESOURCE);
        });
    }

    [[nodiscard]] bool each_is_told_once() const
    {
        return std::ranges::all_of(
            all_, [](const auto &each) { return each->calls <= 1; });
    }

    [[nodiscard]] size_t length() const { return length_; }

    std::atomic<unsigned> begun{0};
    unsigned ended    = 0;
    ucs_status_t last = UCS_OK; /* what the last one that ended came to */
    std::vector<ucs_status_t> failures;

private:
    /* At a time. All are for the same memory, which ThreadSanitizer would take
     * for a race. */
#ifdef __SANITIZE_THREAD__
    static constexpr size_t most = 1;
#else
    static constexpr size_t most = 3;
#endif

    [[nodiscard]] size_t under_way() const
    {
        return static_cast<size_t>(std::ranges::count_if(
            all_, [](const auto &each) { return each->is_under_way; }));
    }

    void start()
    {
        auto next   = std::make_unique<started>();
        void *local = e_.s.pattern.data();
        if (of_.here_device) {
            local = e_.s.near.address;
        } else if (of_.what == moves::get) {
            next->got.resize(length_);
            local = next->got.data();
        }
        const ucs_status_t status = of_.start(e_, local, length_, *next);
        if (status == UCS_ERR_NO_RESOURCE) {
            return;
        }
        started &op     = *all_.emplace_back(std::move(next));
        op.is_under_way = true;
        ++begun;
        if (status != UCS_INPROGRESS) {
            EXPECT_EQ(0u, op.calls);
            end(op, status);
        }
    }

    void end(started &op, ucs_status_t status)
    {
        op.is_under_way = false;
        last            = status;
        ++ended;
        if (status != UCS_OK) {
            failures.push_back(status);
        } else if (!op.got.empty()) {
            EXPECT_TRUE(has_pattern(op.got.data(), length_, seeds::there));
        }
        op.got = {};
    }

    encounter &e_;
    const operation &of_;
    const size_t length_;
    std::deque<std::unique_ptr<started>> all_;
};

/* What later operations come to. */
std::vector<ucs_status_t> ends_of(const event &what, const operation &of)
{
    if (of.what == moves::message) {
        return {what.of_messages};
    }
    auto ends = what.ends;
    if ((routes() == "ports") && !what.over_ports.empty()) {
        return what.over_ports;
    }
    if (!what.of_ports.empty() && (of.bytes == 0)) {
        return what.of_ports; /* its endpoint may have failed */
    }
    /* The other process's card copies, and there is no other card. */
    if (what.ends_the_scene && is_over_host() && !of.here_device) {
        ends = {UCS_OK};
    }
    return ends;
}

/* Have the peer's card answer over ports, whose memory stays as it is. */
void await_ports(encounter &e)
{
    const device_buffer got(e.s.copy_md, 8);
    EXPECT_TRUE(eventually([&] {
        const uint64_t before = e.other.moved_bytes();
        return (e.to.get_short(got.address, 8, e.at()) == UCS_OK) &&
               (e.other.moved_bytes() == before);
    }));
}

/* @param begun  So many operations before; 0: while the first one connects. */
void interrupt(scene &s, const event &what, const operation &of, unsigned begun)
{
    using ::testing::AnyOfArray;
    using ::testing::Each;
    auto ends = ends_of(what, of);
    encounter e(s);
    stream all(e, of);
    if ((routes() == ports_first) && (begun > 0)) {
        await_ports(e);
    }
    std::atomic<bool> happened{false};
    std::thread fate([&] {
        while (all.begun < begun) {
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
        what.happens(e);
        happened = true;
    });
    EXPECT_TRUE(eventually([&] {
        all.go_on(true);
        if (!what.ends_the_scene && !what.befalls_all) {
            s.use_peer(s.by_same);
        }
        return happened.load();
    }));
    fate.join();
    EXPECT_TRUE(all.finish());
    const unsigned before = all.ended;
    EXPECT_TRUE(eventually([&] {
        all.go_on(true);
        /* See first_copies: its card was lost amid a mapping. */
        if (runs_beside_framework() && e.other.process().is_killed()) {
            ends.push_back(UCS_ERR_ENDPOINT_TIMEOUT);
        }
        return (all.ended > before) &&
               (std::ranges::find(ends, all.last) != ends.end());
    })) << ucs_status_string(all.last);
    EXPECT_TRUE(all.finish());
    EXPECT_TRUE(all.each_is_told_once());
    ends.insert(ends.end(), what.of_ports.begin(), what.of_ports.end());
    EXPECT_THAT(all.failures, Each(AnyOfArray(ends)));
    if (of.what == moves::put) {
        EXPECT_TRUE((what.leaves == memory::unknown) ||
                    ((what.leaves == memory::as_put)
                         ? !all.failures.empty() ||
                               e.other.has(true, all.length(), seeds::here)
                         : e.other.has(true, size, seeds::later)));
    }
    if ((of.what == moves::get) && of.here_device && all.failures.empty()) {
        EXPECT_TRUE(s.copy.holds(s.near.remote(), all.length(), seeds::there));
    }
    if (what.ends_the_scene) { /* if nobody has found out yet */
        EXPECT_EQ(UCS_ERR_NO_DEVICE,
                  s.copy.put_short(s.pattern.data(), 1, s.near.remote()));
        /* Who has is about to tell. */
        EXPECT_TRUE(eventually([] {
            const auto logs = take_logs();
            return std::ranges::any_of(logs, [](const std::string &line) {
                return line.find("was reset") != line.npos;
            });
        }));
    }
    break_own_card(""); /* no more */
    break_own_card("port=up");
    (void)take_logs();
}

/* The route, what happens, and after how many operations. */
struct interruption {
    std::string route;
    const event *what;
    unsigned begun;

    [[nodiscard]] std::string name() const
    {
        return std::string((route == ports_first) ? "ports_or_host" : route) +
               "_when_" + what->name + ((begun == 0) ? "_at_once" : "");
    }
};

class interruptions : public ::testing::TestWithParam<interruption> {};

constexpr char of_event[] = "GAUDI_EVENT";
constexpr char of_begun[] = "GAUDI_BEGUN";

} // namespace

GAUDI_CHILD(is_interrupted)
{
    const event &what = *std::ranges::find(
        events, std::string(std::getenv(of_event)),
        [](const event &each) { return std::string(each.name); });
    const auto begun = static_cast<unsigned>(std::atoi(std::getenv(of_begun)));
    std::optional<scene> s(std::in_place);
    /* What is of no use any more goes at the next connection. */
    interrupt(*s, events[2], operations[5], 4);
    const unsigned files = count_open_fds();
    const unsigned rings = std::max(1u, count_mappings("gaudi_ipc_copies"));
    for (const operation &of : operations) {
        if (!of.here_device && (of.what != moves::message) &&
            !moves_host_memory()) {
            continue;
        }
        if (what.leaves_ports && !is_over_host() && !of.stands_for_all) {
            continue; /* each waits until no card writes any more: 6 s */
        }
        SCOPED_TRACE(of.name);
        interrupt(*s, what, of, begun);
        if (what.ends_the_scene) {
            s.reset();
            s.emplace();
        }
    }
    if (what.ends_the_scene) {
        return 0;
    }
    EXPECT_TRUE(eventually([&] {
        s->tl->progress();
        return (count_open_fds() <= files) &&
               (count_mappings("gaudi_ipc_copies") <= rings);
    })) << count_open_fds()
        << ", not " << files << "; " << count_mappings("gaudi_ipc_copies")
        << ", not " << rings;
    return 0;
}

TEST_P(interruptions, hang_nobody_up_and_leave_nothing)
{
    const auto &[route, what, begun] = GetParam();
    const child_options options{
        {{"UCX_GAUDI_IPC_ROUTES", route},
         {"HLTHUNK_EMU_PORTS", "y"},
         {"HLTHUNK_EMU_PORT_RETRIES", what->ends_well() ? "254" : "10"},
         {of_event, what->name},
         {of_begun, std::to_string(begun)},
         {peer_habit, "sleeps"}}};
    EXPECT_TRUE(child_passes("is_interrupted", options));
}

/* The other way round: who uses memory of this process is killed while its card
 * has begun to read. */
GAUDI_CHILD(loses_who_uses_its_memory)
{
    scene s;
    for (unsigned round = 0; round < 3; ++round) {
        const device_buffer memory(s.copy_md, ipc_peer_bytes);
        std::vector<char> bytes(ipc_peer_bytes);
        fill_pattern(bytes.data(), bytes.size(), round);
        GAUDI_CHILD_REQUIRE(s.copy.put_short(bytes.data(), bytes.size(),
                                             memory.remote()) == UCS_OK);
        uct_mem_h memh;
        GAUDI_CHILD_REQUIRE(register_memory(s.ipc_md, memory.address,
                                            ipc_peer_bytes, memh) == UCS_OK);
        const unsigned files = count_open_fds();
        {
            ipc_peer user;
            user.connect(s.tl->address());
            user.hold({pack_key(s.ipc_md, memh), memory.remote()});
            user.process().kill(SIGKILL);
            EXPECT_TRUE(eventually([&] { return user.process().is_killed(); }));
        }
        /* What was for it goes, though nothing is called here; but for what
         * the first one has had made. */
        EXPECT_TRUE(eventually([&] {
            return (round == 0) || (count_open_fds() <= files);
        })) << count_open_fds()
            << ", not " << files;
        s.use_peer(s.by_other);
        counted_completion over;
        EXPECT_EQ(UCS_OK, invalidate(s.ipc_md, memh, over));
        EXPECT_TRUE(eventually([&] {
            s.tl->progress();
            return over.calls == 1;
        }));
        EXPECT_TRUE(s.copy.holds(memory.remote(), bytes.size(), round));
    }
    (void)take_logs();
    return 0;
}

class killed_users : public ::testing::TestWithParam<const char *> {};

TEST_P(killed_users, leave_the_memory_to_its_owner)
{
    EXPECT_TRUE(child_passes("loses_who_uses_its_memory",
                             {{{"UCX_GAUDI_IPC_ROUTES", GetParam()},
                               {"HLTHUNK_EMU_PORTS", "y"},
                               {peer_habit, "sleeps"}},
                              -1}));
}

/* For how long nothing ended of what a card may still write over ports. */
void expect_drain(std::chrono::steady_clock::time_point since)
{
    EXPECT_GE(std::chrono::steady_clock::now() - since,
              std::chrono::seconds(6));
}

/* A peer's card may have writes under way both for what the peer has put, and
 * for what was got from it. */
GAUDI_CHILD(loses_who_writes_over_ports)
{
    scene s;
    const device_buffer memory(s.copy_md, ipc_peer_bytes);
    uct_mem_h memh;
    GAUDI_CHILD_REQUIRE(register_memory(s.ipc_md, memory.address,
                                        ipc_peer_bytes, memh) == UCS_OK);
    ipc_peer user;
    const ipc_peer::memory here{pack_key(s.ipc_md, memh), memory.remote()};
    user.connect(s.tl->address());
    user.hold(here);
    user.let_go();              /* that has connected */
    break_own_card("wqe=lose"); /* so that it is killed under way */
    user.hold(here);
    auto killed = std::chrono::steady_clock::now();
    user.process().kill(SIGKILL);
    EXPECT_TRUE(eventually([&] { return user.process().is_killed(); }));
    counted_completion over;
    EXPECT_EQ(UCS_OK, invalidate(s.ipc_md, memh, over));
    EXPECT_TRUE(s.tl->progress_until([&] { return over.calls == 1; }));
    EXPECT_EQ(UCS_OK, over.status);
    expect_drain(killed);
    break_own_card("");

    encounter with(s);
    started got;
    with.to.put_short(s.near.address, 1, with.at());
    with.other.process().stop(); /* so that it does not get to it */
    EXPECT_EQ(UCS_INPROGRESS,
              with.to.get_zcopy(s.near.address, size, with.at(), &got));
    killed = std::chrono::steady_clock::now();
    with.other.process().kill(SIGKILL);
    EXPECT_TRUE(eventually([&] { return with.other.process().is_killed(); }));
    EXPECT_TRUE(s.tl->progress_until([&] { return got.calls == 1; }));
    EXPECT_TRUE(UCS_STATUS_IS_ERR(got.status));
    expect_drain(killed);
    (void)take_logs();
    return 0;
}

TEST(killed_port_users, may_have_writes_under_way_over_ports)
{
    EXPECT_TRUE(child_passes("loses_who_writes_over_ports",
                             {{{"UCX_GAUDI_IPC_ROUTES", "ports"},
                               {"HLTHUNK_EMU_PORTS", "y"},
                               {"UCX_GAUDI_IPC_TIMEOUT", "3s"},
                               {peer_habit, "sleeps"}},
                              -1}));
}

/* The last puts wait for room behind the first ones: a connection takes 512. */
GAUDI_CHILD(loses_who_it_writes_to_over_ports)
{
    scene s;
    encounter with(s);
    std::vector<started> puts(600);
    with.to.put_short(s.near.address, 1, with.at());
    with.other.process().stop();
    for (started &each : puts) {
        EXPECT_EQ(UCS_INPROGRESS,
                  with.to.put_zcopy(s.near.address, 8, with.at(), &each));
    }
    with.other.process().kill(SIGKILL);
    for (const started &each : puts) {
        EXPECT_TRUE(s.tl->progress_until([&] { return each.calls == 1; }));
        EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, each.status);
    }
    (void)take_logs();
    return 0;
}

TEST(killed_port_targets, fail_what_waits_for_room_like_what_is_under_way)
{
    EXPECT_TRUE(child_passes("loses_who_it_writes_to_over_ports",
                             {{{"UCX_GAUDI_IPC_ROUTES", "ports"},
                               {"HLTHUNK_EMU_PORTS", "y"},
                               {peer_habit, "sleeps"}},
                              -1}));
}

INSTANTIATE_TEST_SUITE_P(over, killed_users, ::testing::Values("ports", "host"),
                         [](const auto &route) {
                             return std::string(route.param);
                         });

/* SynapseAI ends a process if the driver refuses a mapping: that of the memory
 * by which it was to copy for the first time. */
GAUDI_CHILD(meets_a_process_that_synapse_ends)
{
    scene s;
    encounter e(s);
    e.other.break_card("map=ENODEV");
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT,
              e.to.put_short(s.pattern.data(), size, e.at()));
    EXPECT_TRUE(e.other.process().is_killed());
    s.use_peer(s.by_other);
    (void)take_logs();
    return 0;
}

TEST(first_copies, of_a_process_that_synapse_ends_fail_as_it_ends)
{
    EXPECT_TRUE(child_passes("meets_a_process_that_synapse_ends",
                             {{{"UCX_GAUDI_IPC_ROUTES", "host"},
                               {"GAUDI_TEST_FRAMEWORK", "y"},
                               {peer_habit, "sleeps"}},
                              -1}));
}

std::vector<interruption> all_interruptions()
{
    std::vector<interruption> all;
    for (const event &each : events) {
        /* A registration that ends waits for no card of another process: that
         * is what an invalidation does. */
        const bool over_ports = (std::string(each.name) != "it_ends_the_key");
        for (const unsigned begun : {0u, 4u}) {
            const bool is_of_ports = !each.of_ports.empty();
            all.push_back({is_of_ports ? ports_first : "host", &each, begun});
            /* Not for five seconds again where one has failed. */
            if (is_of_ports ? each.ends_well() || !each.over_ports.empty()
                            : over_ports) {
                all.push_back({"ports", &each, begun});
            }
        }
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(over, interruptions,
                         ::testing::ValuesIn(all_interruptions()),
                         [](const auto &tested) {
                             return tested.param.name();
                         });

} // namespace gaudi::test
