/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers over the installed UCP within one process and thread, with a look
 * at every byte that moves, and at those around.
 *
 * usage: ucp_own_worker worker|workers|contexts TRAFFIC [CARD]
 *
 * From a worker to itself, to another worker of its context, or to one of
 * another context. TRAFFIC is "tag", "pieces", "am", "stream", "rma", or
 * "flushed": many puts and gets, whose end a flush alone tells. CARD is
 * "second-card", where the target's device memory is to be, or "late-card" or
 * "late-own-card": none can be had when UCP is opened; later UCP gets one, or
 * the program. Prints what UCP says of the endpoint and of the worker.
 */
#include "gtest/tools/peer/cards.h"
#include "gtest/tools/peer/cases.h"
#include "gtest/tools/peer/check.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <unistd.h>

using namespace peer;

namespace {

constexpr unsigned life_s = 100;

/* Where the module gives out addresses of gaudi1, see base/card.cc. */
constexpr uint64_t on_second_card = 0x1001001800000000 + (uint64_t{1} << 41);

enum class flush { endpoint, worker, behind_fence, closing };

/* More operations than fit into staging memory, so that UCP has some waiting
 * when it is to flush. */
constexpr size_t piece  = 1500;
constexpr size_t pieces = 200;

/* Nothing waits for them one by one. */
void start_pieces(const side &by, bool is_put, const slot &local,
                  const remote_memory &remote, size_t remote_offset)
{
    const ucp_request_param_t params{};
    for (size_t at = 0; at < local.size; at += piece) {
        const uint64_t there = remote.address() + remote_offset + at;
        const ucs_status_ptr_t request =
            is_put ? ucp_put_nbx(by.ep(), local.data() + at, piece, there,
                                 remote.key(), &params)
                   : ucp_get_nbx(by.ep(), local.data() + at, piece, there,
                                 remote.key(), &params);
        if (UCS_PTR_IS_ERR(request)) {
            die("put or get", ucs_status_string(UCS_PTR_STATUS(request)));
        }
        if (UCS_PTR_IS_PTR(request)) {
            ucp_request_free(request);
        }
    }
}

operation start_flush(side &by, flush how)
{
    const ucp_request_param_t params{};
    switch (how) {
    case flush::closing:
        return by.close();
    case flush::worker:
        return {ucp_worker_flush_nbx(by.of().get(), &params),
                "ucp_worker_flush_nbx"};
    case flush::behind_fence:
        if (ucp_worker_fence(by.of().get()) != UCS_OK) {
            die("ucp_worker_fence", "it failed");
        }
        [[fallthrough]];
    default:
        return {ucp_ep_flush_nbx(by.ep(), &params), "ucp_ep_flush_nbx"};
    }
}

void run_flushed(const own_ends &both)
{
    constexpr kind_of_memory kinds[] = {kind_of_memory::heap,
                                        kind_of_memory::gaudi};
    unsigned seed                    = 10;
    for (const flush how : {flush::endpoint, flush::worker, flush::behind_fence,
                            flush::closing}) {
        for (const auto from : kinds) {
            for (const auto to : kinds) {
                for (const bool is_put : {true, false}) {
                    const transfer what{.name            = "",
                                        .from            = from,
                                        .to              = to,
                                        .size            = piece * pieces,
                                        .seed            = ++seed,
                                        .skew_from       = 1,
                                        .skew_to         = 2,
                                        .registered_from = false,
                                        .registered_to   = false};
                    set_case("flush " + std::to_string(static_cast<int>(how)) +
                             ", " + (is_put ? "put from " : "get to ") +
                             name_of(from) + ", remote " + name_of(to));
                    const slot local  = both.sources->from(what);
                    const slot remote = both.targets->to(what);
                    prepare(is_put ? local : remote, what.seed);
                    prepare(is_put ? remote : local, seed_before);
                    side by(both.active->of(), seed,
                            both.passive->of().address());
                    {
                        const auto memory = both.targets->open_from(by);
                        start_pieces(by, is_put, local, memory.at(to),
                                     remote.offset);
                        both.finish(start_flush(by, how));
                    }
                    expect(local, what.seed, is_put ? what.seed : seed_before);
                    expect(remote, what.seed, is_put ? seed_before : what.seed);
                    if (how != flush::closing) {
                        both.finish(by.close());
                    }
                }
            }
        }
    }
}

void run(const own_ends &both, const std::string &traffic)
{
    const auto kinds = message_kinds(traffic);
    if (traffic == "flushed") {
        run_flushed(both);
    } else if (traffic == "rma") {
        run_rma(both, both.targets->open_from(*both.active), all_sizes, true);
    } else if (kinds.empty()) {
        die(traffic, "is no traffic");
    } else {
        run_messages(both, kinds, all_sizes, traffic != "pieces");
    }
}

} // namespace

int main(int argc, char **argv)
{
    start_program(life_s);
    const std::string where = (argc >= 3) ? argv[1] : "";
    const std::string card  = (argc >= 4) ? argv[3] : "";
    if (((where != "worker") && (where != "workers") &&
         (where != "contexts")) ||
        (argc > 4) ||
        (!card.empty() && (card != "second-card") && (card != "late-card") &&
         (card != "late-own-card"))) {
        die("usage", "ucp_own_worker worker|workers|contexts TRAFFIC "
                     "[second-card|late-card|late-own-card]");
    }
    const bool late = card.starts_with("late");
    if (late) {
        setenv("HABANA_VISIBLE_DEVICES", "none", 1);
    }

    context first_context;
    worker first_worker(first_context, UCS_THREAD_MODE_SINGLE);
    std::unique_ptr<context> second_context;
    std::unique_ptr<worker> second_worker;
    if (where == "contexts") {
        second_context = std::make_unique<context>();
    }
    context &other_context = second_context ? *second_context : first_context;
    if (where != "worker") {
        second_worker =
            std::make_unique<worker>(other_context, UCS_THREAD_MODE_SINGLE);
    }
    worker &other_worker = second_worker ? *second_worker : first_worker;
    if (late) {
        unsetenv("HABANA_VISIBLE_DEVICES");
    }
    if (card == "late-own-card") {
        open_own_card();
    }

    {
        memories sources(first_context, all_sizes);
        memories targets(other_context, all_sizes,
                         (card == "second-card") ? on_second_card : 0);
        side active(first_worker, 0, other_worker.address());
        std::unique_ptr<side> passive;
        if (second_worker) {
            passive =
                std::make_unique<side>(other_worker, 0, first_worker.address());
        }
        const own_ends both{&active, &sources,
                            passive ? passive.get() : &active, &targets};
        run(both, argv[2]);
        set_case("the end");
        ucp_ep_print_info(active.ep(), stdout);
        ucp_worker_print_info(first_worker.get(), stdout);
        both.finish(active.close());
        if (passive) {
            both.finish(passive->close());
        }
    }
    second_worker.reset();
    std::puts("all there");
    return 0;
}
