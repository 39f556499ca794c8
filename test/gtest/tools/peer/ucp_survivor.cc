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
#include "gtest/tools/peer/memory.h"
#include "gtest/tools/peer/side.h"
#include "gtest/tools/release.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

using namespace peer;

namespace {

using clock_type = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int peer_fd      = 3;
constexpr unsigned life_s  = 550;
constexpr size_t large     = 16ul << 20;
constexpr size_t small     = 4096;
constexpr size_t room      = large + 2 * guard;
constexpr unsigned flood   = 20000; /* small messages: more than a queue has */
constexpr unsigned depth   = 4;     /* large ones at a time */
constexpr ucp_tag_t a_tag  = 5;
constexpr seconds patience = seconds(20);
constexpr unsigned max_kill_delay_us = 30000;
constexpr ptrdiff_t more_files       = 2;
constexpr ptrdiff_t more_mappings    = 16;

/* What is going on when the peer dies. */
enum class moment {
    before_connect, /* it has given its address, and has done nothing yet */
    idle,           /* connected, and nothing to do */
    full_queue,     /* it does not read, and the queue to it is full */
    rendezvous_to,  /* it receives large messages */
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
        "before_connect",  "idle", "full_queue", "rendezvous_to",
        "rendezvous_from", "put",  "get",        "its_put",
        "its_get"};
    return names[static_cast<size_t>(when)];
}

constexpr char healthy[] = "healthy";

/* --- what both have ------------------------------------------------------- */

void wait_a_moment(worker &of)
{
    if (!of.progress()) {
        std::this_thread::yield();
    }
}

/* An endpoint that may fail. */
class connection {
public:
    connection(worker &of, const std::vector<char> &address) : of_(of)
    {
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                            UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.address =
            reinterpret_cast<const ucp_address_t *>(address.data());
        params.err_mode    = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler = {[](void *arg, ucp_ep_h, ucs_status_t why) {
                                  static_cast<connection *>(arg)->failed_ =
                                      true;
                                  static_cast<connection *>(arg)->why_ = why;
                              },
                              this};
        failed_            = (ucp_ep_create(of.get(), &params, &ep_) != UCS_OK);
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
        ucp_request_param_t params{};
        if (force) {
            params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
            params.flags        = UCP_EP_CLOSE_FLAG_FORCE;
        }
        ucs_status_ptr_t request = ucp_ep_close_nbx(ep_, &params);
        ep_                      = nullptr;
        wait(request, "ucp_ep_close_nbx");
    }

    /* Until it ended, however. */
    ucs_status_t wait(ucs_status_ptr_t request, const char *what)
    {
        if (!UCS_PTR_IS_PTR(request)) {
            return UCS_PTR_STATUS(request);
        }
        const auto end = clock_type::now() + patience;
        while (ucp_request_check_status(request) == UCS_INPROGRESS) {
            if (clock_type::now() > end) {
                die(what, "does not end");
            }
            wait_a_moment(of_);
        }
        const ucs_status_t status = ucp_request_check_status(request);
        ucp_request_free(request);
        return status;
    }

private:
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

/* A key of the other side's device memory. */
class target {
public:
    target(const connection &to, const std::vector<char> &key, uint64_t address)
        : address_(address)
    {
        require(ucp_ep_rkey_unpack(to.ep(), key.data(), &key_),
                "ucp_ep_rkey_unpack");
    }
    ~target() { ucp_rkey_destroy(key_); }
    target(const target &)            = delete;
    target &operator=(const target &) = delete;

