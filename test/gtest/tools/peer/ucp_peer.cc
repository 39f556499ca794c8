/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers over the installed UCP, with a look at every byte that moves, and
 * at those around: between two processes, or within one.
 *
 * usage: ucp_peer client|server TRAFFIC [OPTION...]
 *        ucp_peer alone TRAFFIC [OPTION...]
 *        ucp_peer ROLE agents|exports|endpoints|order ...    see ucp_WORD.cc
 *
 * Two sides run with the same arguments but the first, and file descriptor 3 is
 * a socket to the other one. The client sends, puts and gets. TRAFFIC is a list
 * with commas of "tag", "pieces", "am", "stream", "rma", and "rma-host", which
 * is RMA that leaves out device memory.
 *
 * options:
 *     handles      give memory handles also to receives into device memory
 *     many, sizes=A,B  more sizes than a few, or these
 *     info         print UCP's lanes and protocols at the end
 *     card-before  device memory of a card that the program opens by itself,
 *     card-after   before or after it opens UCP
 * of two sides:
 *     peer-errors  endpoints with peer error handling
 *     worker-wait  sleep in ucp_worker_wait
 *     event-fd     sleep on the worker's file descriptor
 *     shared=N     N threads that share a worker
 *     own=N        N threads, each with a worker of its own
 *     sockaddr     connect by socket address
 *     count        print what the engines of the own cards moved, one line per
 *                  transfer: "dma", its name and size, bytes host to device,
 *                  device to host, device to device and host to host, with tabs
 *     plain        do not tell UCP of heap memory, but for targets of the other
 *                  side's puts and gets
 * alone:
 *     second-card  the target's device memory is on another card
 *     late         no card can be had before UCP is open
 */
#include "gtest/tools/peer/cards.h"
#include "gtest/tools/peer/cases.h"
#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/programs.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <thread>

using namespace peer;

namespace {

constexpr unsigned life_s = 100;

/* Where the module gives out addresses of gaudi1, see base/card.cc. */
constexpr uint64_t on_second_card = 0x1001001800000000 + (uint64_t{1} << 41);

std::vector<std::string> split(const std::string &list)
{
    std::vector<std::string> result;
    std::istringstream stream(list);
    for (std::string one; std::getline(stream, one, ',');) {
        result.push_back(one);
    }
    return result;
}

struct options {
    bool is_client = false;
    std::vector<std::string> traffic;
    waiting how      = waiting::poll;
    unsigned threads = 1;
    bool shared      = false;
    std::vector<size_t> sizes{std::begin(few_sizes), std::end(few_sizes)};
    std::set<std::string> words{};

    [[nodiscard]] bool has(const char *word) const
    {
        return words.contains(word);
    }
};

options parse(int argc, char **argv)
{
    static const std::set<std::string> known = {
        "handles",     "info",  "card-before", "card-after",
        "peer-errors", "count", "plain",       "sockaddr",
        "second-card", "late",  "worker-wait", "event-fd"};
    options result{.is_client = (argv[1] == std::string("client")),
                   .traffic   = split(argv[2])};
    for (const std::string option : std::span(argv + 3, argv + argc)) {
        const std::string name = option.substr(0, option.find('='));
        const std::string value =
            (name == option) ? "" : option.substr(name.size() + 1);
        if (known.contains(option)) {
            result.words.insert(option);
        } else if (option == "many") {
            result.sizes.assign(std::begin(all_sizes), std::end(all_sizes));
        } else if (name == "sizes") {
            result.sizes.clear();
            for (const std::string &one : split(value)) {
                result.sizes.push_back(std::stoul(one));
            }
        } else if ((name == "shared") || (name == "own")) {
            result.shared  = (name == "shared");
            result.threads = static_cast<unsigned>(std::stoul(value));
        } else {
            die(option, "is no option of ucp_peer");
        }
    }
    if (result.has("worker-wait") || result.has("event-fd")) {
        result.how =
            result.has("event-fd") ? waiting::event_fd : waiting::worker_wait;
    }
    return result;
}

/* @param remote  Opens the targets' memory for the active end. */
void run_traffic(const options &how, const own_ends &ends,
                 const std::string &traffic, bool device_handles,
                 const std::function<remote_memories()> &remote)
{
    const auto kinds = message_kinds(traffic);
    if (traffic.starts_with("rma")) {
        run_rma(ends, remote(), how.sizes, traffic == "rma");
    } else if (!kinds.empty()) {
        run_messages(ends, kinds, how.sizes, device_handles);
    } else {
        die(traffic, "is no traffic");
    }
}

/* Those that are to come when UCP is open. */
void get_late_cards(const options &how)
{
    unsetenv("HABANA_VISIBLE_DEVICES");
    if (how.has("card-after")) {
        open_own_card();
    }
}

void print_info(const side &end)
{
    ucp_ep_print_info(end.ep(), stdout);
    ucp_worker_print_info(end.of().get(), stdout);
}

/* --- two processes -------------------------------------------------------- */

/* The own end of a new connection. */
side connect(const options &how, const channel &socket, worker &mine,
             unsigned number)
{
    const bool errors = how.has("peer-errors");
    if (!how.has("sockaddr")) {
        return {mine, number, socket.exchange(mine.address()), errors};
    }
    if (how.is_client) {
        sockaddr_in address;
        socket.receive(&address, sizeof(address));
        return {mine, number, address, errors};
    }
    listener waiting(mine);
    const sockaddr_in address = waiting.address();
    socket.send(&address, sizeof(address));
    return {mine, number, waiting.accept(), errors};
}

/* What a thread has. */
struct station {
    station(const options &wanted, channel to_other, worker &mine,
            unsigned number, const context &common)
        : how(wanted), socket(std::move(to_other)),
          end(connect(wanted, socket, mine, number)),
          own(common, wanted.sizes, 0,
              wanted.has("plain") &&
                  (wanted.is_client || !wanted.traffic[0].starts_with("rma")))
    {}

