/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two agents of a serving system: the client's reads and writes lists of blocks
 * in the server's memory, both look at every byte, and what they tell each
 * other meanwhile are notifications. See agent.h for whose calls these are.
 *
 * usage: ucp_agents client|server CASE COUNT [OPTION...]
 *
 *   blocks    lists of COUNT blocks, put and get, between all kinds of memory
 *   wake      COUNT notifications there and back
 *   churn     while lists are on their way, other memory comes and goes, COUNT
 *             times
 *   abandon   COUNT lists are dropped on their way
 *   withdraw  COUNT times the server takes memory back that is written into
 *   unknown   the client is given COUNT cut and COUNT changed keys, a
 *             stranger's, and those of memory and a process that are no more
 *   lanes     a list of COUNT blocks; then the client prints its endpoint
 *   end       the server ends while COUNT lists are on their way, and closes
 *             nothing
 *
 * options:
 *     thread       a progress thread, and two threads with lists
 *     workers=N    so many workers of an agent, each with a thread for lists
 *     no-errors    endpoints without error handling
 *     lists        one call for each list, where UCP has that
 *     host         leave out device memory
 *     card         device memory of a card that the program opens by itself
 *
 * File descriptor 3 is a socket to the other side, for addresses and keys.
 */
#include "gtest/tools/peer/cache.h"
#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/unknown.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

using namespace peer;

namespace {

constexpr unsigned life_s = 100;
/* Of lists that are there to be on their way. */
constexpr shape load{512, 32768};
/* Of lists that are tried. */
constexpr shape few{8, 65536};

struct agent_case {
    bool is_client = false;
    std::string what;
    size_t count         = 0;
    bool host            = false;
    bool card            = false;
    agent_options agents = {};
};

/* Dies of words that it does not know. */
agent_case parse_case(int argc, char **argv)
{
    if (argc < 4) {
        die("usage", "ucp_agents client|server CASE COUNT [OPTION...]");
    }
    agent_case result{.is_client = (std::strcmp(argv[1], "client") == 0),
                      .what      = argv[2],
                      .count     = std::stoul(argv[3])};
    for (const std::string option : std::span(argv + 4, argv + argc)) {
        if (option == "thread") {
            result.agents.progress_thread = true;
        } else if (option.starts_with("workers=")) {
            result.agents.workers = static_cast<unsigned>(
                std::stoul(option.substr(option.find('=') + 1)));
        } else if (option == "no-errors") {
            result.agents.peer_errors = false;
        } else if (option == "lists") {
            result.agents.lists = true;
        } else if (option == "host") {
            result.host = true;
        } else if (option == "card") {
            result.card = true;
        } else {
            die(option, "is no option");
        }
    }
    return result;
}

/* One of the two, connected to the other. */
class party {
public:
    explicit party(const agent_case &how) : how_(how), agent_(how.agents)
    {
        to_.emplace(agent_, socket_.exchange(agent_.address()));
    }

    void run();

private:
    using both_kinds = std::pair<kind_of_memory, kind_of_memory>;

    void say(const std::string &text) { to_->notify(text); }
    void hear(const std::string &text)
    {
        const std::string came = agent_.await_notification();
        if (came != text) {
            die("the notification " + text, "came as " + came);
        }
    }

    /* Until the other side writes a letter to the socket. */
    void await_letter()
    {
        char letter = 0;
        while (!socket_.try_hear(letter)) {
            agent_.progress();
        }
    }

    /* All blocks of a list, until they are there. */
    void put(const std::vector<block> &list, const char *what)
    {
        require(transfer(*to_, 0).run(direction::put, list), what);
    }

    /* Blocks of either side, the server's told to the client. */
    struct blocks {
        blocks(party &of, const both_kinds &kinds, const shape &size)
            : mine(of.agent_, of.framework_,
                   of.how_.is_client ? kinds.first : kinds.second, size)
        {
            mine.add();
            tell(of);
        }
        void tell(party &of)
        {
            if (of.how_.is_client) {
                described = receive_descriptions(of.socket_);
                theirs.emplace(*of.to_, described);
                require(theirs->status(), "ucp_ep_rkey_unpack");
            } else {
                mine.describe(of.socket_);
            }
        }
        [[nodiscard]] std::vector<block> list() const
        {
            return list_of(mine, *theirs);
        }
        cache mine;
        std::vector<description> described;
        std::optional<remote_cache> theirs;
    };

