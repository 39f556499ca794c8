/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One side of transfers over the installed UCP; the other side is a second
 * process. Each looks at every byte that moves, and at those around.
 *
 * usage: ucp_peer client|server TRAFFIC [OPTION...]
 *
 * File descriptor 3 is a socket to the other side, which runs with the same
 * arguments but the first. The client sends, puts and gets. TRAFFIC is a list
 * with commas of "tag", "pieces", "am", "stream", "rma", and "rma-host", which
 * is RMA that leaves out device memory.
 *
 * options:
 *     few          a few sizes only
 *     handles      give memory handles also to receives into device memory
 *     peer-errors  endpoints with peer error handling
 *     worker-wait  sleep in ucp_worker_wait
 *     event-fd     sleep on the worker's file descriptor
 *     shared=N     N threads that share a worker
 *     own=N        N threads, each with a worker of its own
 *     sizes=A,B    these sizes only, with commas
 *     sockaddr     connect by socket address
 *     count        print what the engines of the own cards moved, one line per
 *                  transfer: "dma", its name and size, bytes host to device,
 *                  device to host, device to device and host to host, and the
 *                  number of jobs, with tabs
 *     plain        do not tell UCP of heap memory, but for targets of the other
 *                  side's puts and gets
 *     info         print UCP's lanes and protocols at the end
 *     card-before  device memory of a card that the program opens by itself,
 *     card-after   before or after it opens UCP
 */
#include "gtest/tools/peer/cards.h"
#include "gtest/tools/peer/cases.h"
#include "gtest/tools/peer/check.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>

using namespace peer;

namespace {

constexpr unsigned life_s = 100;

struct options {
    bool is_client = false;
    std::string traffic;
    bool few         = false;
    bool handles     = false;
    bool peer_errors = false;
    waiting how      = waiting::poll;
    unsigned threads = 1;
    bool shared      = false;
    bool card_before = false;
    bool card_after  = false;
    bool sockaddr    = false;
    bool count       = false;
    bool plain       = false;
    bool info        = false;
    std::vector<size_t> sizes; /* empty: all, or few */
};

std::span<const size_t> sizes_of(const options &how)
{
    if (!how.sizes.empty()) {
        return how.sizes;
    }
    return how.few ? std::span<const size_t>(few_sizes) : all_sizes;
}

[[noreturn]] void refuse(const std::string &argument)
{
    die(argument, "is no argument of ucp_peer client|server TRAFFIC "
                  "[OPTION...]");
}

options parse(int argc, char **argv)
{
    options result;
    if (argc < 3) {
        refuse("nothing");
    }
    result.is_client = (std::strcmp(argv[1], "client") == 0);
    result.traffic   = argv[2];
    const std::map<std::string, bool *> switches = {
        {"few", &result.few},
        {"handles", &result.handles},
        {"peer-errors", &result.peer_errors},
        {"card-before", &result.card_before},
        {"card-after", &result.card_after},
        {"sockaddr", &result.sockaddr},
        {"count", &result.count},
        {"plain", &result.plain},
        {"info", &result.info}};
    for (int i = 3; i < argc; ++i) {
        const std::string option = argv[i];
        const std::string name   = option.substr(0, option.find('='));
        const std::string value =
            (name == option) ? "" : option.substr(name.size() + 1);
        if (switches.contains(option)) {
            *switches.at(option) = true;
        } else if (option == "worker-wait") {
            result.how = waiting::worker_wait;
        } else if (option == "event-fd") {
            result.how = waiting::event_fd;
        } else if (name == "sizes") {
            std::istringstream list(value);
            for (std::string one; std::getline(list, one, ',');) {
                result.sizes.push_back(std::stoul(one));
            }
        } else if ((name == "shared") || (name == "own")) {
            result.shared  = (name == "shared");
            result.threads = static_cast<unsigned>(std::stoul(value));
        } else {
            refuse(option);
        }
    }
    return result;
}

/* The own end of a new connection. */
side connect(const options &how, const channel &socket, worker &mine,
             unsigned number)
{
    if (!how.sockaddr) {
        return {mine, number, socket.exchange(mine.address()), how.peer_errors};
    }
    if (how.is_client) {
        sockaddr_in address;
        socket.receive(&address, sizeof(address));
        return {mine, number, address, how.peer_errors};
    }
    listener waiting(mine);
    const sockaddr_in address = waiting.address();
    socket.send(&address, sizeof(address));
    return {mine, number, waiting.accept(), how.peer_errors};
}

/* What a thread has. */
struct station {
    station(const options &wanted, channel to_other, worker &mine,
            unsigned number, const context &common)
        : how(wanted), socket(std::move(to_other)),
          end(connect(wanted, socket, mine, number)),
          own(common, sizes_of(wanted), 0,
              wanted.plain &&
                  (wanted.is_client ||
                   (wanted.traffic.find("rma") == std::string::npos)))
    {}

