/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process whose peers are killed, again and again, at random moments; and
 * which goes on with the next one.
 *
 * usage: ucp_survivor ROUNDS SEED
 *
 * In each round it starts a peer, which is this program again, makes it go
 * where a kill can hurt, and kills it a random time later. Then the endpoint
 * has to fail, every request to end, and a new peer to talk as if nothing had
 * happened. After all rounds the process has not more open files and mappings
 * than after the first of each kind.
 */
#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/counts.h"
#include "gtest/tools/peer/kinds.h"
#include "gtest/tools/release.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include <sys/prctl.h>
#include <unistd.h>

using namespace peer;

namespace {

using clock_type = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr unsigned life_s  = 550;
constexpr size_t large     = 16ul << 20;
constexpr size_t small     = 4096;
constexpr size_t room      = large + 2 * guard;
constexpr unsigned flood   = 20000; /* small messages: more than a queue has */
constexpr unsigned depth   = 4;     /* large ones at a time */
constexpr seconds patience = seconds(20);
constexpr unsigned max_kill_delay_us = 30000;
constexpr ptrdiff_t more_files       = 2;
constexpr ptrdiff_t more_mappings    = 16;

/* What is going on when the peer dies. */
enum class moment {
    before_connect, /* it has given its address, and has done nothing yet */
    idle,           /* connected, and nothing to do */
    full_queue,     /* it does not read, and the queue to it is full */
    eager_to,       /* it receives small messages, on its card */
    eager_from,
    rendezvous_to, /* and large ones */
    rendezvous_from,
    put, /* into its memory */
    get, /* from its memory */
    its_put,
    its_get,
    count
};

/* UCP 1.16 to 1.18 get by messages where an endpoint has error handling, and
 * abort when such a message comes of a peer whose endpoint has failed. */
constexpr bool gets_by_messages =
    !gaudi::test::ucx_is_before(1, 16) && gaudi::test::ucx_is_before(1, 19);
constexpr auto kinds =
    static_cast<unsigned>(moment::count) - (gets_by_messages ? 1 : 0);

const char *name_of(moment when)
{
    constexpr const char *names[] = {
        "before_connect",  "idle",       "full_queue",
        "eager_to",        "eager_from", "rendezvous_to",
        "rendezvous_from", "put",        "get",
        "its_put",         "its_get"};
    return names[static_cast<size_t>(when)];
}

constexpr char healthy[] = "healthy";

/* Of the messages of one peer: what a dead one has announced stays in the
 * worker, and UCP cancels the request that it meets (ucp_rndv_receive). */
ucp_tag_t tag = 0;

/* --- what both have ------------------------------------------------------- */

/* An endpoint that may fail. */
class connection {
public:
    connection(worker &of, const std::vector<char> &address) : of_(of)
    {
        failed_ = (connect(of, address, true, {on_error, this}, ep_) != UCS_OK);
    }
    connection(const connection &)            = delete;
    connection &operator=(const connection &) = delete;
    ~connection() { close(true); }

    [[nodiscard]] bool failed() const { return failed_; }
    /* What UCP was told. */
    [[nodiscard]] ucs_status_t why() const { return why_; }
    [[nodiscard]] ucp_ep_h ep() const { return ep_; }

    /* Wait until all that was started has ended, well or badly. */
    void close(bool force)
    {
        if (ep_ == nullptr) {
            return;
        }
        wait(disconnect(std::exchange(ep_, nullptr), force),
             "ucp_ep_close_nbx");
    }

    /* Until it ended, however. */
    ucs_status_t wait(ucs_status_ptr_t request, const char *what)
    {
        const ucs_status_t status = end_of(request, of_, patience);
        if (status == UCS_INPROGRESS) {
            die(what, "does not end");
        }
        return status;
    }

    /* Until it ended well. */
    void expect(ucs_status_ptr_t request, const char *what)
    {
        require(wait(request, what), what);
    }

private:
    static void on_error(void *arg, ucp_ep_h, ucs_status_t why)
    {
        auto *self    = static_cast<connection *>(arg);
        self->failed_ = true;
        self->why_    = why;
    }

