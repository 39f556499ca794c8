/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tag messages between two processes, in the middle of which something happens
 * to one of them: all end, with the right bytes or with an error, others go on,
 * and nothing is kept of an endpoint that is closed.
 *
 * usage: ucp_interruptions client|server BYTES peer|none EVENT...
 *
 *   BYTES       of each message
 *   peer, none  the endpoints' error handling
 *   EVENT       flush|force|reset, COUNT@client|server: this side closes its
 *               endpoint so, or its card is reset (the last event then), when
 *               COUNT of its messages have ended
 *
 * File descriptor 3 is a socket to the other side. The client sends from each
 * kind of memory to each. Whoever has lost the other side, or hears that it has
 * ended, waits no longer: UCP tells the peer of a rendezvous nothing.
 */
#include "hlthunk_emulator/hlthunk_emu.h"
#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/counts.h"
#include "gtest/tools/peer/memory.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include <unistd.h>

using namespace peer;
using namespace std::chrono_literals;

namespace {

constexpr unsigned life_s = 80;
/* Nothing here takes as long as that, unless it hangs. */
constexpr auto patience = 20s;
/* For what is on its way when the other side has ended. */
constexpr auto grace = 100ms;
/* Of a connection that is of no use any more until there is another one. */
constexpr ptrdiff_t more_files   = 1;
constexpr unsigned of_each_pair  = 2;
constexpr unsigned received_seed = 1;
constexpr unsigned sent_seed     = 2; /* of the first message, and so on */
constexpr kind_of_memory kinds[] = {kind_of_memory::gaudi,
                                    kind_of_memory::heap};

using time_point = std::chrono::steady_clock::time_point;

time_point now()
{
    return std::chrono::steady_clock::now();
}

struct event {
    explicit event(const std::string &text)
        : name(text.substr(0, text.find_first_of("0123456789"))),
          after(std::stoul(text.substr(name.size()))),
          side(text.substr(text.find('@') + 1))
    {}

    std::string name;
    size_t after;
    std::string side;
};

/* One's side of a message. */
struct message {
    message(const context &of, kind_of_memory kind, size_t bytes)
        : where(of, kind, bytes + 2 * guard), place{where, guard, bytes, true}
    {}

    [[nodiscard]] bool has_ended()
    {
        if (UCS_PTR_IS_PTR(request)) {
            status = ucp_request_check_status(request);
            if (status != UCS_INPROGRESS) {
                ucp_request_free(request);
                request = nullptr;
            }
        }
        return status != UCS_INPROGRESS;
    }

    memory where;
    slot place;
    ucp_request_param_t parameters = parameters_for(place);
    ucs_status_ptr_t request       = nullptr;
    ucs_status_t status            = UCS_OK;
};

class player {
public:
    player(const std::string &role, size_t bytes, bool errors)
        : role_(role), errors_(errors)
    {
        for (const kind_of_memory from : kinds) {
            for (const kind_of_memory to : kinds) {
                for (unsigned i = 0; i < of_each_pair; ++i) {
                    all_.emplace_back(common_, sends() ? from : to, bytes);
                }
            }
        }
        connect(others_, false, other_ep_);
    }

    /* @return Whether there may be another one. */
    bool play(const event &what)
    {
        set_case(role_ + ", " + what.name + std::to_string(what.after) + "@" +
                 what.side);
        connect(mine_, errors_, ep_);
        start();
        heard_.reset();
        wait([&] { return is_over(what); }, "a message");
        socket_.whisper('e');
        wait([&] { return heard_.has_value(); }, "the other side");
        if (*heard_ != 0) {
            pass_a_word(others_, other_ep_);
        }
        const bool closed = close();
        check();
        const bool goes_on = closed && (*heard_ != 0);
        socket_.whisper(goes_on ? 'g' : 's');
        heard_.reset();
        wait([&] { return heard_.has_value(); }, "the other side");
        return goes_on && (*heard_ == 'g');
    }

    /* No more than there was, within a moment. */
    void expect_files(ptrdiff_t before)
    {
        wait([&] { return count().files <= before + more_files; },
             "descriptors");
    }

private:
    [[nodiscard]] bool sends() const { return role_ == "client"; }

    /* With a handler UCP ends no process. */
    void connect(worker &of, bool errors, ucp_ep_h &ep)
    {
        const auto ignore = [](void *, ucp_ep_h, ucs_status_t) {};
        require(peer::connect(of, socket_.exchange(of.address()), errors,
                              {ignore, nullptr}, ep),
                "ucp_ep_create");
        pass_a_word(of, ep);
    }

    /* Each way. */
    void pass_a_word(worker &by, ucp_ep_h ep)
    {
        char word = 'w';
        const ucp_request_param_t defaults{};
        for (ucs_status_ptr_t request :
             {ucp_tag_recv_nbx(by.get(), &word, 1, 0, UINT64_MAX, &defaults),
              ucp_tag_send_nbx(ep, &word, 1, 0, &defaults)}) {
            operation passing(request, "a word");
            wait([&] { return passing.done(); }, "a word");
        }
    }

