/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a worker bears, over the installed UCP within one process.
 *
 * usage: ucp_endpoints open COUNT    so many endpoints to one worker at a time
 *        ucp_endpoints reopen COUNT  one after the other, while the worker that
 *                                    they go to makes no progress
 *        ucp_endpoints signal        arming and signalling, without progress
 *        ucp_endpoints set NAME=VALUE...  a worker, and variables that the
 *                                    program sets before it calls UCP
 *        ucp_endpoints own LIST [PREFIX]  one to the own worker, with
 * transports that the program chooses by itself: LIST, unless it is empty, and
 * variables of PREFIX
 *
 * Messages come over some of the endpoints. No device memory is used.
 */
#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/side.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include <poll.h>

using namespace peer;

namespace {

constexpr unsigned life_s = 100;

/* An endpoint that a program can do away with, whatever its peer does. */
ucp_ep_h connect(const worker &from, const std::vector<char> &address)
{
    ucp_ep_h ep = nullptr;
    require(peer::connect(from, address, true, {}, ep), "ucp_ep_create");
    return ep;
}

void disconnect(ucp_ep_h ep, const std::vector<worker *> &workers)
{
    finish(peer::disconnect(ep, true), "ucp_ep_close_nbx", workers);
}

void send_and_receive(ucp_ep_h ep, worker &from, worker &to, uint64_t number,
                      size_t size = sizeof(uint64_t))
{
    const ucp_request_param_t defaults{};
    const std::vector<uint64_t> sent(size / sizeof(number), number);
    std::vector<uint64_t> came(sent.size(), ~number);
    operation coming(ucp_tag_recv_nbx(to.get(), came.data(), size, number,
                                      UINT64_MAX, &defaults),
                     "ucp_tag_recv_nbx");
    finish(ucp_tag_send_nbx(ep, sent.data(), size, number, &defaults),
           "ucp_tag_send_nbx", {&from, &to});
    finish(coming, {&from, &to});
    if (came != sent) {
        die("message " + std::to_string(number), "came as another one");
    }
}

struct two_workers {
    context of;
    worker from{of, UCS_THREAD_MODE_SINGLE};
    worker to{of, UCS_THREAD_MODE_SINGLE};
};

void open_at_a_time(unsigned count)
{
    two_workers both;
    auto &[of, from, to] = both;
    std::vector<ucp_ep_h> endpoints;
    for (unsigned i = 0; i < count; ++i) {
        set_case("endpoint " + std::to_string(i));
        endpoints.push_back(connect(from, to.address()));
    }
    for (unsigned i = 0; i < count; i += (count - 1) / 10) {
        set_case("message " + std::to_string(i));
        send_and_receive(endpoints[i], from, to, i);
    }
    for (ucp_ep_h ep : endpoints) {
        disconnect(ep, {&from, &to});
    }
}

void open_one_after_the_other(unsigned count)
{
    two_workers both;
    auto &[of, from, to] = both;
    for (unsigned i = 0; i < count; ++i) {
        set_case("endpoint " + std::to_string(i));
        disconnect(connect(from, to.address()), {&from});
    }
    set_case("the last endpoint");
    ucp_ep_h last = connect(from, to.address());
    send_and_receive(last, from, to, 1);
    disconnect(last, {&from, &to});
}

/* A program that waits for signals of other threads, and for nothing else. */
void be_signalled()
{
    context of({.how = waiting::worker_wait});
    worker one(of, UCS_THREAD_MODE_SINGLE);
    int fd;
    require(ucp_worker_get_efd(one.get(), &fd), "ucp_worker_get_efd");
    const auto is_readable = [fd] {
        pollfd wanted{fd, POLLIN, 0};
        return poll(&wanted, 1, 0) == 1;
    };
    const auto arm = [&one] {
        ucs_status_t status;
        do {
            status = ucp_worker_arm(one.get());
        } while (status == UCS_ERR_BUSY);
        require(status, "ucp_worker_arm");
    };

    set_case("a fresh worker");
    if (is_readable()) {
        die("its descriptor", "is readable");
    }
    for (unsigned i = 0; i < 3; ++i) {
        set_case("signal " + std::to_string(i));
        arm();
        require(ucp_worker_signal(one.get()), "ucp_worker_signal");
        if (!is_readable()) {
            die("the descriptor", "is not readable");
        }
        arm();
        if (is_readable()) {
            die("the descriptor", "is still readable");
        }
    }
}

/* Messages as short and as long as UCP treats otherwise. */
void choose_transports(const char *list, const char *prefix)
{
    context of({.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA,
                .configure =
                    [list](ucp_config_t *config) {
                        if (*list != '\0') {
                            require(ucp_config_modify(config, "TLS", list),
                                    list);
                        }
                    },
                .prefix = prefix});
    ucp_context_print_info(of.get(), stdout);
    worker one(of, UCS_THREAD_MODE_SINGLE);
    ucp_ep_h ep = nullptr;
    require(peer::connect(one, one.address(), false, {}, ep), "ucp_ep_create");
    for (const size_t size : {8, 1 << 20}) {
        send_and_receive(ep, one, one, 1, size);
        std::printf("%zu bytes: the same\n", size);
    }
    finish(peer::disconnect(ep, false), "ucp_ep_close_nbx", {&one});
}

} // namespace

int main(int argc, char **argv)
{
    start_program(life_s);
    const std::string what = (argc > 1) ? argv[1] : "";
    if ((argc == 3) && (what == "open")) {
        open_at_a_time(static_cast<unsigned>(std::stoul(argv[2])));
    } else if ((argc == 3) && (what == "reopen")) {
        open_one_after_the_other(static_cast<unsigned>(std::stoul(argv[2])));
    } else if ((argc == 2) && (what == "signal")) {
        be_signalled();
    } else if ((argc >= 3) && (what == "set")) {
        for (int i = 2; i < argc; ++i) {
            putenv(argv[i]);
        }
        context of;
        ucp_context_print_info(of.get(), stdout);
        worker one(of, UCS_THREAD_MODE_SINGLE);
    } else if ((argc >= 3) && (argc <= 4) && (what == "own")) {
        choose_transports(argv[2], argv[3]);
    } else {
        die("usage", "ucp_endpoints open COUNT | reopen COUNT | signal | "
                     "set NAME=VALUE... | own LIST [PREFIX]");
    }
    std::printf("all well\n");
    return 0;
}