    worker &of_;
    ucp_ep_h ep_      = nullptr;
    bool failed_      = false;
    ucs_status_t why_ = UCS_OK;
};

/* With the handle: without it UCP 1.16 and later let a request to a dead peer
 * end only when the memory, which they find to be mapped, is unmapped. */
ucp_request_param_t params_for(const memory &of)
{
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH;
    params.memh         = of.handle();
    return params;
}

/* To and from the other side's device memory. */
ucs_status_ptr_t put(const connection &to, const remote_memory &there,
                     const memory &from)
{
    const ucp_request_param_t params = params_for(from);
    return ucp_put_nbx(to.ep(), from.data() + guard, large,
                       there.address() + guard, there.key(), &params);
}

ucs_status_ptr_t get(const connection &of, const remote_memory &there,
                     const memory &to)
{
    const ucp_request_param_t params = params_for(to);
    return ucp_get_nbx(of.ep(), to.data() + guard, large,
                       there.address() + guard, there.key(), &params);
}

ucs_status_ptr_t send(const connection &to, const memory &from, size_t size)
{
    const ucp_request_param_t params = params_for(from);
    return ucp_tag_send_nbx(to.ep(), from.data() + guard, size, tag, &params);
}

ucs_status_ptr_t receive(worker &of, const memory &to, size_t size)
{
    const ucp_request_param_t params = params_for(to);
    return ucp_tag_recv_nbx(of.get(), to.data() + guard, size, tag,
                            ~ucp_tag_t{0}, &params);
}

/* Who the other side is. */
struct address {
    std::vector<char> worker;
    description memory;
};

/* Both sides call it. */
address introduce(const channel &socket, const worker &mine, const memory &own)
{
    address other{.worker = socket.exchange(mine.address()), .memory = {}};
    own.describe().send(socket);
    other.memory = description::receive(socket);
    return other;
}

/* --- the peer ------------------------------------------------------------- */

/* Forever: it is going to be killed. */
[[noreturn]] void suffer(const std::string &when, worker &mine,
                         connection &other, const remote_memory &there,
                         const memory &one, const memory &two)
{
    for (unsigned sent = 0;;) {
        if (when == name_of(moment::eager_to)) {
            other.wait(receive(mine, one, small), "receiving");
        } else if ((when == name_of(moment::eager_from)) && (sent < depth)) {
            other.wait(send(other, one, small), "sending");
            ++sent;
        } else if (when == name_of(moment::rendezvous_to)) {
            other.wait(receive(mine, one, large), "receiving");
        } else if (when == name_of(moment::rendezvous_from)) {
            other.wait(send(other, one, large), "sending");
        } else if (when == name_of(moment::its_put)) {
            other.wait(put(other, there, two), "putting");
        } else if (when == name_of(moment::its_get)) {
            other.wait(get(other, there, two), "getting");
        } else {
            mine.step();
        }
    }
}

/* A whole life: a message each way, and the other side's RMA here. */
int live(const channel &socket, worker &mine, connection &other, memory &own)
{
    other.expect(receive(mine, own, large), "receiving");
    other.expect(send(other, own, large), "sending");
    await_letter(mine, socket);
    other.close(true);
    return 0;
}

int run_peer(const std::string &when)
{
    const channel socket(peer_fd);
    context common;
    worker mine(common, UCS_THREAD_MODE_SINGLE);
    memory own(common, kind_of_memory::gaudi, room);
    memory other_own(common, kind_of_memory::gaudi, room);
    set_case("peer " + when);

    const address other = introduce(socket, mine, own);
    if ((when == name_of(moment::before_connect)) ||
        (when == name_of(moment::full_queue))) {
        socket.say('r');
        for (;;) {
            pause();
        }
    }
    connection to_other(mine, other.worker);
    if (to_other.failed()) {
        die("ucp_ep_create", "failed");
    }
    /* Both ways work, and the other side knows it. */
    to_other.expect(send(to_other, own, 8), "sending");
    to_other.expect(receive(mine, own, 8), "receiving");
    if (when == healthy) {
        return live(socket, mine, to_other, own);
    }
    const remote_memory there(to_other.ep(), other.memory);
    socket.say('r');
    suffer(when, mine, to_other, there, own, other_own);
}

/* --- the survivor --------------------------------------------------------- */

class survivor {
public:
    explicit survivor(unsigned seed) : random_(seed)
    {
        source_.store(0, pattern_of(1).data(), room);
    }

