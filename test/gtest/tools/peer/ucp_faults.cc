/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process that goes on, whatever befalls those that it talks to.
 *
 * usage: ucp_faults PASSES SEED CASE...
 *
 * A CASE is OPERATION,BYTES,OWN,THEIRS,SIDE,EVENT
 *
 * OPERATION:
 *     tag, put, get
 *     flood        messages that nobody receives
 *     idle         none
 *     unmet        the other process has given its address, and does nothing
 * OWN, THEIRS, memory of this process and of the other one:
 *     gaudi, heap
 *     plain        which UCP is told nothing of
 * SIDE, who sends, puts or gets, several at a time:
 *     here, there
 * EVENT:
 *     none
 *   at a random moment:
 *     kill, exit, stop    of the other process
 *     SIDE@flush          that side closes its endpoint,
 *     SIDE@force          or drops it
 *   before the operation; with "keys:" in front before keys are made:
 *     freed        the other process's memory
 *     room         it gets no new descriptor
 *     damage       keys get here that somebody has written into
 *     deny=CALL    a system call that it may not make
 *     FAULT        of its card, as HLTHUNK_EMU_FAULTS has it
 *
 * The other process is this program again, for each case; and in the end twice
 * more, to which nothing happens. With two passes the process has not more
 * files and mappings after the second one.
 */
#include "common/denial.h"
#include "hlthunk_emulator/hlthunk_emu.h"
#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/counts.h"
#include "gtest/tools/peer/kinds.h"
#include "gtest/tools/release.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace peer;
using namespace std::chrono_literals;

namespace {

using std::string;
using clock_type = std::chrono::steady_clock;

constexpr unsigned life_s = 550;
/* Nothing here takes as long as that, unless it hangs. */
constexpr auto patience = 25s;
/* For what is on its way when the other side fails: UCP tells the peer of a
 * rendezvous nothing. */
constexpr auto grace                = 300ms;
constexpr unsigned longest_delay_us = 30000;
constexpr unsigned depth            = 4;
constexpr unsigned flood = 20000; /* more than a queue has room for */
/* Messages that UCP does not stage, bytes. */
constexpr size_t longest_eager    = 20'000;
constexpr size_t most_of_a_part   = 8000; /* of a message in parts */
constexpr unsigned received_seed  = 1;
constexpr unsigned sent_seed      = 2; /* of the first, and so on */
constexpr ptrdiff_t more_files    = 2;
constexpr ptrdiff_t more_mappings = 16;
constexpr unsigned damaged_keys   = 5'000;
/* In gaudi_ipc's part of a key, of the release that made it: others are out of
 * reach. */
constexpr size_t version_offset = 0;

struct task {
    explicit task(string words) : text(std::move(words))
    {
        string parts = text;
        std::ranges::replace(parts, ',', ' ');
        std::istringstream from(parts);
        string side;
        from >> what >> bytes >> own >> theirs >> side >> event;
        is_here = (side == "here");
        if (event.starts_with("keys:")) {
            event    = event.substr(5);
            is_early = true;
        }
    }

    string text;
    string what;
    size_t bytes = 0;
    string own;
    string theirs;
    string event;
    bool is_here  = false;
    bool is_early = false;

    [[nodiscard]] bool is_rma() const
    {
        return (what == "put") || (what == "get");
    }
    [[nodiscard]] bool is_fault() const
    {
        return event.find('=') != event.npos;
    }
    /* A card whose jobs cannot be waited for is given up, too. */
    [[nodiscard]] bool loses_card() const
    {
        const auto has = [&](const char *part) {
            return event.find(part) != event.npos;
        };
        return std::ranges::any_of(
                   std::array{"reset", "kill", "lose", "remove"}, has) ||
               (has("wait#") && has("+="));
    }
};

std::minstd_rand dice;

std::chrono::microseconds random_delay()
{
    /* Short ones as often as long ones. */
    const unsigned limit = longest_delay_us >> (dice() % 10);
    return std::chrono::microseconds(dice() % (limit + 1));
}

/* One's side of a case. */
class party {
public:
    /* @param tag  Of its messages: what a dead peer has announced stays in the
     *             worker, and UCP cancels the request that it meets. */
    party(const task &of, bool is_survivor, ucp_tag_t tag, context &common,
          worker &mine, const channel &socket)
        : of_(of), is_active_(of.is_here == is_survivor), tag_(tag),
          mine_(mine), socket_(socket), name_(is_survivor ? of.own : of.theirs),
          others_(socket.exchange(mine.address()))
    {
        const size_t room   = of.bytes + 2 * guard;
        const bool is_plain = (name_ == "plain") &&
                              (is_active_ || !of.is_rma()); /* no key of it */
        own_ = std::make_unique<memory>(
            common, is_of_card() ? kind_of_memory::gaudi : kind_of_memory::heap,
            room * depth, 0, is_plain);
        for (unsigned i = 0; i < depth; ++i) {
            slots_.push_back({*own_, i * room + guard, of.bytes, true});
            prepare(slots_[i], is_source() ? sent_seed + i : received_seed);
        }
        common_ = common.get();
    }