    const options &how;
    channel socket;
    side end;
    memories own;

    /* Both sides are here. The worker makes progress meanwhile: what is
     * complete on this side may still need it for the other. */
    void barrier()
    {
        char letter = '.';
        socket.say(letter);
        while (!socket.try_hear(letter)) {
            if (!end.of().progress()) {
                end.of().rest(socket.fd());
            }
        }
    }
};

/* What the own cards did for a transfer. */
void report(const transfer &what, const dma_count &moved)
{
    std::printf(
        "dma\t%s\t%zu\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\n",
        what.name.c_str(), what.size, moved.host_to_device,
        moved.device_to_host, moved.device_to_device, moved.host_to_host);
}

/* The server's memory, as the client reaches it. */
remote_memories exchange_keys(station &here)
{
    remote_memories result;
    for (const kind_of_memory kind : all_kinds) {
        if (here.how.is_client) {
            result.try_emplace(kind, here.end.ep(),
                               description::receive(here.socket));
        } else {
            here.own.at(kind).describe().send(here.socket);
        }
    }
    return result;
}

void run(station &here)
{
    dma_count before;
    own_ends ends{.meet = [&](const transfer &what, bool is_over) {
        if (here.how.has("count") && !is_over) {
            before = count_dma();
        }
        here.barrier();
        if (here.how.has("count") && is_over) {
            report(what, count_dma() - before);
        }
    }};
    (here.how.is_client ? ends.active : ends.passive)  = &here.end;
    (here.how.is_client ? ends.sources : ends.targets) = &here.own;
    for (const std::string &one : here.how.traffic) {
        run_traffic(here.how, ends, one, here.how.has("handles"),
                    [&] { return exchange_keys(here); });
    }
    set_case("the end");
    here.barrier();
    if (here.how.has("info")) {
        print_info(here.end);
    }
    finish(here.end.close(), {&here.end.of()});
    here.barrier();
}

/* What a thread does. A worker that it does not share is made, used and
 * destroyed by it alone. */
void live(const options &how, channel socket, unsigned number, context &common,
          worker *shared)
{
    set_case("the start");
    std::unique_ptr<worker> own;
    if (shared == nullptr) {
        own    = std::make_unique<worker>(common, UCS_THREAD_MODE_SINGLE);
        shared = own.get();
    }
    station here(how, std::move(socket), *shared, number, common);
    run(here);
}

void run_side(const options &how, context &common)
{
    std::unique_ptr<worker> shared;
    if (how.shared) {
        shared = std::make_unique<worker>(common, UCS_THREAD_MODE_MULTI);
    }
    get_late_cards(how);
    const channel first(peer_fd);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < how.threads; ++i) {
        threads.emplace_back(
            [&, i](channel socket) {
                live(how, std::move(socket), i, common, shared.get());
            },
            how.is_client ? first.make_another() : first.accept_another());
    }
    for (std::thread &one : threads) {
        one.join();
    }
    std::puts(how.is_client ? "all sent" : "all received");
}

/* --- one process ---------------------------------------------------------- */

void run_alone(const options &how, context &common)
{
    worker mine(common, UCS_THREAD_MODE_SINGLE);
    get_late_cards(how);
    memories sources(common, how.sizes);
    memories targets(common, how.sizes,
                     how.has("second-card") ? on_second_card : 0);
    side end(mine, 0, mine.address());
    const own_ends both{&end, &sources, &end, &targets};
    for (const std::string &traffic : how.traffic) {
        run_traffic(how, both, traffic, traffic != "pieces",
                    [&] { return targets.open_from(end); });
    }
    set_case("the end");
    if (how.has("info")) {
        print_info(end);
    }
    both.finish(end.close());
}

int run_transfers(int argc, char **argv)
{
    start_program(life_s);
    const options how = parse(argc, argv);
    if (how.has("late")) {
        setenv("HABANA_VISIBLE_DEVICES", "none", 1);
    }
    if (how.has("card-before")) {
        open_own_card();
    }
    context common({.shared = (how.threads > 1), .how = how.how});
    if (argv[1] == std::string("alone")) {
        run_alone(how, common);
        std::puts("all there");
    } else {
        run_side(how, common);
    }
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    const std::map<std::string, int (*)(int argc, char **argv)> programs = {
        {"agents", run_agents},
        {"exports", run_exports},
        {"endpoints", run_endpoints},
        {"order", run_order}};
    if (argc < 3) {
        die("usage", "ucp_peer client|server|alone WHAT [OPTION...]");
    }
    const auto found = programs.find(argv[2]);
    return (found == programs.end()) ? run_transfers(argc, argv)
                                     : found->second(argc - 1, argv + 1);
}
