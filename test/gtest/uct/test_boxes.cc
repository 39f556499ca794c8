/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages, puts and gets to a process in another box, over external ports. In
 * children: the box and its device are chosen by variables. */
#include "gtest/uct/peers.h"

#include "common/process_state.h"
#include "uct/gaudi/ipc/boxes/box_sender.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

constexpr size_t size = (1 << 20) + 3;

enum seeds : uint64_t { there = 1, here };

const child_options boxes(const child_environment &more = {})
{
    child_options options{
        {{"UCX_GAUDI_IPC_BOXES", "y"},
         {"HLTHUNK_EMU_PORTS", "all"},
         {"HLTHUNK_EMU_PORT_RETRIES", "60"},
         {tested_device, "boxes"},
         {peer_box, std::getenv("HLTHUNK_EMU_NODE") + std::string("-peer")}}};
    options.environment.insert(options.environment.end(), more.begin(),
                               more.end());
    return options;
}

/* A card that a framework has, whose HCL leaves its ports alone. */
const child_environment of_gaudi3 = {{"GAUDI_TEST_FRAMEWORK", "y"},
                                     {"HLTHUNK_EMU_ASIC", "gaudi3"},
                                     {"HLTHUNK_EMU_DRAM_PAGE", "32M"},
                                     {"INIT_HCCL_ON_ACQUIRE", "false"},
                                     {"ENABLE_EXPERIMENTAL_FLAGS", "true"}};

/* A kind of operation on memory here, of the host or of a card. */
struct operation {
    const char *name;
    bool is_put;
    bool here_device;
    size_t longest;
    ucs_status_t (*start)(const endpoint &to, void *local, size_t length,
                          uint64_t remote, uct_completion_t *done);
};

ucs_status_t status_of(ssize_t result)
{
    return (result < 0) ? static_cast<ucs_status_t>(result) : UCS_OK;
}

ucs_status_t put_zcopy(const endpoint &to, void *local, size_t length,
                       uint64_t remote, uct_completion_t *done)
{
    return to.put_zcopy(local, length, remote, done);
}

ucs_status_t get_zcopy(const endpoint &to, void *local, size_t length,
                       uint64_t remote, uct_completion_t *done)
{
    return to.get_zcopy(local, length, remote, done);
}

const operation operations[] = {
    {"put_short", true, false, 2048,
     [](const endpoint &to, void *local, size_t length, uint64_t remote,
        uct_completion_t *) { return to.put_short(local, length, remote); }},
    {"put_bcopy", true, false, 65536,
     [](const endpoint &to, void *local, size_t length, uint64_t remote,
        uct_completion_t *) {
         return status_of(to.put_bcopy(local, length, remote));
     }},
    {"put_zcopy", true, false, size, put_zcopy},
    {"put_zcopy from a card", true, true, size, put_zcopy},
    {"get_bcopy", false, false, 65536,
     [](const endpoint &to, void *local, size_t length, uint64_t remote,
        uct_completion_t *done) {
         return uct_ep_get_bcopy(to.ep, unpack_by_memcpy(), local, length,
                                 remote, to.rkey, done);
     }},
    {"get_zcopy", false, false, size, get_zcopy},
    {"get_zcopy to a card", false, true, size, get_zcopy},
};

struct between_boxes : with_a_peer {
    explicit between_boxes(unsigned card = 0)
        : near(copy_md, size, window_of_card(card))
    {
        peer.fill(seeds::there);
        refill();
    }

    void refill()
    {
        fill_pattern(bytes.data(), size, seeds::here);
        EXPECT_EQ(UCS_OK, copy.put_short(bytes.data(), size, near.remote()));
    }

    /* To its end; UCS_ERR_NO_RESOURCE comes by waiting. */
    ucs_status_t run(const operation &of, size_t length)
    {
        counted_completion done;
        ucs_status_t status = UCS_ERR_NO_RESOURCE;
        const auto start    = [&] {
            status =
                of.start(target(), of.here_device ? near.address : bytes.data(),
                            length, remote(), &done);
            return status != UCS_ERR_NO_RESOURCE;
        };
        EXPECT_TRUE(start() || tl->progress_until(start));
        if (status == UCS_INPROGRESS) {
            EXPECT_TRUE(tl->progress_until([&] { return done.calls > 0; }));
            EXPECT_EQ(1u, done.calls);
            status = done.status;
        }
        return status;
    }

    void expect_moved(const operation &of, size_t length)
    {
        SCOPED_TRACE(std::string(of.name) + " " + std::to_string(length));
        EXPECT_EQ(UCS_OK, run(of, length));
        if (of.is_put) {
            flush();
            EXPECT_TRUE(peer.has(true, length, seeds::here));
            peer.fill(seeds::there);
        } else {
            EXPECT_TRUE(of.here_device
                            ? copy.holds(near.remote(), length, seeds::there)
                            : ::testing::AssertionResult(has_pattern(
                                  bytes.data(), length, seeds::there)));
            refill();
        }
    }

    std::vector<char> bytes = std::vector<char>(size);
    device_buffer near;
};