    ucs_status_ptr_t put(const connection &to, const memory &from) const
    {
        const ucp_request_param_t params = params_for(from);
        return ucp_put_nbx(to.ep(), from.data() + guard, large,
                           address_ + guard, key_, &params);
    }
    ucs_status_ptr_t get(const connection &of, const memory &to) const
    {
        const ucp_request_param_t params = params_for(to);
        return ucp_get_nbx(of.ep(), to.data() + guard, large, address_ + guard,
                           key_, &params);
    }

private:
    uint64_t address_;
    ucp_rkey_h key_ = nullptr;
};

ucs_status_ptr_t send(const connection &to, const memory &from, size_t size)
{
    const ucp_request_param_t params = params_for(from);
    return ucp_tag_send_nbx(to.ep(), from.data() + guard, size, a_tag, &params);
}

ucs_status_ptr_t receive(worker &of, const memory &to, size_t size)
{
    const ucp_request_param_t params = params_for(to);
    return ucp_tag_recv_nbx(of.get(), to.data() + guard, size, a_tag,
                            ~ucp_tag_t{0}, &params);
}

void expect_good(ucs_status_t status, const char *what)
{
    require(status, what);
}

/* Who the other side is. */
struct address {
    std::vector<char> worker;
    std::vector<char> key;
    uint64_t memory = 0;
};

void tell(const channel &socket, const worker &mine, const memory &own)
{
    const std::vector<char> address = mine.address();
    const std::vector<char> key     = own.pack_key();
    const auto place                = reinterpret_cast<uint64_t>(own.data());
    socket.send_block(address.data(), address.size());
    socket.send_block(key.data(), key.size());
    socket.send(&place, sizeof(place));
}

address hear(const channel &socket)
{
    address result;
    result.worker = socket.receive_block();
    result.key    = socket.receive_block();
    socket.receive(&result.memory, sizeof(result.memory));
    return result;
}

/* --- the peer ------------------------------------------------------------- */

/* Forever: it is going to be killed. */
[[noreturn]] void suffer(const std::string &when, worker &mine,
                         connection &other, const target &there,
                         const memory &one, const memory &two)
{
    for (;;) {
        if (when == name_of(moment::rendezvous_to)) {
            other.wait(receive(mine, one, large), "receiving");
        } else if (when == name_of(moment::rendezvous_from)) {
            other.wait(send(other, one, large), "sending");
        } else if (when == name_of(moment::its_put)) {
            other.wait(there.put(other, two), "putting");
        } else if (when == name_of(moment::its_get)) {
            other.wait(there.get(other, two), "getting");
        } else {
            wait_a_moment(mine);
        }
    }
}

/* A whole life: a message each way, and the other side's RMA here. */
int live(const channel &socket, worker &mine, connection &other, memory &own)
{
    expect_good(other.wait(receive(mine, own, large), "receiving"),
                "receiving");
    expect_good(other.wait(send(other, own, large), "sending"), "sending");
    char letter = 0;
    while (!socket.try_receive(letter)) {
        wait_a_moment(mine);
    }
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

    tell(socket, mine, own);
    const address other = hear(socket);
    if ((when == name_of(moment::before_connect)) ||
        (when == name_of(moment::full_queue))) {
        const char letter = 'r';
        socket.send(&letter, 1);
        for (;;) {
            pause();
        }
    }
    connection to_other(mine, other.worker);
    if (to_other.failed()) {
        die("ucp_ep_create", "failed");
    }
    /* Both ways work, and the other side knows it. */
    expect_good(to_other.wait(send(to_other, own, 8), "sending"), "sending");
    expect_good(to_other.wait(receive(mine, own, 8), "receiving"), "receiving");
    if (when == healthy) {
        return live(socket, mine, to_other, own);
    }
    const target there(to_other, other.key, other.memory);
    const char letter = 'r';
    socket.send(&letter, 1);
    suffer(when, mine, to_other, there, own, other_own);
}

/* --- the survivor --------------------------------------------------------- */

/* A peer's process and the socket to it. */
class peer_process {
public:
    explicit peer_process(const std::string &when)
    {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
            die("socketpair", std::strerror(errno));
        }
        socket_ = std::make_unique<channel>(ends[0]);
        const channel theirs(ends[1]);

        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        if (ends[1] == peer_fd) {
            die("socketpair", "took the number of the peers' socket");
        }
        posix_spawn_file_actions_adddup2(&actions, ends[1], peer_fd);
        std::string name    = "/proc/self/exe";
        std::string command = "peer";
        std::string moment  = when;
        char *argv[] = {name.data(), command.data(), moment.data(), nullptr};
        const int error =
            posix_spawn(&pid_, argv[0], &actions, nullptr, argv, environ);
        posix_spawn_file_actions_destroy(&actions);
        if (error != 0) {
            die("posix_spawn", std::strerror(error));
        }
    }
    ~peer_process() { end(); }
    peer_process(const peer_process &)            = delete;
    peer_process &operator=(const peer_process &) = delete;

    [[nodiscard]] const channel &socket() const { return *socket_; }

    /* By SIGKILL, unless it is over. */
    void end()
    {
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
        pid_ = 0;
    }

