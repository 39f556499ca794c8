/*
 * Transfers over the installed UCP within one process and thread, with a look
 * at every byte that moves, and at those around.
 *
 * usage: ucp_own_worker worker|workers|contexts TRAFFIC [CARD]
 *
 * From a worker to itself, to another worker of its context, or to one of
 * another context. TRAFFIC is "tag", "pieces", "am", "stream" or "rma". CARD is
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

/* Sender and receiver, initiator and target: maybe one and the same. */
struct pair_of_sides {
    side &active;
    side &passive;
    memories &sources;
    memories &targets;

    void finish(operation going) const
    {
        peer::finish(going, {&active.of(), &passive.of()});
    }
};

void run_messages(const pair_of_sides &both,
                  std::span<const message_kind> kinds, bool device_handles)
{
    for_each_message(kinds, all_sizes, device_handles,
                     [&](const message_kind &kind, const transfer &what) {
                         set_case(what.name);
                         const slot from = both.sources.from(what);
                         const slot to   = both.targets.to(what);
                         prepare(from, what.seed);
                         prepare(to, seed_before);
                         if (kind.receives_first) {
                             operation coming = kind.receive(both.passive, to);
                             both.finish(kind.send(both.active, from));
                             both.finish(coming);
                         } else {
                             operation going = kind.send(both.active, from);
                             if (kind.has_come != nullptr) {
                                 both.finish(operation([&] {
                                     return kind.has_come(both.passive, to);
                                 }));
                             }
                             both.finish(kind.receive(both.passive, to));
                             both.finish(going);
                         }
                         expect(from, what.seed, what.seed);
                         expect(to, what.seed, seed_before);
                     });
}

void run_rma(const pair_of_sides &both)
{
    const auto remote = both.targets.open_from(both.active);
    for_each_rma(
        all_sizes, true, [&](const rma_kind &kind, const transfer &what) {
            set_case(what.name);
            const slot local           = both.sources.from(what);
            const slot target          = both.targets.to(what);
            const unsigned seed_local  = kind.is_put ? what.seed : seed_before;
            const unsigned seed_target = kind.is_put ? seed_before : what.seed;
            prepare(local, seed_local);
            prepare(target, seed_target);
            both.finish(kind.start(both.active, local, remote.at(what.to),
                                   guard + what.skew_to));
            expect(local, what.seed, seed_local);
            expect(target, what.seed, seed_target);
        });
}

void run(const pair_of_sides &both, const std::string &traffic)
{
    const auto kinds = message_kinds(traffic);
    if (traffic == "rma") {
        run_rma(both);
    } else if (kinds.empty()) {
        die(traffic, "is no traffic");
    } else {
        run_messages(both, kinds, traffic != "pieces");
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
        const pair_of_sides both{active, passive ? *passive : active, sources,
                                 targets};
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
