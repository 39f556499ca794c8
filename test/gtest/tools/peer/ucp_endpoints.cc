/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a worker bears, within one process, without device memory.
 *
 * usage:
 *        ucp_peer alone endpoints set NAME=VALUE...  a worker, and variables
 *                          that the program sets before it calls UCP
 *        ucp_peer alone endpoints own LIST [PREFIX]  one to the own worker,
 * with transports that the program chooses by itself: LIST, unless it is empty,
 * and variables of PREFIX
 */
#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/programs.h"
#include "gtest/tools/peer/side.h"

#include <cstdio>
#include <cstdlib>
#include <string>

using namespace peer;

namespace {

constexpr unsigned life_s = 100;

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

int peer::run_endpoints(int argc, char **argv)
{
    start_program(life_s);
    const std::string what = (argc > 2) ? argv[2] : "";
    if ((argc > 3) && (what == "set")) {
        for (int i = 3; i < argc; ++i) {
            putenv(argv[i]);
        }
        context of;
        ucp_context_print_info(of.get(), stdout);
        worker one(of, UCS_THREAD_MODE_SINGLE);
    } else if ((argc > 3) && (what == "own")) {
        choose_transports(argv[3], argv[4]);
    } else {
        die("endpoints", "has other arguments");
    }
    std::printf("all well\n");
    return 0;
}