void break_own_card(const std::string &wish)
{
    EXPECT_EQ(0, emulator::instance().hlthunk_emu_fault(wish.c_str()));
}

} // namespace

TEST_IN_CHILD(boxes, have_puts_and_gets_of_all_kinds, boxes())
{
    between_boxes s;
    for (const operation &of : operations) {
        for (const size_t length :
             {size_t{1}, size_t{2048}, size_t{65536}, size}) {
            if (length <= of.longest) {
                s.expect_moved(of, length);
            }
        }
    }
}

TEST_IN_CHILD(boxes, say_what_they_can, boxes())
{
    const between_boxes s;
    const uint64_t flags = s.tl->attr.cap.flags;
    EXPECT_TRUE((flags & UCT_IFACE_FLAG_PUT_SHORT) &&
                (flags & UCT_IFACE_FLAG_GET_ZCOPY));
    EXPECT_FALSE(flags & UCT_IFACE_FLAG_GET_SHORT);
    EXPECT_NE(0u, s.tl->attr.cap.event_flags);
}

/* A long put is no message: its bytes are written once, from card to card. */
TEST_IN_CHILD(boxes, write_what_is_put_by_ports, boxes())
{
    between_boxes s;
    s.expect_moved(operations[3], size);
    const uint64_t before = written_by_ports();
    s.expect_moved(operations[3], size);
    EXPECT_GE(written_by_ports() - before, size);
    EXPECT_LE(written_by_ports() - before, size + 4096);
}

/* Whichever card of either process has it, by the first operation, too. */
TEST_IN_CHILD(boxes, reach_memory_of_all_cards,
              boxes({{"UCX_GAUDI_DEVICES", "all"},
                     {"HLTHUNK_EMU_DEVICES", "2"},
                     {peer_card, "1"}}))
{
    for (const unsigned card : {0u, 1u}) {
        between_boxes s(card);
        for (const operation &of : operations) {
            s.expect_moved(of, std::min(of.longest, size));
        }
    }
}

TEST_IN_CHILD(boxes, refuse_gets_by_keys_that_have_ended, boxes())
{
    between_boxes s;
    s.expect_moved(operations[6], size);
    s.peer.end_key();
    EXPECT_EQ(UCS_ERR_REJECTED, s.run(operations[6], size));
    (void)take_logs();
}

/* The call that ends a key waits for what is written by it, and nobody else
 * makes progress there. */
TEST_IN_CHILD(boxes, end_a_key_in_the_middle_of_gets, boxes())
{
    between_boxes s;
    s.expect_moved(operations[6], size);
    constexpr size_t count = 8;
    counted_completion done[count];
    s.peer.note_writes();
    for (counted_completion &each : done) {
        s.target().start_get(s.near.address, size, s.remote(), &each);
    }
    std::thread ends([&] { s.peer.end_key_amid_writes(); });
    EXPECT_TRUE(s.tl->progress_until([&] {
        return std::ranges::all_of(
            done, [](const auto &each) { return each.calls == 1; });
    }));
    ends.join();
    (void)take_logs();
}

TEST_IN_CHILD(boxes, refuse_keys_of_others, boxes())
{
    between_boxes s;
    ipc_peer other;
    const unpacked_key key(other.device.key);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              (endpoint{s.ep, key.rkey()}.put_zcopy(
                  s.near.address, 8, other.device.address, nullptr)));
    EXPECT_THAT(take_logs(), ::testing::SizeIs(1));
    s.expect_moved(operations[3], size);
    EXPECT_EQ(UCS_ERR_INVALID_ADDR,
              s.target().put_zcopy(s.near.address, size,
                                   s.remote() + ipc_peer_bytes, nullptr));
    EXPECT_THAT(take_logs(), ::testing::SizeIs(1));
    other.quit();
}

/* Host memory of another box no card has mapped: UCP goes another way. */
TEST_IN_CHILD(boxes, do_not_reach_host_memory, boxes())
{
    const between_boxes s;
    EXPECT_EQ(UCS_ERR_UNREACHABLE, unpacked_key(s.peer.host.key).status());
}

/* --- what befalls them -----------------------------------------------------*/

namespace {

/* Operations of all kinds, a few of them at a time. */
class stream {
public:
    explicit stream(between_boxes &of) : s_(of) {}

    void go_on()
    {
        const operation &of = operations[begun_++ % std::size(operations)];
        auto next           = std::make_unique<counted_completion>();
        if (under_way_.size() < 4) {
            const ucs_status_t status = of.start(
                s_.target(), of.here_device ? s_.near.address : s_.bytes.data(),
                std::min(of.longest, size), s_.remote(), next.get());
            if (status == UCS_INPROGRESS) {
                under_way_.push_back(std::move(next));
            } else if (status != UCS_ERR_NO_RESOURCE) {
                note(status);
            }
        }
        take();
    }

    [[nodiscard]] bool finish()
    {
        return eventually([&] {
            take();
            return under_way_.empty();
        });
    }