    void start()
    {
        ucp_tag_t tag = 0;
        for (message &each : all_) {
            prepare(each.place, sends() ? sent_seed + tag : received_seed);
            ++tag;
            each.request =
                sends()
                    ? ucp_tag_send_nbx(ep_, each.place.data(), each.place.size,
                                       tag, &each.parameters)
                    : ucp_tag_recv_nbx(mine_.get(), each.place.data(),
                                       each.place.size, tag, UINT64_MAX,
                                       &each.parameters);
            each.status = UCS_PTR_STATUS(each.request);
        }
    }

    size_t ended()
    {
        return static_cast<size_t>(std::ranges::count_if(
            all_, [](message &each) { return each.has_ended(); }));
    }

    bool is_over(const event &what)
    {
        const size_t count = ended();
        if ((what.side == role_) && (ep_ != nullptr) && !is_lost_ &&
            (count >= what.after)) {
            happen(what.name);
        }
        if (heard_.has_value() && !given_up_.has_value()) {
            given_up_ = now() + grace;
        }
        return (count == all_.size()) ||
               (given_up_.has_value() && (now() > *given_up_));
    }

    void happen(const std::string &what)
    {
        if (what == "reset") {
            is_lost_ = true;
            if (hlthunk_emu_fault("now=reset") != 0) {
                die("the card", "is not reset");
            }
        } else {
            closing_ = disconnect(std::exchange(ep_, nullptr), what == "force");
        }
    }

    /* What is left of the messages ends with the endpoint, if that has error
     * handling. */
    bool close()
    {
        given_up_.reset();
        if (ep_ != nullptr) {
            closing_ = disconnect(std::exchange(ep_, nullptr), errors_);
        }
        for (message &each : all_) {
            if (!sends() && !each.has_ended()) {
                ucp_request_cancel(mine_.get(), each.request);
            }
        }
        const time_point end = now() + grace;
        const bool may_hang =
            !errors_ && ((ended() < all_.size()) || (heard_ == 0));
        bool closed = false;
        wait(
            [&] {
                closed =
                    (ended() == all_.size()) &&
                    (!UCS_PTR_IS_PTR(closing_) ||
                     (ucp_request_check_status(closing_) != UCS_INPROGRESS));
                return closed || (may_hang && (now() > end));
            },
            "closing");
        if (closed && UCS_PTR_IS_PTR(closing_)) {
            ucp_request_free(closing_);
        }
        return closed;
    }

    /* What has come is right, unless it went with the card. */
    void check()
    {
        unsigned seed = sent_seed;
        for (message &each : all_) {
            std::printf("%s\n", ucs_status_string(each.status));
            if (!sends() && (each.status == UCS_OK) &&
                !(is_lost_ && (each.where.kind() == kind_of_memory::gaudi))) {
                expect(each.place, seed, received_seed);
            }
            ++seed;
        }
    }

    template <typename Condition>
    void wait(Condition &&is_met, const char *what)
    {
        const time_point start = now();
        while (!is_met()) {
            others_.step();
            mine_.step();
            if (!heard_.has_value()) {
                heard_ = socket_.listen();
            }
            if (now() > start + patience) {
                die(what, "hangs");
            }
        }
    }

    const std::string role_;
    const bool errors_;
    context common_;
    worker mine_{common_, UCS_THREAD_MODE_SINGLE};
    worker others_{common_, UCS_THREAD_MODE_SINGLE};
    const channel socket_{peer_fd};
    ucp_ep_h ep_              = nullptr;
    ucp_ep_h other_ep_        = nullptr;
    ucs_status_ptr_t closing_ = nullptr;
    std::deque<message> all_;
    std::optional<char> heard_ = 'g'; /* a letter, while none is awaited */
    std::optional<time_point> given_up_;
    bool is_lost_ = false;
};

} // namespace

int main(int argc, char **argv)
{
    start_program(life_s);
    if (argc < 5) {
        die("usage",
            "ucp_interruptions client|server BYTES peer|none EVENT...");
    }
    player here(argv[1], std::stoul(argv[2]), std::string(argv[3]) == "peer");
    ptrdiff_t before = 0;
    for (int i = 4; i < argc; ++i) {
        const bool goes_on = here.play(event(argv[i]));
        if (i + 1 < argc) {
            if (!goes_on) {
                die("the endpoint", "is not closed");
            }
            if (i == 5) {
                before = count().files;
            } else if (i > 5) {
                here.expect_files(before);
            }
        }
    }
    std::puts("all ended");
    std::fflush(stdout);
    _exit(0); /* UCP may have kept what it cannot end */
}