    void connect()
    {
        const auto fail = [](void *arg, ucp_ep_h, ucs_status_t why) {
            static_cast<party *>(arg)->failure = why;
        };
        failure = peer::connect(mine_, others_, true, {fail, this}, ep_);
    }

    /* Each hears that the other one has connected. */
    void greet()
    {
        char word = 'w';
        const ucp_request_param_t defaults{};
        for (ucs_status_ptr_t request :
             {ucp_tag_recv_nbx(mine_.get(), &word, 1, tag_, UINT64_MAX,
                               &defaults),
              ucp_tag_send_nbx(ep_, &word, 1, tag_, &defaults)}) {
            require(until_end(request), "greeting");
        }
    }

    /* Offer memory, and take the other's if it is needed. @return Whether there
     * still is another one. */
    [[nodiscard]] bool exchange_keys()
    {
        if (!of_.is_rma()) {
            return true;
        }
        if (!is_active_) {
            description here{address(), {}};
            void *key   = nullptr;
            size_t size = 0;
            if (ucp_rkey_pack(common_, own_->handle(), &key, &size) == UCS_OK) {
                const char *bytes = static_cast<char *>(key);
                here.key.assign(bytes, bytes + size);
                ucp_rkey_buffer_release(key);
            }
            socket_.whisper('k');
            here.send(socket_);
            return true;
        }
        if (hear() != 'k') {
            return false;
        }
        heard_.reset();
        there_      = description::receive(socket_);
        key_status_ = there_.key.empty()
                          ? UCS_ERR_UNREACHABLE
                          : ucp_ep_rkey_unpack(ep_, there_.key.data(), &key_);
        return true;
    }

    [[nodiscard]] bool meet()
    {
        socket_.whisper('m');
        const bool met = (hear() == 'm');
        if (met) {
            heard_.reset();
        }
        return met;
    }

    void start()
    {
        if (of_.is_rma() && !is_active_) {
            return;
        }
        const bool is_flood = (of_.what == "flood");
        for (unsigned i = 0; i < (is_flood ? flood : depth); ++i) {
            const slot &where                    = slots_[i % depth];
            const ucp_request_param_t parameters = parameters_for(where);
            const uint64_t remote =
                there_.address + i * (of_.bytes + 2 * guard);
            requests_.push_back(
                (of_.what == "idle") ? nullptr
                : of_.is_rma() && (key_status_ != UCS_OK)
                    ? UCS_STATUS_PTR(key_status_)
                : (of_.what == "put")
                    ? ucp_put_nbx(ep_, where.data(), of_.bytes, remote, key_,
                                  &parameters)
                : (of_.what == "get")
                    ? ucp_get_nbx(ep_, where.data(), of_.bytes, remote, key_,
                                  &parameters)
                : is_active_
                    ? ucp_tag_send_nbx(ep_, where.data(), of_.bytes, tag_ + i,
                                       &parameters)
                    : ucp_tag_recv_nbx(mine_.get(), where.data(), of_.bytes,
                                       tag_ + i, UINT64_MAX, &parameters));
            results_.push_back(UCS_PTR_STATUS(requests_.back()));
        }
        if (of_.what == "put") {
            const ucp_request_param_t defaults{};
            requests_.push_back(ucp_ep_flush_nbx(ep_, &defaults));
            results_.push_back(UCS_PTR_STATUS(requests_.back()));
        }
    }

    /* Whether all have. */
    [[nodiscard]] bool have_ended()
    {
        bool all = true;
        for (size_t i = 0; i < requests_.size(); ++i) {
            if (UCS_PTR_IS_PTR(requests_[i])) {
                results_[i] = ucp_request_check_status(requests_[i]);
                if (results_[i] == UCS_INPROGRESS) {
                    all = false;
                    continue;
                }
                ucp_request_free(requests_[i]);
                requests_[i] = nullptr;
            }
        }
        return all;
    }

    [[nodiscard]] ucs_status_t result() const
    {
        const auto bad = std::ranges::find_if(
            results_, [](ucs_status_t each) { return each != UCS_OK; });
        return (bad == results_.end()) ? UCS_OK : *bad;
    }