    const options &how;
    channel socket;
    side end;
    memories own;

    [[nodiscard]] worker &of() const { return end.of(); }

    /* Both sides are here. The worker makes progress meanwhile: what is
     * complete on this side may still need it for the other. */
    void barrier()
    {
        char letter = '.';
        socket.say(letter);
        while (!socket.try_hear(letter)) {
            if (!of().progress()) {
                of().rest(socket.fd());
            }
        }
    }

    void finish(operation going) { peer::finish(going, {&of()}); }
};

/* What the own cards did for a transfer. */
void report(const transfer &what, const dma_count &moved)
{
    std::printf("dma\t%s\t%zu\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64
                "\t%" PRIu64 "\n",
                what.name.c_str(), what.size, moved.host_to_device,
                moved.device_to_host, moved.device_to_device,
                moved.host_to_host, moved.jobs);
}

/* The server's memory, as the client reaches it. */
remote_memories exchange_keys(station &here)
{
    remote_memories result;
    if (here.how.is_client) {
        for (const kind_of_memory kind : all_kinds) {
            result.try_emplace(kind, here.end.ep(),
                               description::receive(here.socket));
        }
        return result;
    }
    std::vector<description> told;
    for (const kind_of_memory kind : all_kinds) {
        told.push_back(here.own.at(kind).describe());
    }
    for (const description &one : told) {
        one.send(here.socket);
    }
    return result;
}

void run_traffic(station &here, const std::string &traffic)
{
    dma_count before;
    own_ends ends{.meet = [&](const transfer &what, bool is_over) {
        if (here.how.count && !is_over) {
            before = count_dma();
        }
        here.barrier();
        if (here.how.count && is_over) {
            report(what, count_dma() - before);
        }
    }};
    (here.how.is_client ? ends.active : ends.passive)  = &here.end;
    (here.how.is_client ? ends.sources : ends.targets) = &here.own;

    const auto sizes = sizes_of(here.how);
    if ((traffic == "rma") || (traffic == "rma-host")) {
        run_rma(ends, exchange_keys(here), sizes, traffic == "rma");
        return;
    }
    const auto kinds = message_kinds(traffic);
    if (kinds.empty()) {
        refuse(traffic);
    }
    run_messages(ends, kinds, sizes, here.how.handles);
}

void run(station &here)
{
    std::istringstream traffics(here.how.traffic);
    for (std::string one; std::getline(traffics, one, ',');) {
        run_traffic(here, one);
    }
    set_case("the end");
    here.barrier();
    if (here.how.info) {
        ucp_ep_print_info(here.end.ep(), stdout);
        ucp_worker_print_info(here.of().get(), stdout);
    }
    here.finish(here.end.close());
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

} // namespace

int main(int argc, char **argv)
{
    start_program(life_s);
    const options how = parse(argc, argv);
    if (how.card_before) {
        open_own_card();
    }
    context common({.shared = (how.threads > 1), .how = how.how});
    if (how.card_after) {
        open_own_card();
    }

    std::unique_ptr<worker> shared;
    if (how.shared) {
        shared = std::make_unique<worker>(common, UCS_THREAD_MODE_MULTI);
    }
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
    return 0;
}