    unsigned ended = 0;
    std::vector<ucs_status_t> failures;

private:
    void note(ucs_status_t status)
    {
        ++ended;
        if (status != UCS_OK) {
            failures.push_back(status);
        }
    }
    void take()
    {
        s_.tl->progress();
        while (!under_way_.empty() && (under_way_.front()->calls > 0)) {
            EXPECT_EQ(1u, under_way_.front()->calls);
            note(under_way_.front()->status);
            under_way_.pop_front();
        }
    }

    between_boxes &s_;
    unsigned begun_ = 0;
    std::deque<std::unique_ptr<counted_completion>> under_way_;
};

struct event {
    const char *name;
    void (*happens)(between_boxes &s);
    bool is_for_good; /* whatever comes later fails, too */
};

/* Names of the external ports of the card here. */
std::vector<std::string> ways_out()
{
    const shim::card_ports own = engine_hooks::place();
    std::vector<std::string> all;
    for (const auto &[each, _] :
         own.map.between(own.module_id, shim::port_map::outside)) {
        all.push_back(std::to_string(own.module_id) + "." +
                      std::to_string(each));
    }
    return all;
}

const event events[] = {
    {"it_is_killed",
     [](between_boxes &s) {
         s.peer.process().kill(SIGKILL);
         EXPECT_TRUE(eventually([&] { return s.peer.process().is_killed(); }));
     },
     true},
    {"its_card_is_reset",
     [](between_boxes &s) { s.peer.break_card("now=reset"); }, true},
    {"the_own_card_is_reset",
     [](between_boxes &) { break_own_card("now=reset"); }, true},
    {"a_port_goes_down",
     [](between_boxes &) { break_own_card("port=down@" + ways_out()[1]); },
     false},
    {"all_ports_go_down",
     [](between_boxes &) {
         for (const std::string &each : ways_out()) {
             break_own_card("port=down@" + each);
         }
     },
     true},
    {"an_entry_fails", [](between_boxes &) { break_own_card("wqe#1=abort"); },
     true},
};

class box_events
    : public ::testing::TestWithParam<std::tuple<const event *, bool>> {};

constexpr char of_event[] = "GAUDI_EVENT";

} // namespace

GAUDI_CHILD(meets_an_event_between_boxes)
{
    const event &what = *std::ranges::find(
        events, std::string(std::getenv(of_event)),
        [](const event &each) { return std::string(each.name); });
    {
        between_boxes s;
        stream all(s);
        EXPECT_TRUE(eventually([&] {
            all.go_on();
            return all.ended >= 2 * std::size(operations);
        }));
        EXPECT_THAT(all.failures, ::testing::IsEmpty());
        what.happens(s);
        const unsigned before = all.ended;
        EXPECT_TRUE(eventually([&] {
            all.go_on();
            return what.is_for_good
                       ? !all.failures.empty()
                       : (all.ended >= before + 2 * std::size(operations));
        }));
        EXPECT_TRUE(all.finish());
        for (const ucs_status_t each : all.failures) {
            EXPECT_TRUE((each == UCS_ERR_ENDPOINT_TIMEOUT) ||
                        (each == UCS_ERR_IO_ERROR) ||
                        (each == UCS_ERR_NO_DEVICE))
                << ucs_status_string(each);
        }
        if (what.is_for_good) {
            EXPECT_TRUE(eventually([&] {
                all.go_on();
                return !s.tl->failures.empty();
            }));
        }
        break_own_card("");
        (void)s.copy.put_short(s.bytes.data(), 1, s.near.remote());
        (void)take_logs(); /* of a card that was lost, too */
        if (s.peer.process().is_killed()) {
            _exit(::testing::Test::HasFailure() ? 1 : 0);
        }
        s.peer.fill(seeds::there);
        s.peer.break_card("");
    }
    (void)take_logs();
    return 0;
}

TEST_P(box_events, end_what_goes_between_boxes)
{
    const auto &[what, is_gaudi3] = GetParam();
    child_environment more        = is_gaudi3 ? of_gaudi3 : child_environment();
    more.emplace_back(of_event, what->name);
    EXPECT_TRUE(child_passes("meets_an_event_between_boxes", boxes(more)));
}

INSTANTIATE_TEST_SUITE_P(
    when, box_events,
    ::testing::Combine(::testing::ValuesIn([] {
                           std::vector<const event *> all;
                           for (const event &each : events) {
                               all.push_back(&each);
                           }
                           return all;
                       }()),
                       ::testing::Bool()),
    [](const auto &tested) {
        return std::get<0>(tested.param)->name +
               std::string(std::get<1>(tested.param) ? "_of_gaudi3" : "");
    });

class gaudi3_boxes : public ::testing::TestWithParam<const char *> {};

TEST_P(gaudi3_boxes, pass)
{
    child_environment more = of_gaudi3;
    more.emplace_back(peer_habit, "sleeps");
    EXPECT_TRUE(child_passes(std::string("boxes_") + GetParam(), boxes(more)));
}