    /* By itself. */
    void expect_end()
    {
        int status = 0;
        waitpid(pid_, &status, 0);
        pid_ = 0;
        if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0)) {
            die("a healthy peer", "ended badly");
        }
    }

private:
    pid_t pid_ = 0;
    std::unique_ptr<channel> socket_;
};

struct counts {
    ptrdiff_t files;
    ptrdiff_t mappings;
};

counts count()
{
    const std::filesystem::directory_iterator files("/proc/self/fd");
    std::ifstream maps("/proc/self/maps");
    return {std::distance(begin(files), end(files)),
            std::count(std::istreambuf_iterator<char>(maps), {}, '\n')};
}

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
        peer_process victim(name_of(when));
        const address there = hear(victim.socket());
        tell(victim.socket(), worker_, memory_);

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
        std::unique_ptr<target> memory;
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
            memory =
                std::make_unique<target>(to_victim, there.key, there.memory);
            await_letter(victim.socket());
            start(when, to_victim, *memory);
        }
        const auto end = clock_type::now() + random_delay();
        while (clock_type::now() < end) {
            if (when != moment::full_queue) {
                wait_a_moment(worker_);
            }
        }
        victim.end();
        expect_failure(to_victim);
    }

    /* All that works does so. */
    void meet_a_healthy_peer(unsigned round)
    {
        set_case("healthy peer, round " + std::to_string(round));
        peer_process other(healthy);
        const address there = hear(other.socket());
        tell(other.socket(), worker_, memory_);
        connection to_other(worker_, there.worker);
        if (to_other.failed()) {
            die("ucp_ep_create", "failed");
        }
        greet(to_other);
        const unsigned seed          = 10 + round % 1000;
        const std::vector<char> sent = pattern_of(seed);
        source_.store(0, sent.data(), room);
        memory_.store(0, pattern_of(2).data(), room);
        expect_good(to_other.wait(send(to_other, source_, large), "sending"),
                    "sending");
        expect_good(
            to_other.wait(receive(worker_, memory_, large), "receiving"),
            "receiving");
        expect_bytes(sent);

        const std::vector<char> put = pattern_of(seed + 1);
        source_.store(0, put.data(), room);
        const target memory(to_other, there.key, there.memory);
        expect_good(to_other.wait(memory.put(to_other, source_), "putting"),
                    "putting");
        expect_good(to_other.wait(flush(to_other), "flushing"), "flushing");
        expect_good(to_other.wait(memory.get(to_other, memory_), "getting"),
                    "getting");
        expect_bytes(put);

        to_other.close(false);
        const char letter = 'q';
        other.socket().send(&letter, 1);
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
            wait_a_moment(worker_);
            now = count();
        }
        std::printf("files %td, mappings %td; before %td, %td\n", now.files,
                    now.mappings, before.files, before.mappings);
    }

private:
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
        expect_good(to.wait(receive(worker_, host_, 8), "receiving"),
                    "receiving");
        expect_good(to.wait(send(to, host_, 8), "sending"), "sending");
    }

    void await_letter(const channel &from)
    {
        char letter    = 0;
        const auto end = clock_type::now() + patience;
        while (!from.try_receive(letter)) {
            if (clock_type::now() > end) {
                die("the peer", "is not ready");
            }
            wait_a_moment(worker_);
        }
    }

    void start(moment when, const connection &to, const target &memory)
    {
        for (unsigned i = 0; i < depth; ++i) {
            switch (when) {
            case moment::rendezvous_to:
                requests_.push_back(send(to, source_, large));
                break;
            case moment::rendezvous_from:
                requests_.push_back(receive(worker_, memory_, large));
                break;
            case moment::put:
                requests_.push_back(memory.put(to, source_));
                break;
            case moment::get:
                requests_.push_back(memory.get(to, memory_));
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
            wait_a_moment(worker_);
        }
        longest_ = std::max(longest_, std::chrono::duration_cast<milliseconds>(
                                          clock_type::now() - begin));
        /* UCP has an answer of its own by now, and it is the same. */
        if ((to.ep() != nullptr) &&
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
    alarm(life_s);
    set_case("the start");
    if ((argc == 3) && (std::string(argv[1]) == "peer")) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return run_peer(argv[2]);
    }
    if (argc != 3) {
        die("usage", "ucp_survivor ROUNDS SEED");
    }
    return survive(static_cast<unsigned>(std::stoul(argv[1])),
                   static_cast<unsigned>(std::stoul(argv[2])));
}