    [[nodiscard]] bool is_good()
    {
        return have_ended() && (result() == UCS_OK);
    }

    /* Until all has ended here, or the other side has failed, and what was on
     * its way has come. */
    void await_end()
    {
        std::optional<clock_type::time_point> end;
        wait("an operation", [&] {
            heard_             = heard_.has_value() ? heard_ : socket_.listen();
            const bool is_over = heard_.has_value() || (failure != UCS_OK) ||
                                 (closing_ != nullptr);
            if (is_over && !end.has_value()) {
                end = clock_type::now() + grace;
            }
            return have_ended() ||
                   (end.has_value() && (clock_type::now() > *end));
        });
    }

    /* With the endpoint ends what was under way. */
    void close(bool force)
    {
        if (have_ended()) {
            drop_key();
        }
        if (ep_ != nullptr) {
            closing_ = disconnect(std::exchange(ep_, nullptr), force);
        }
    }

    void finish()
    {
        close(true);
        for (size_t i = 0; i < requests_.size(); ++i) {
            if (!have_ended() && UCS_PTR_IS_PTR(requests_[i]) && !is_active_) {
                ucp_request_cancel(mine_.get(), requests_[i]);
            }
        }
        /* But for a message whose first part has come: UCP waits for the next
         * one for ever, and has the memory. */
        const bool may_stay = of_.is_fault() && (of_.what == "tag") &&
                              !is_active_ && (of_.bytes > most_of_a_part);
        const auto end = clock_type::now() + (may_stay ? grace : patience);
        wait("closing", [&] {
            return have_ended() || (may_stay && (clock_type::now() > end));
        });
        if (!have_ended()) {
            (void)own_.release();
            has_left_some = true;
        }
        drop_key();
        (void)until_end(std::exchange(closing_, nullptr));
    }

    /* Each message that has come is right; all of a put or get. */
    void check(bool puts_as_well)
    {
        for (unsigned i = 0; (i < depth) && !is_source(); ++i) {
            const bool has_come =
                (of_.what == "put")
                    ? puts_as_well
                    : (i < results_.size()) && (results_[i] == UCS_OK);
            if (has_come && (of_.what != "idle")) {
                expect(slots_[i], sent_seed + i, received_seed);
            }
        }
    }

    /* To whom nobody answers. */
    void expect_failure()
    {
        wait("the endpoint's failure", [&] { return failure != UCS_OK; });
        /* UCP has an answer of its own by now, and it is the same, but where it
         * has found nobody there while it was connecting. */
        char word = 'w';
        const ucp_request_param_t defaults{};
        if ((ep_ != nullptr) && (failure != UCS_ERR_UNREACHABLE) &&
            (until_end(ucp_tag_send_nbx(ep_, &word, 1, tag_, &defaults)) !=
             failure)) {
            die("the status of the endpoint", ucs_status_string(failure));
        }
    }

    /* Keys that somebody has written into crash nobody. UCP 1.13 releases what
     * a key was before that cannot be unpacked. With an unreachable one between
     * them, that may be what the next good key is now. */
    void use_damaged_keys()
    {
        const size_t part = find_gaudi_part(there_.key);
        if (part == there_.key.size()) {
            die("a key", "has no part of gaudi_ipc");
        }
        description of_elsewhere = there_;
        char &version            = of_elsewhere.key[part + version_offset];
        version                  = static_cast<char>(version ^ 1);
        for (unsigned i = 0; i < damaged_keys; ++i) {
            description damaged = there_;
            for (unsigned count = 1 + dice() % 4; count > 0; --count) {
                char &byte = damaged.key[part + dice() % gaudi_part_size];
                byte       = static_cast<char>(byte ^ (1 + dice() % 255));
            }
            const remote_memory unreachable(ep_, of_elsewhere);
            require(unreachable.status(), "ucp_ep_rkey_unpack");
            const remote_memory good(ep_, there_);
            require(good.status(), "ucp_ep_rkey_unpack");
            const remote_memory bad(ep_, damaged);
        }
    }

    template <typename Condition>
    void wait(const char *what, Condition &&is_met)
    {
        const auto end = clock_type::now() + patience;
        while (!is_met()) {
            mine_.step();
            if (clock_type::now() > end) {
                die(what, "hangs");
            }
        }
    }

    void pass(std::chrono::microseconds time)
    {
        const auto end = clock_type::now() + time;
        wait("time", [&] { return clock_type::now() >= end; });
    }