INSTANTIATE_TEST_SUITE_P(
    other, gaudi3_boxes,
    ::testing::Values("have_puts_and_gets_of_all_kinds",
                      "write_what_is_put_by_ports",
                      "refuse_gets_by_keys_that_have_ended",
                      "end_a_key_in_the_middle_of_gets", "wake_who_sleeps",
                      "do_not_sleep_over_messages",
                      "deliver_what_came_before_all_ports_go_down",
                      "close_amid_gets_by_the_peers_goodbye",
                      "are_the_parents_after_a_fork"),
    [](const auto &tested) { return std::string(tested.param); });

/* --- messages -------------------------------------------------------------*/

namespace {

/* What gets the peer's echoes. */
struct echo_receiver : transport {
    explicit echo_receiver(between_boxes &of) : transport(of.ipc_md)
    {
        EXPECT_EQ(UCS_OK, uct_iface_set_am_handler(iface, ipc_echo_id, count,
                                                   &delivered, 0));
        of.peer.connect(address());
    }
    static ucs_status_t count(void *arg, void *, size_t, unsigned)
    {
        ++*static_cast<unsigned *>(arg);
        return UCS_OK;
    }
    unsigned delivered = 0;
};

/* Whether who sleeps on it would wake up. */
bool is_awake(const transport &of)
{
    int fd = -1;
    EXPECT_EQ(UCS_OK, uct_iface_event_fd_get(of.iface, &fd));
    pollfd wanted{fd, POLLIN, 0};
    return poll(&wanted, 1, 0) == 1;
}

void send_one(between_boxes &s)
{
    EXPECT_TRUE(s.tl->progress_until([&] {
        return uct_ep_am_short(s.ep, ipc_echo_id, 0, nullptr, 0) == UCS_OK;
    }));
}

/* The first of all connects both. */
void exchange_one(between_boxes &s, echo_receiver &receiver)
{
    send_one(s);
    EXPECT_TRUE(eventually([&] {
        s.tl->progress();
        receiver.progress();
        return receiver.delivered == 1;
    }));
}

} // namespace

TEST_IN_CHILD(boxes, wake_who_sleeps, boxes({{peer_habit, "sleeps"}}))
{
    between_boxes s;
    echo_receiver receiver(s);
    exchange_one(s, receiver);
    for (unsigned i = 2; i < 200; ++i) {
        SCOPED_TRACE(i);
        ASSERT_TRUE(s.tl->progress_until(
            [&] { return is_blocked(s.peer.process().pid()); }));
        if (i % 8 == 0) {
            s.expect_moved(operations[5], 8);
        }
        send_one(s);
        ASSERT_TRUE(
            s.tl->progress_until([&] { return s.tl->arm() == UCS_OK; }));
        ASSERT_TRUE(
            receiver.sleep_until([&] { return receiver.delivered == i; }));
    }
}

/* A program may call nothing more once it has flushed. */
TEST_IN_CHILD(boxes, wake_who_sleeps_before_a_flush_ends,
              boxes({{peer_habit, "sleeps"}}))
{
    between_boxes s;
    echo_receiver receiver(s);
    exchange_one(s, receiver);
    for (unsigned i = 2; i < 40; ++i) {
        SCOPED_TRACE(i);
        ASSERT_TRUE(s.tl->progress_until(
            [&] { return is_blocked(s.peer.process().pid()); }));
        send_one(s);
        if (i % 2 == 0) {
            s.flush();
        } else {
            ASSERT_TRUE(s.tl->progress_until([&] {
                return uct_iface_flush(s.tl->iface, 0, nullptr) == UCS_OK;
            }));
        }
        ASSERT_TRUE(
            receiver.sleep_until([&] { return receiver.delivered == i; }));
    }
}

/* The queue pairs of who asked take nothing before it has the answer. */
TEST_IN_CHILD(boxes, write_nothing_to_who_has_not_connected,
              boxes({{peer_habit, "sleeps"}}))
{
    between_boxes s;
    s.peer.process().stop();
    s.tl->progress_much(); /* it asks */
    s.peer.process().kill(SIGCONT);
    const auto sleeps = [&] { return is_blocked(s.peer.process().pid()); };
    EXPECT_TRUE(eventually([&] {
        const int asleep_for = 100; /* ms; it sleeps on */
        return sleeps() && (usleep(asleep_for * 1000) == 0) && sleeps();
    }));
    s.expect_moved(operations[5], 8);
    EXPECT_THAT(s.tl->failures, ::testing::IsEmpty());
}

TEST_IN_CHILD(boxes, end_links_of_a_card_that_is_found_lost, boxes())
{
    between_boxes s;
    s.expect_moved(operations[3], size);
    break_own_card("now=reset");
    EXPECT_TRUE(eventually([&] {
        return s.copy.put_short(s.bytes.data(), 1, s.near.remote()) ==
               UCS_ERR_NO_DEVICE;
    }));
    EXPECT_TRUE(s.tl->progress_until([&] { return !s.tl->failures.empty(); }));
    break_own_card("");
    (void)take_logs();
}