    [[nodiscard]] milliseconds longest() const { return longest_; }

    /* Start a peer, kill it, and see what comes of it. */
    void lose_a_peer(moment when)
    {
        set_case(std::string("kill ") + name_of(when));
        another_process victim = start_peer(name_of(when));
        const address there    = introduce(victim.socket(), worker_, memory_);

        if ((when == moment::before_connect) && coin()) {
            victim.end();
        }
        connection to_victim(worker_, there.worker);
        if (when == moment::before_connect) {
            sleep_randomly();
            victim.end();
            requests_.push_back(
                to_victim.failed() ? nullptr : send(to_victim, source_, small));
            expect_failure(to_victim);
            return;
        }
        if (to_victim.failed()) {
            die("ucp_ep_create", "failed");
        }
        std::optional<remote_memory> memory;
        if (when == moment::full_queue) {
            for (unsigned i = 0; i < flood; ++i) {
                requests_.push_back(send(to_victim, host_, small));
            }
            if (std::none_of(requests_.begin(), requests_.end(),
                             [](auto one) { return UCS_PTR_IS_PTR(one); })) {
                die("the queue", "is not full");
            }
        } else {
            greet(to_victim);
            memory.emplace(to_victim.ep(), there.memory);
            await_letter(victim.socket());
            start(when, to_victim, *memory);
        }
        const auto end = clock_type::now() + random_delay();
        while (clock_type::now() < end) {
            if (when != moment::full_queue) {
                worker_.step();
            }
        }
        victim.end();
        expect_failure(to_victim);
    }

    /* All that works does so. */
    void meet_a_healthy_peer(unsigned round)
    {
        set_case("healthy peer, round " + std::to_string(round));
        another_process other = start_peer(healthy);
        const address there   = introduce(other.socket(), worker_, memory_);
        connection to_other(worker_, there.worker);
        if (to_other.failed()) {
            die("ucp_ep_create", "failed");
        }
        greet(to_other);
        const unsigned seed          = 10 + round % 1000;
        const std::vector<char> sent = pattern_of(seed);
        source_.store(0, sent.data(), room);
        memory_.store(0, pattern_of(2).data(), room);
        to_other.expect(send(to_other, source_, large), "sending");
        to_other.expect(receive(worker_, memory_, large), "receiving");
        expect_bytes(sent);

        const std::vector<char> stored = pattern_of(seed + 1);
        source_.store(0, stored.data(), room);
        const remote_memory memory(to_other.ep(), there.memory);
        to_other.expect(put(to_other, memory, source_), "putting");
        to_other.expect(flush(to_other), "flushing");
        to_other.expect(get(to_other, memory, memory_), "getting");
        expect_bytes(stored);

        to_other.close(false);
        other.socket().say('q');
        other.expect_end();
    }

    /* Back to what there was, within a moment. */
    void expect_no_more_than(const counts &before)
    {
        set_case("counting");
        const auto end = clock_type::now() + patience;
        counts now     = count();
        while ((now.files > before.files + more_files) ||
               (now.mappings > before.mappings + more_mappings)) {
            if (clock_type::now() > end) {
                die("files and mappings",
                    std::to_string(now.files) + " and " +
                        std::to_string(now.mappings) + ", were " +
                        std::to_string(before.files) + " and " +
                        std::to_string(before.mappings));
            }
            worker_.step();
            now = count();
        }
        std::printf("files %td, mappings %td; before %td, %td\n", now.files,
                    now.mappings, before.files, before.mappings);
    }

private:
    static another_process start_peer(const char *when)
    {
        return another_process({"peer", when, std::to_string(++tag)});
    }

    static std::vector<char> pattern_of(unsigned seed)
    {
        std::vector<char> bytes(room);
        fill(bytes.data(), bytes.size(), seed);
        return bytes;
    }

    void expect_bytes(const std::vector<char> &wanted) const
    {
        std::vector<char> there(room);
        memory_.load(0, there.data(), room);
        if (std::memcmp(there.data() + guard, wanted.data() + guard, large) !=
            0) {
            die("contents", "differ");
        }
    }

    bool coin() { return (random_() & 1) != 0; }