    /* What the other side says next; 0 when it is gone. */
    char hear()
    {
        wait("the other side", [&] {
            heard_ = heard_.has_value() ? heard_ : socket_.listen();
            return heard_.has_value();
        });
        return *heard_;
    }
    void free_memory() { own_.reset(); }

    [[nodiscard]] bool is_source() const
    {
        return (of_.what == "get") ? !is_active_ : is_active_;
    }
    [[nodiscard]] bool is_of_card() const { return name_ == "gaudi"; }
    [[nodiscard]] bool is_active() const { return is_active_; }

    ucs_status_t failure             = UCS_OK; /* of the endpoint */
    static inline bool has_left_some = false;

private:
    /* Requests that UCP has queued still use it (ucp.h, ucp_rkey_destroy). */
    void drop_key()
    {
        if (key_ != nullptr) {
            ucp_rkey_destroy(std::exchange(key_, nullptr));
        }
    }

    [[nodiscard]] uint64_t address() const
    {
        return reinterpret_cast<uintptr_t>(slots_[0].data());
    }

    ucs_status_t until_end(ucs_status_ptr_t request)
    {
        const ucs_status_t status = end_of(request, mine_, patience);
        if (status == UCS_INPROGRESS) {
            die("a request", "does not end");
        }
        return status;
    }

    const task &of_;
    const bool is_active_;
    const ucp_tag_t tag_;
    worker &mine_;
    const channel &socket_;
    const string name_;
    const std::vector<char> others_;
    ucp_context_h common_ = nullptr;
    std::unique_ptr<memory> own_;
    std::vector<slot> slots_;
    ucp_ep_h ep_ = nullptr;
    description there_;
    ucp_rkey_h key_          = nullptr;
    ucs_status_t key_status_ = UCS_OK;
    std::vector<ucs_status_ptr_t> requests_;
    std::vector<ucs_status_t> results_;
    ucs_status_ptr_t closing_ = nullptr;
    std::optional<char> heard_;
};

/* --- the other process ---------------------------------------------------- */

/* Have a system call of this process answered with EPERM. */
void deny(const string &name)
{
    static const std::map<string, uint32_t> numbers = {
        {"sendmsg", SYS_sendmsg}, {"recvmsg", SYS_recvmsg}};
    if (gaudi::test::deny_system_call(numbers.at(name)) != 0) {
        die("seccomp", std::strerror(errno));
    }
}

void strike(const task &what, party &me)
{
    if (what.event.starts_with("deny=")) {
        deny(what.event.substr(5));
    } else if (what.is_fault()) {
        if (hlthunk_emu_fault(what.event.c_str()) != 0) {
            die("faults", what.event);
        }
    } else if (what.event == "freed") {
        me.free_memory();
    } else if (what.event == "room") {
        const rlimit none{3, 3};
        setrlimit(RLIMIT_NOFILE, &none);
    }
}

int be_another(const task &what, ucp_tag_t tag)
{
    dice.seed(static_cast<unsigned>(tag));
    set_case("another process, " + what.text);
    const channel socket(peer_fd);
    context common;
    worker mine(common, UCS_THREAD_MODE_SINGLE);
    party me(what, false, tag, common, mine, socket);
    if ((what.what == "unmet") || (what.what == "flood")) {
        for (;;) {
            pause();
        }
    }
    me.connect();
    me.greet();
    if (what.is_early) {
        strike(what, me);
    }
    const bool has_keys = me.exchange_keys();
    if (!what.is_early && (what.event == "freed")) {
        strike(what, me);
    }
    if (!has_keys || !me.meet()) {
        _exit(0);
    }
    if (!what.is_early && (what.event != "freed")) {
        strike(what, me);
    }
    me.start();
    if ((what.event == "exit") || what.event.starts_with("there@")) {
        me.pass(random_delay());
        if (what.event == "exit") {
            std::exit(0);
        }
        me.close(what.event == "there@force");
    }
    me.await_end();
    /* UCP ignores how copies go by which it unpacks messages, and those by
     * which it stages long ones. */
    const bool is_unnoticed = (what.what == "tag") &&
                              (hlthunk_emu_faults_met() > 0) &&
                              (!me.is_source() || (what.bytes > longest_eager));
    const bool is_lost =
        what.loses_card() && me.is_of_card() && (hlthunk_emu_faults_met() > 0);
    (void)hlthunk_emu_fault(nullptr);
    if (!is_unnoticed && !is_lost && me.is_active()) {
        me.check(false);
    }
    socket.whisper(!me.is_good() ? 'n' : is_unnoticed ? 'f' : 'y');
    const bool is_put = (me.hear() == 'q');
    if (!is_unnoticed && !is_lost && !me.is_active()) {
        me.check(is_put);
    }
    me.close(true);
    std::fflush(stdout);
    _exit(0); /* UCP may have kept what it cannot end */
}

/* --- the survivor --------------------------------------------------------- */

class survivor {
public:
    /* Back to what there was, within a moment. */
    void expect_no_more_than(const counts &before)
    {
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
            mine_.step();
            now = count();
        }
    }