/* The kernel asks a box that says nothing: it may have lost its power. */
TEST_IN_CHILD(boxes, have_the_kernel_look_after_their_sockets, boxes())
{
    between_boxes s;
    echo_receiver receiver(s);
    exchange_one(s, receiver);
    unsigned count = 0;
    for (int fd = 0; fd < 1000; ++fd) {
        sockaddr_in peer{};
        socklen_t length = sizeof(peer);
        int is_asked     = 0;
        if ((getpeername(fd, reinterpret_cast<sockaddr *>(&peer), &length) ==
             0) &&
            (peer.sin_family == AF_INET)) {
            ++count;
            length = sizeof(is_asked);
            EXPECT_EQ(0, getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &is_asked,
                                    &length));
            EXPECT_EQ(1, is_asked);
        }
    }
    EXPECT_EQ(2u, count) << "one that called, one that was called";
}

TEST_IN_CHILD(boxes, wake_who_sleeps_when_a_peer_is_killed, boxes())
{
    between_boxes s;
    s.expect_moved(operations[0], 8);
    std::thread killer([&, sleeper = gettid()] {
        EXPECT_TRUE(eventually([=] { return is_blocked(sleeper); }));
        s.peer.process().kill(SIGKILL);
    });
    EXPECT_TRUE(s.tl->sleep_until([&] { return !s.tl->failures.empty(); }));
    killer.join();
    (void)take_logs();
    _exit(::testing::Test::HasFailure() ? 1 : 0); /* it was killed */
}

TEST_IN_CHILD(boxes, do_not_sleep_over_messages, boxes())
{
    between_boxes s;
    echo_receiver receiver(s);
    exchange_one(s, receiver);
    for (unsigned i = 2; i < 20; ++i) {
        EXPECT_TRUE(
            receiver.progress_until([&] { return receiver.arm() == UCS_OK; }));
        EXPECT_FALSE(is_awake(receiver));
        send_one(s);
        s.flush();
        s.peer.flush_echoes(i);
        EXPECT_TRUE(eventually([&] { return is_awake(receiver); }));
        EXPECT_EQ(UCS_ERR_BUSY, receiver.arm());
        EXPECT_TRUE(
            receiver.progress_until([&] { return receiver.delivered == i; }));
    }
    (void)take_logs();
}

/* As UCP sleeps beside interfaces that its worker does not progress: with
 * nothing but their event. */
TEST_IN_CHILD(boxes, wake_who_looks_at_events_alone, boxes())
{
    between_boxes s;
    echo_receiver receiver(s);
    exchange_one(s, receiver);
    uct_iface_progress_disable(receiver.iface,
                               UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    for (unsigned i = 2; i < 20; ++i) {
        SCOPED_TRACE(i);
        send_one(s);
        ASSERT_TRUE(
            s.tl->progress_until([&] { return s.tl->arm() == UCS_OK; }));
        while (receiver.delivered != i) {
            if (uct_iface_progress(receiver.iface) == 0) {
                ASSERT_EQ(UCS_OK, receiver.arm());
                ASSERT_TRUE(eventually([&] { return is_awake(receiver); }));
            }
        }
    }
}

/* Another port may have to be polled for one than for what is told later. */
TEST_IN_CHILD(boxes, do_not_sleep_over_answers, boxes())
{
    between_boxes s;
    echo_receiver receiver(s);
    exchange_one(s, receiver);
    EXPECT_TRUE(
        receiver.progress_until([&] { return receiver.arm() == UCS_OK; }));
    const registration memh(s.ipc_md, s.near.address, size);
    const uint64_t answered = written_by_ports() + 3 * 8;
    break_own_card("wqe#3=lose"); /* after the data and the room */
    s.peer.hold({pack_key(s.ipc_md, memh.memh), s.near.remote()}, 8);
    EXPECT_TRUE(receiver.progress_until(
        [&] { return written_by_ports() >= answered; }));
    s.peer.let_go();
    for (int i = 0; i < 100; ++i) {
        receiver.progress_much();
        ASSERT_EQ(UCS_ERR_BUSY, receiver.arm());
    }
    break_own_card("");
    (void)take_logs();
}

/* What a flush of the peer's has promised. */
TEST_IN_CHILD(boxes, deliver_what_came_before_all_ports_go_down,
              boxes({{"UCX_GAUDI_IPC_MAX_POLL", "1"}}))
{
    constexpr unsigned count = 40;
    between_boxes s;
    echo_receiver receiver(s);
    exchange_one(s, receiver);
    for (unsigned i = 1; i < count; ++i) {
        send_one(s);
    }
    s.flush();
    s.peer.flush_echoes(count);
    EXPECT_EQ(1u, receiver.delivered);
    for (const std::string &each : ways_out()) {
        break_own_card("port=down@" + each);
    }
    EXPECT_TRUE(s.tl->progress_until([&] {
        (void)uct_ep_am_short(s.ep, ipc_echo_id, 0, nullptr, 0);
        return !s.tl->failures.empty();
    }));
    EXPECT_TRUE(
        receiver.progress_until([&] { return receiver.delivered == count; }));
    break_own_card("");
    s.peer.break_card("");
    (void)take_logs();
}

/* UCX wants to hear of a failure from its handler first: until then messages
 * are taken, and lost. */
TEST_IN_CHILD(boxes, take_messages_until_a_failure_is_told, boxes())
{
    between_boxes s;
    s.expect_moved(operations[0], 8);
    s.peer.process().kill(SIGKILL);
    EXPECT_TRUE(eventually([&] { return s.peer.process().is_killed(); }));
    EXPECT_EQ(UCS_OK, uct_ep_check(s.ep, 0, nullptr));
    packed_bytes message{s.bytes.data(), 8};
    EXPECT_EQ(
        8, uct_ep_am_bcopy(s.ep, ipc_echo_id, packed_bytes::pack, &message, 0));
    EXPECT_EQ(UCS_OK, uct_ep_am_short(s.ep, ipc_echo_id, 0, nullptr, 0));
    EXPECT_TRUE(s.tl->failures.empty());
    EXPECT_TRUE(s.tl->progress_until([&] { return !s.tl->failures.empty(); }));
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT,
              uct_ep_am_short(s.ep, ipc_echo_id, 0, nullptr, 0));
    EXPECT_TRUE(s.tl->progress_until([&] { return s.tl->arm() == UCS_OK; }));
    EXPECT_FALSE(is_awake(*s.tl));
    (void)take_logs();
    _exit(::testing::Test::HasFailure() ? 1 : 0); /* it was killed */
}