    microseconds random_delay()
    {
        /* Short ones as often as long ones. */
        const unsigned limit = max_kill_delay_us >> (random_() % 10);
        return microseconds(random_() % (limit + 1));
    }

    void sleep_randomly() { std::this_thread::sleep_for(random_delay()); }

    static ucs_status_ptr_t flush(const connection &to)
    {
        const ucp_request_param_t defaults{};
        return ucp_ep_flush_nbx(to.ep(), &defaults);
    }

    /* The other side connects, too, and hears that this one has. */
    void greet(connection &to)
    {
        to.expect(receive(worker_, host_, 8), "receiving");
        to.expect(send(to, host_, 8), "sending");
    }

    void await_letter(const channel &from)
    {
        char letter    = 0;
        const auto end = clock_type::now() + patience;
        while (!from.try_hear(letter)) {
            if (clock_type::now() > end) {
                die("the peer", "is not ready");
            }
            worker_.step();
        }
    }

    void start(moment when, const connection &to, const remote_memory &memory)
    {
        for (unsigned i = 0; i < depth; ++i) {
            switch (when) {
            case moment::eager_to:
                requests_.push_back(send(to, source_, small));
                break;
            case moment::eager_from:
                requests_.push_back(receive(worker_, memory_, small));
                break;
            case moment::rendezvous_to:
                requests_.push_back(send(to, source_, large));
                break;
            case moment::rendezvous_from:
                requests_.push_back(receive(worker_, memory_, large));
                break;
            case moment::put:
                requests_.push_back(put(to, memory, source_));
                break;
            case moment::get:
                requests_.push_back(get(to, memory, memory_));
                break;
            default:
                break;
            }
        }
    }

    /* The peer is dead: its endpoint fails, and all that goes on ends. */
    void expect_failure(connection &to)
    {
        const auto begin = clock_type::now();
        while (!to.failed()) {
            if (clock_type::now() > begin + patience) {
                die("the endpoint", "does not fail");
            }
            worker_.step();
        }
        longest_ = std::max(longest_, std::chrono::duration_cast<milliseconds>(
                                          clock_type::now() - begin));
        /* UCP has an answer of its own by now, and it is the same, but where it
         * has found nobody there while it was connecting. */
        if ((to.ep() != nullptr) && (to.why() != UCS_ERR_UNREACHABLE) &&
            (to.wait(send(to, host_, 8), "a message to a dead peer") !=
             to.why())) {
            die("the status of the endpoint", ucs_status_string(to.why()));
        }
        to.close(true);
        for (ucs_status_ptr_t request : requests_) {
            if (UCS_PTR_IS_PTR(request) &&
                (ucp_request_check_status(request) == UCS_INPROGRESS)) {
                ucp_request_cancel(worker_.get(), request);
            }
            to.wait(request, "a request to a dead peer");
        }
        requests_.clear();
    }

    std::minstd_rand random_;
    context context_;
    worker worker_{context_, UCS_THREAD_MODE_SINGLE};
    memory source_{context_, kind_of_memory::gaudi, room};
    memory memory_{context_, kind_of_memory::gaudi, room};
    memory host_{context_, kind_of_memory::heap, room};
    std::vector<ucs_status_ptr_t> requests_;
    milliseconds longest_{0};
};

int survive(unsigned rounds, unsigned seed)
{
    survivor self(seed);
    std::minstd_rand random(seed);
    self.meet_a_healthy_peer(0);
    counts before{};
    for (unsigned round = 0; round < rounds; ++round) {
        self.lose_a_peer(
            static_cast<moment>((round < kinds) ? round : random() % kinds));
        self.meet_a_healthy_peer(round + 1);
        if (round + 1 == kinds) {
            before = count();
        }
    }
    self.expect_no_more_than(before);
    std::printf("survived %u kills, errors came within %lld ms\n", rounds,
                static_cast<long long>(self.longest().count()));
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    start_program(life_s);
    if ((argc == 4) && (std::string(argv[1]) == "peer")) {
        tag = std::stoul(argv[3]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return run_peer(argv[2]);
    }
    if (argc != 3) {
        die("usage", "ucp_survivor ROUNDS SEED");
    }
    return survive(static_cast<unsigned>(std::stoul(argv[1])),
                   static_cast<unsigned>(std::stoul(argv[2])));
}