    [[nodiscard]] std::vector<both_kinds> kinds() const;
    [[nodiscard]] kind_of_memory favourite() const
    {
        return how_.host ? kind_of_memory::heap : kind_of_memory::gaudi;
    }
    void move(direction what, blocks &all);
    void move_by_threads(direction what, const std::vector<block> &list);
    void move_all();
    void wake();
    void churn();
    void use_what_comes_and_goes();
    void abandon();
    void withdraw();
    void try_keys(const blocks &all);
    void unknown();
    void show_lanes();
    void lose_the_server();

    const agent_case &how_;
    const channel socket_{peer_fd};
    context framework_; /* has device memory, and knows no agent */
    agent agent_;
    std::optional<connection> to_;
};

std::vector<party::both_kinds> party::kinds() const
{
    constexpr auto gaudi = kind_of_memory::gaudi;
    constexpr auto heap  = kind_of_memory::heap;
    if (how_.host) {
        return {{heap, heap}};
    }
    return {{gaudi, gaudi}, {heap, gaudi}, {gaudi, heap}, {heap, heap}};
}

/* Each thread a part of the list. */
void party::move_by_threads(direction what, const std::vector<block> &list)
{
    const size_t workers = agent_.workers();
    const size_t count =
        std::max(workers, size_t{how_.agents.progress_thread ? 2u : 1u});
    const size_t share = list.size() / count;
    std::vector<std::thread> threads;
    for (size_t i = 0; i < count; ++i) {
        const size_t end = (i + 1 == count) ? list.size() : (i + 1) * share;
        const std::span<const block> part(list.data() + i * share,
                                          list.data() + end);
        threads.emplace_back([this, what, part, i, workers] {
            set_case("thread " + std::to_string(i));
            require(transfer(*to_, i % workers).run(what, part), "a list");
        });
    }
    for (std::thread &one : threads) {
        one.join();
    }
}

/* The client moves all blocks; who gets them looks as soon as the client says
 * that they are there. */
void party::move(direction what, blocks &all)
{
    const bool is_source = (how_.is_client == (what == direction::put));
    all.mine.prepare(is_source);
    if (how_.is_client) {
        hear("prepared");
        move_by_threads(what, all.list());
        say("there");
        if (!is_source) {
            all.mine.expect(side_of_list::here);
        }
        hear("seen");
    } else {
        say("prepared");
        hear("there");
        if (!is_source) {
            all.mine.expect(side_of_list::there);
        }
        say("seen");
    }
}

void party::move_all()
{
    /* As many bytes in many small blocks as in few large ones. */
    constexpr size_t bytes = 8ul << 20;
    for (const both_kinds &pair : kinds()) {
        blocks all(*this, pair, {how_.count, bytes / how_.count});
        for (const direction what : {direction::put, direction::get}) {
            set_case(std::string(what == direction::put ? "put " : "get ") +
                     name_of(pair.first) + " " + name_of(pair.second));
            move(what, all);
        }
    }
}

void party::wake()
{
    for (size_t i = 0; i < how_.count; ++i) {
        const std::string text = std::to_string(i);
        if (how_.is_client) {
            say(text);
        }
        hear(text);
        if (!how_.is_client) {
            say(text);
        }
    }
    if (how_.is_client && !(to_->estimate(1 << 20) > 0)) {
        die("the estimated time of a put", "is nothing");
    }
}

/* Memory that the server adds, the client writes into once, and the server
 * removes. */
void party::use_what_comes_and_goes()
{
    for (size_t i = 0; i < how_.count; ++i) {
        set_case("coming and going " + std::to_string(i));
        blocks one(*this, {favourite(), favourite()}, few);
        one.mine.prepare(how_.is_client);
        if (how_.is_client) {
            (void)socket_.hear();
            put(one.list(), "a short list");
            socket_.say('d');
        } else {
            socket_.say('w');
            await_letter();
            one.mine.expect(side_of_list::there);
        }
        one.mine.remove();
    }
}

void party::churn()
{
    blocks all(*this, {favourite(), favourite()}, load);
    all.mine.prepare(how_.is_client);
    std::atomic<bool> is_over{false};
    std::thread mover([this, &all, &is_over] {
        set_case("lists under the churn");
        while (how_.is_client && !is_over) {
            put(all.list(), "a list");
        }
    });
    use_what_comes_and_goes();
    is_over = true;
    mover.join();
    set_case("after the churn");
    move(direction::put, all);
}

void party::abandon()
{
    blocks all(*this, {favourite(), favourite()}, load);
    for (size_t i = 0; how_.is_client && (i < how_.count); ++i) {
        transfer going(*to_, 0);
        const std::vector<block> list = all.list();
        (void)going.post(((i % 2) == 0) ? direction::put : direction::get,
                         list);
    }
    /* What was dropped may still be on its way, until here. */
    if (how_.is_client) {
        put({}, "the flush");
        say("dropped");
    } else {
        hear("dropped");
    }
    move(direction::put, all);
    move(direction::get, all);
}

void party::withdraw()
{
    blocks all(*this, {favourite(), favourite()}, load);
    for (size_t i = 0; i < how_.count; ++i) {
        set_case("withdrawal " + std::to_string(i));
        all.mine.prepare(how_.is_client);
        if (how_.is_client) {
            hear("prepared");
            const std::vector<block> list = all.list();
            transfer going(*to_, 0);
            (void)going.post(direction::put, list);
            socket_.say('w');
            /* Well or badly; with keys that hold no more, badly or rightly. */
            (void)going.wait();
            hear("removed");
            say(going.run(direction::put, list) == UCS_OK ? "there"
                                                          : "refused");
        } else {
            say("prepared");
            await_letter();
            all.mine.remove();
            say("removed");
            if (agent_.await_notification() == "there") {
                all.mine.expect(side_of_list::there);
            }
            all.mine.add();
        }
        all.tell(*this);
    }
    move(direction::put, all);
}

/* What the client tries with the server's keys and those of a stranger. */
void party::try_keys(const blocks &all)
{
    try_damaged(*to_, all.described, how_.count);
    try_stranger(*to_, all.mine);
    set_case("memory that was taken back");
    say("remove");
    hear("removed");
    expect_refused(*to_, all.mine, *all.theirs);
    const remote_cache unused(*to_, all.described);
}

void party::unknown()
{
    const both_kinds kinds{favourite(), favourite()};
    std::optional<blocks> all(std::in_place, *this, kinds, few);
    all->mine.prepare(how_.is_client);
    if (how_.is_client) {
        hear("prepared");
        try_keys(*all);
        say("done");
    } else {
        say("prepared");
        hear("remove");
        all->mine.remove();
        say("removed");
        hear("done");
    }
    all.reset();
    all.emplace(*this, kinds, few);
    set_case("good keys");
    move(direction::put, *all);
    move(direction::get, *all);
}

void party::lose_the_server()
{
    blocks all(*this, {favourite(), favourite()}, load);
    if (!how_.is_client) {
        await_letter();
        _exit(0);
    }
    const std::vector<block> list = all.list();
    std::vector<std::unique_ptr<transfer>> going;
    for (size_t i = 0; i < how_.count; ++i) {
        going.push_back(std::make_unique<transfer>(*to_, 0));
        (void)going.back()->post(direction::put, list);
        if (i == 0) {
            require(going.front()->wait(), "a list");
            socket_.say('e');
        }
        if (to_->error(0) != UCS_OK) {
            break;
        }
    }
    while (to_->error(0) == UCS_OK) {
        agent_.progress();
        usleep(20); /* see util::nap */
    }
    /* All of them end, well or badly. */
    for (const auto &one : going) {
        (void)one->wait();
    }
}

void party::show_lanes()
{
    blocks all(*this, {favourite(), favourite()}, {how_.count, few.size});
    move(direction::put, all);
    if (how_.is_client) {
        ucp_ep_print_info(to_->ep(0), stdout);
    }
}

void party::run()
{
    const std::pair<const char *, void (party::*)()> cases[] = {
        {"blocks", &party::move_all},   {"wake", &party::wake},
        {"churn", &party::churn},       {"abandon", &party::abandon},
        {"withdraw", &party::withdraw}, {"unknown", &party::unknown},
        {"lanes", &party::show_lanes},  {"end", &party::lose_the_server},
    };
    const auto *which = std::find_if(
        std::begin(cases), std::end(cases),
        [this](const auto &one) { return how_.what == one.first; });
    if (which == std::end(cases)) {
        die(how_.what, "is no case");
    }
    set_case(how_.what);
    (this->*(which->second))();
    if (to_->error(0) != UCS_OK) {
        return;
    }
    /* Nothing is closed that the other side may need. */
    set_case("the end");
    say("bye");
    hear("bye");
}

} // namespace

int main(int argc, char **argv)
{
    start_program(life_s);
    if ((argc == 5) && (std::strcmp(argv[1], "stranger") == 0)) {
        be_stranger(argv + 1);
    }
    const agent_case how = parse_case(argc, argv);
    if (how.card) {
        open_own_card();
    }
    {
        party one(how);
        one.run();
    }
    std::printf("all moved\n");
    return 0;
}