/* A sanitizer sees what they would use. */
TEST_IN_CHILD(boxes, let_keys_be_released_after_all_is_closed, boxes())
{
    std::unique_ptr<unpacked_key> key;
    {
        between_boxes s;
        key = std::make_unique<unpacked_key>(s.peer.device.key);
        s.expect_moved(operations[3], size);
        EXPECT_TRUE(s.tl->progress_until([&] {
            return s.to(*key).put_short("x", 1, s.remote()) == UCS_OK;
        }));
    }
    key.reset();
}

/* What the peer's card writes may arrive until the ports have drained. */
TEST_IN_CHILD(boxes, end_gets_when_nothing_is_written_any_more, boxes())
{
    between_boxes s;
    s.expect_moved(operations[6], size);
    s.peer.process().kill(SIGSTOP);
    counted_completion done;
    s.target().start_get(s.near.address, size, s.remote(), &done);
    s.tl->progress_much();
    s.peer.process().kill(SIGKILL);
    EXPECT_TRUE(s.tl->progress_until([&] { return !s.tl->failures.empty(); }));
    EXPECT_EQ(0u, done.calls);
    EXPECT_TRUE(s.tl->progress_until([&] { return done.calls > 0; }));
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, done.status);
    (void)take_logs();
    _exit(::testing::Test::HasFailure() ? 1 : 0); /* it was killed */
}

/* Which comes long before the time is up. */
TEST_IN_CHILD(boxes, close_amid_gets_by_the_peers_goodbye,
              boxes({{"UCX_GAUDI_IPC_PORT_DRAIN", "3600s"}}))
{
    between_boxes s;
    for (const bool with_interface : {false, true}) {
        counted_completion done;
        s.expect_moved(operations[6], size);
        s.target().start_get(s.near.address, size, s.remote(), &done);
        if (with_interface) {
            s.reopen();
        } else {
            uct_ep_destroy(std::exchange(s.ep, nullptr));
            EXPECT_TRUE(s.tl->progress_until([&] { return done.calls > 0; }));
        }
        EXPECT_EQ(1u, done.calls);
        s.ep = s.tl->make_ep(s.peer.address);
    }
    (void)take_logs();
}

/* Its answer has come, and with it the last that is wanted of the peer. */
TEST_IN_CHILD(boxes, hang_up_when_the_last_get_has_ended, boxes())
{
    between_boxes s;
    s.expect_moved(operations[6], size);
    counted_completion done;
    s.target().start_get(s.near.address, 8, s.remote(), &done);
    const unsigned files = count_open_fds();
    uct_ep_destroy(std::exchange(s.ep, nullptr));
    EXPECT_EQ(0u, done.calls);
    EXPECT_TRUE(s.tl->progress_until([&] { return done.calls > 0; }));
    EXPECT_EQ(files - 1, count_open_fds());
    (void)take_logs();
}

TEST_IN_CHILD(boxes, are_the_parents_after_a_fork, boxes())
{
    between_boxes s;
    s.expect_moved(operations[3], size);
    uct_ep_h unused = s.tl->make_ep(s.peer.address);
    EXPECT_TRUE(passes_forked([&] {
        int files[16]; /* by the numbers of what is closed in children */
        for (int &each : files) {
            each = open("/dev/null", O_RDONLY | O_CLOEXEC);
        }
        EXPECT_EQ(UCS_ERR_UNSUPPORTED,
                  s.target().put_zcopy(s.near.address, 8, s.remote(), nullptr));
        EXPECT_EQ(0u, s.tl->progress());
        uct_ep_destroy(unused);
        uct_ep_destroy(std::exchange(s.ep, nullptr));
        s.tl.reset();
        for (const int each : files) {
            EXPECT_EQ(0, close(each));
        }
        (void)take_logs();
    }));
    uct_ep_destroy(unused);
    s.expect_moved(operations[3], size);
}