    void suffer(const task &what)
    {
        set_case(what.text);
        tag_ += depth;
        another_process other({"peer", what.text, std::to_string(tag_)});
        party me(what, true, tag_, common_, mine_, other.socket());
        const bool is_silent = (what.what == "unmet") || (what.what == "flood");
        if ((what.what == "unmet") && ((dice() & 1) != 0)) {
            other.end();
        }
        me.connect();
        if (!is_silent) {
            me.greet();
        }
        if (is_silent || (me.exchange_keys() && me.meet())) {
            if (what.event == "damage") {
                me.use_damaged_keys();
            }
            if (me.failure == UCS_OK) {
                me.start();
            }
            happen(what.event, me, other);
        }
        char heard = 0;
        if (what.event == "kill") {
            me.expect_failure();
        } else {
            me.await_end();
            if (!me.is_good()) {
                other.socket().whisper('x'); /* it waits no longer */
            }
            heard = me.hear();
        }
        const bool was_good = me.is_good();
        me.finish();
        judge(what, me, heard);
        if (was_good) {
            other.socket().whisper('q');
        }
        if (what.event == "kill") {
            other.end();
        } else {
            expect_end(what, other);
        }
    }

private:
    static void happen(const string &event, party &me, another_process &other)
    {
        if (event == "kill") {
            me.pass(random_delay());
            other.end();
        } else if (event == "stop") {
            other.send(SIGSTOP);
            me.pass(random_delay());
            other.send(SIGCONT);
        } else if (event.starts_with("here@")) {
            me.pass(random_delay());
            me.close(event == "here@force");
        }
    }

    static void judge(const task &what, party &me, char heard)
    {
        const ucs_status_t result = me.result();
        const bool must_be_good   = (what.event == "none") ||
                                  (what.event == "stop") ||
                                  (what.event == "damage");
        if (must_be_good && ((result != UCS_OK) || (heard != 'y'))) {
            die("an undisturbed operation", ucs_status_string(result));
        }
        if ((what.event == "freed") && (result != UCS_ERR_CONNECTION_RESET)) {
            die("an operation on freed memory", ucs_status_string(result));
        }
        if (heard != 'f') {
            me.check(heard == 'y');
        }
    }

    /* Well; or by the driver, or as UCP ends processes. */
    static void expect_end(const task &what, another_process &other)
    {
        const int status = other.wait();
        const bool well  = WIFEXITED(status) && (WEXITSTATUS(status) == 0);
        const bool by_signal =
            WIFSIGNALED(status) &&
            ((WTERMSIG(status) == SIGKILL) || (WTERMSIG(status) == SIGABRT));
        if (!well && !(what.is_fault() && by_signal)) {
            die("the other process", "ended badly");
        }
        if (!well && (WTERMSIG(status) == SIGABRT)) {
            std::puts("aborted");
        }
    }

    context common_;
    worker mine_{common_, UCS_THREAD_MODE_SINGLE};
    ucp_tag_t tag_ = 0;
};

} // namespace

int main(int argc, char **argv)
{
    start_program(life_s);
    if ((argc == 4) && (string(argv[1]) == "peer")) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return be_another(task(argv[2]), std::stoul(argv[3]));
    }
    if (argc < 4) {
        die("usage", "ucp_faults PASSES SEED CASE...");
    }
    const unsigned long passes = std::stoul(argv[1]);
    dice.seed(static_cast<unsigned>(std::stoul(argv[2])));
    survivor self;
    counts before{};
    for (unsigned long pass = 0; pass < passes; ++pass) {
        for (int i = 3; i < argc; ++i) {
            self.suffer(task(argv[i]));
        }
        self.suffer(task("put,1048576,gaudi,gaudi,here,none"));
        self.suffer(task("tag,1048576,gaudi,gaudi,there,none"));
        if (pass > 0) {
            self.expect_no_more_than(before);
        }
        before = count();
    }
    std::puts("all survived");
    if (party::has_left_some) { /* UCP would find its memory in use */
        std::fflush(stdout);
        _exit(0);
    }
    return 0;
}