/* The connection that messages use is not replaced by one of more ports. */
TEST_IN_CHILD(boxes, keep_their_link_when_a_port_comes_up,
              boxes({{"HLTHUNK_EMU_FAULTS", "port=down@0.8"}}))
{
    between_boxes s;
    EXPECT_TRUE(s.tl->progress_until(
        [&] { /* it is there, and not looked at */
              return s.target().put_zcopy(s.near.address, size,
                                          s.remote() + ipc_peer_bytes,
                                          nullptr) == UCS_ERR_INVALID_ADDR;
        }));
    (void)take_logs();
    break_own_card("port=up");
    s.peer.break_card("port=up");
    for (int i = 0; i < 3; ++i) {
        s.expect_moved(operations[3], size);
        s.expect_moved(operations[6], size);
    }
    EXPECT_THAT(s.tl->failures, ::testing::IsEmpty());
    s.peer.break_card("");
}

/* --- who knocks ------------------------------------------------------------*/

namespace {

struct stranger {
    explicit stranger(const ipc::box_address &to)
        : fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))
    {
        sockaddr_in at{};
        at.sin_family      = AF_INET;
        at.sin_addr.s_addr = to.ipv4;
        at.sin_port        = to.port;
        EXPECT_EQ(0, connect(fd.get(), reinterpret_cast<sockaddr *>(&at),
                             sizeof(at)));
    }
    [[nodiscard]] bool is_sent_away() const
    {
        char none;
        return recv(fd.get(), &none, 1, MSG_DONTWAIT) == 0;
    }
    util::unique_fd fd;
};

ipc::box_address address_of(const transport &tl)
{
    ipc::box_address address;
    std::memcpy(&address, tl.address().iface.data(), sizeof(address));
    return address;
}

} // namespace

TEST_IN_CHILD(boxes, send_strangers_away_in_time,
              boxes({{"UCX_GAUDI_IPC_TIMEOUT", "1ms"}}))
{
    between_boxes s;
    const stranger silent(address_of(*s.tl));
    EXPECT_TRUE(s.tl->progress_until([&] { return silent.is_sent_away(); }));
}

/* Whenever it is heard. */
TEST_IN_CHILD(boxes, keep_who_has_shown_the_secret_in_time,
              boxes({{"UCX_GAUDI_IPC_TIMEOUT", "1ms"}}))
{
    between_boxes s;
    const ipc::box_address own = address_of(*s.tl);
    const stranger known(own);
    ipc::box_letter letter;
    letter.secret = own.secret;
    letter.slot   = own.longest * 64 + 64;
    EXPECT_EQ(static_cast<ssize_t>(sizeof(letter)),
              send(known.fd.get(), &letter, sizeof(letter), 0));
    EXPECT_EQ(UCS_ERR_BUSY, s.tl->arm());
    s.peer.fill(seeds::there); /* which takes longer */
    EXPECT_EQ(UCS_ERR_BUSY, s.tl->arm());
    ssize_t got = -1;
    EXPECT_TRUE(s.tl->progress_until([&] {
        got = recv(known.fd.get(), &letter, sizeof(letter), MSG_DONTWAIT);
        return got >= 0;
    }));
    EXPECT_EQ(static_cast<ssize_t>(sizeof(letter)), got);
    EXPECT_EQ(-EINVAL, letter.result) << "no ports were offered";
}

/* However many knock, a call of progress ends. */
TEST_IN_CHILD(boxes, take_few_who_knock_at_a_time, boxes())
{
    const between_boxes s;
    const unsigned files = count_open_fds();
    std::deque<stranger> all;
    for (unsigned i = 0; i < 40; ++i) {
        all.emplace_back(address_of(*s.tl));
    }
    EXPECT_EQ(UCS_ERR_BUSY, s.tl->arm());
    EXPECT_EQ(files + 40 + 16, count_open_fds());
}

TEST_IN_CHILD(boxes, send_the_oldest_strangers_away,
              boxes({{"UCX_GAUDI_IPC_TIMEOUT", "3600s"}}))
{
    between_boxes s;
    s.expect_moved(operations[3], size);
    const unsigned files = count_open_fds();
    std::deque<stranger> all;
    for (unsigned i = 0; i < 100; ++i) {
        all.emplace_back(address_of(*s.tl));
    }
    EXPECT_TRUE(s.tl->progress_until([&] { return all[35].is_sent_away(); }));
    EXPECT_FALSE(all[36].is_sent_away());
    EXPECT_EQ(files + 100 + 64, count_open_fds());
    s.expect_moved(operations[3], size);
}

TEST_IN_CHILD(boxes, send_liars_away, boxes())
{
    between_boxes s;
    const stranger liar(address_of(*s.tl));
    const ipc::box_letter lie;
    EXPECT_EQ(static_cast<ssize_t>(sizeof(lie)),
              send(liar.fd.get(), &lie, sizeof(lie), 0));
    EXPECT_TRUE(s.tl->progress_until([&] {
        char none;
        const ssize_t got = recv(liar.fd.get(), &none, 1, MSG_DONTWAIT);
        return (got == 0) || ((got < 0) && (errno == ECONNRESET));
    }));
}

namespace {

/* Somebody else, where a peer might be. */
struct impostor {
    explicit impostor(const interface_address &peer)
        : address(peer),
          listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))
    {
        sockaddr_in name{};
        socklen_t length     = sizeof(name);
        auto *const own      = reinterpret_cast<sockaddr *>(&name);
        name.sin_family      = AF_INET;
        name.sin_addr.s_addr = at().ipv4;
        EXPECT_EQ(0, bind(listener.get(), own, length));
        EXPECT_EQ(0, listen(listener.get(), 0));
        EXPECT_EQ(0, getsockname(listener.get(), own, &length));
        at().port = name.sin_port;
    }
    ipc::box_address &at()
    {
        return *reinterpret_cast<ipc::box_address *>(address.iface.data());
    }
    [[nodiscard]] bool is_called() const
    {
        pollfd wanted{listener.get(), POLLIN, 0};
        return poll(&wanted, 1, 0) == 1;
    }
    [[nodiscard]] util::unique_fd answer() const
    {
        return util::unique_fd(accept(listener.get(), nullptr, nullptr));
    }
    interface_address address;
    const util::unique_fd listener;
};

} // namespace

/* Linux drops who connects while a queue is full, and he tries again. */
TEST_IN_CHILD(boxes, sleep_while_a_peer_takes_nobody, boxes())
{
    between_boxes s;
    s.expect_moved(operations[0], 8);
    impostor there(s.peer.address);
    const stranger first(there.at());
    uct_ep_h ep = s.tl->make_ep(there.address);
    EXPECT_TRUE(s.tl->progress_until([&] { return s.tl->arm() == UCS_OK; }));
    EXPECT_FALSE(is_awake(*s.tl));
    const util::unique_fd none = there.answer();
    EXPECT_TRUE(eventually([&] { return is_awake(*s.tl); }));
    const util::unique_fd peer = there.answer();
    EXPECT_TRUE(s.tl->progress_until([&] {
        ipc::box_letter letter;
        return recv(peer.get(), &letter, sizeof(letter), MSG_DONTWAIT) ==
               sizeof(letter);
    }));
    uct_ep_destroy(ep);
}

/* As who has got the port of a peer that has ended may. */
TEST_IN_CHILD(boxes, do_not_come_back_for_good_to_who_hangs_up,
              boxes({{"UCX_GAUDI_IPC_TIMEOUT", "3600s"}}))
{
    between_boxes s;
    impostor there(s.peer.address);
    uct_ep_h ep = s.tl->make_ep(there.address);
    for (int i = 0; i < 2; ++i) {
        there.answer().reset();
        EXPECT_EQ(UCS_OK, uct_ep_check(ep, 0, nullptr));
    }
    EXPECT_FALSE(there.is_called());
    EXPECT_TRUE(s.tl->progress_until([&] { return !s.tl->failures.empty(); }));
    uct_ep_destroy(ep);
}

/* The letter has crossed that. */
TEST_IN_CHILD(boxes, ask_again_who_has_let_them_go_meanwhile,
              boxes({{"UCX_GAUDI_IPC_TIMEOUT", "3600s"}}))
{
    between_boxes s;
    impostor there(s.peer.address);
    uct_ep_h ep = s.tl->make_ep(there.address);
    for (int i = 0; i < 2; ++i) {
        SCOPED_TRACE(i);
        ASSERT_TRUE(s.tl->progress_until([&] { return there.is_called(); }));
        const util::unique_fd unread = there.answer();
        EXPECT_TRUE(s.tl->progress_until([&] {
            ipc::box_letter letter;
            return recv(unread.get(), &letter, sizeof(letter),
                        MSG_DONTWAIT | MSG_PEEK) == sizeof(letter);
        }));
        EXPECT_THAT(s.tl->failures, ::testing::IsEmpty());
    }
    EXPECT_TRUE(s.tl->progress_until([&] { return !s.tl->failures.empty(); }));
    EXPECT_FALSE(there.is_called());
    uct_ep_destroy(ep);
}

/* UCX opens endpoints long before it uses them, and may make no progress. */
TEST_IN_CHILD(boxes, let_endpoints_rest_before_their_first_use,
              boxes({{"UCX_GAUDI_IPC_TIMEOUT", "1ms"}}))
{
    between_boxes s;
    for (int i = 0; i < 3; ++i) {
        s.peer.fill(seeds::there); /* which takes longer */
    }
    s.expect_moved(operations[3], size);
    EXPECT_THAT(s.tl->failures, ::testing::IsEmpty());
}

} // namespace gaudi::test
