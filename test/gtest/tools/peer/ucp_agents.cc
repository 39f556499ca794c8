/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two agents of a serving system: the client's writes and reads lists of blocks
 * in the server's memory, both look at every byte, and what they tell each
 * other meanwhile are notifications.
 *
 * Their calls of UCP, the order and the parameters are those of NIXL's UCX
 * backend (ai-dynamo/nixl v1.4.0, src/plugins/ucx: ucx_utils.cpp and
 * ucx_backend.cpp), so that what breaks there breaks here. Public UCP headers
 * only.
 *
 * usage: ucp_peer client|server agents CASE COUNT [OPTION...]
 *
 *   blocks    lists of COUNT blocks, put and get, between all kinds of memory
 *   churn     while lists are on their way, other memory comes and goes, COUNT
 *             times
 *   abandon   COUNT lists are dropped on their way
 *   withdraw  COUNT times the server takes memory back that is written into
 *
 * options:
 *     thread       a progress thread, and two threads with lists
 *     workers=N    so many workers of an agent, each with a thread for lists
 *     host         leave out device memory
 *     card         device memory of a card that the program opens by itself
 *     refuses      keys of memory that was taken back are refused
 */
#include "gtest/tools/peer/check.h"
#include "gtest/tools/peer/kinds.h"
#include "gtest/tools/peer/programs.h"
#include "gtest/tools/release.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

using namespace peer;

namespace {

constexpr unsigned life_s = 100;

struct agent_case {
    bool is_client = false;
    std::string what;
    size_t count     = 0;
    bool thread      = false;
    unsigned workers = 1;
    bool host        = false;
    bool card        = false;
    bool refuses     = false;
};

/* Dies of words that it does not know. */
agent_case parse_case(int argc, char **argv)
{
    if (argc < 4) {
        die("agents", "has other arguments");
    }
    agent_case result{.is_client = (std::strcmp(argv[0], "client") == 0),
                      .what      = argv[2],
                      .count     = std::stoul(argv[3])};
    const std::map<std::string, bool *> switches{{"thread", &result.thread},
                                                 {"host", &result.host},
                                                 {"card", &result.card},
                                                 {"refuses", &result.refuses}};
    for (const std::string option : std::span(argv + 4, argv + argc)) {
        if (option.starts_with("workers=")) {
            result.workers =
                static_cast<unsigned>(std::stoul(option.substr(8)));
        } else if (switches.contains(option)) {
            *switches.at(option) = true;
        } else {
            die(option, "is no option");
        }
    }
    return result;
}

/* --- an agent ------------------------------------------------------------- */

/* What this UCX does not have would be a warning; a variable of the environment
 * decides where there is one. */
void configure(ucp_config_t *config)
{
    const auto modify = [&](const char *name, const char *value) {
        if (getenv((std::string("UCX_") + name).c_str()) == nullptr) {
            require(ucp_config_modify(config, name, value), name);
        }
    };
    modify("RNDV_THRESH", "inf");
    if (!gaudi::test::ucx_is_before(1, 14)) {
        modify("MAX_RMA_RAILS", "2");
    }
    if (!gaudi::test::ucx_is_before(1, 22)) {
        modify("RNDV_PIPELINE_ERROR_HANDLING", "y");
    }
}

/* With a progress thread any number of threads may use it. */
class agent {
    const agent_case &how_;
    peer::context context_;

public:
    explicit agent(const agent_case &how)
        : how_(how),
          context_({.shared   = (how.workers > 1),
                    .how      = how.thread ? waiting::event_fd : waiting::poll,
                    .features = UCP_FEATURE_RMA | UCP_FEATURE_AMO32 |
                                UCP_FEATURE_AMO64 | UCP_FEATURE_AM,
                    .configure = configure})
    {
        for (unsigned i = 0; i < how.workers; ++i) {
            workers.push_back(std::make_unique<worker>(
                context_, how.thread ? UCS_THREAD_MODE_MULTI
                                     : UCS_THREAD_MODE_SERIALIZED));
        }
        ucp_am_handler_param_t params{};
        params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                            UCP_AM_HANDLER_PARAM_FIELD_CB |
                            UCP_AM_HANDLER_PARAM_FIELD_ARG;
        params.cb  = on_notification;
        params.arg = this;
        require(ucp_worker_set_am_recv_handler(workers[0]->get(), &params),
                "ucp_worker_set_am_recv_handler");
        if (how.thread) {
            stop_fd_ = eventfd(0, EFD_CLOEXEC);
            thread_  = std::thread([this] { run(); });
        }
    }

    ~agent()
    {
        const uint64_t one = 1;
        if (thread_.joinable() &&
            (write(stop_fd_, &one, sizeof(one)) == sizeof(one))) {
            thread_.join();
            close(stop_fd_);
        }
    }

    agent(const agent &)            = delete;
    agent &operator=(const agent &) = delete;

    [[nodiscard]] ucp_context_h context() const { return context_.get(); }

    /* To the other agent's first worker, one of each worker. */
    void connect_to(const std::vector<char> &address)
    {
        for (const auto &one : workers) {
            endpoints.push_back(nullptr);
            require(connect(*one, address, true, {on_error, this},
                            endpoints.back()),
                    "ucp_ep_create");
        }
    }

    /* Nobody waits until they are closed: the worker may go before. */
    void disconnect_all()
    {
        for (ucp_ep_h ep : endpoints) {
            ucs_status_ptr_t request = disconnect(ep, lost_ != UCS_OK);
            if (UCS_PTR_IS_PTR(request)) {
                ucp_request_free(request);
            }
        }
    }

    void progress()
    {
        for (const auto &one : workers) {
            while (one->progress()) {}
        }
    }

    /* The oldest that has come; waits for one. */
    std::string await_notification()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        if (thread_.joinable()) {
            came_.wait(lock, [this] {
                return !notifications_.empty() || (lost_ != UCS_OK);
            });
        }
        while (notifications_.empty()) {
            if (lost_ != UCS_OK) {
                die("the endpoint", ucs_status_string(lost_));
            }
            lock.unlock();
            progress();
            usleep(20); /* see util::nap */
            lock.lock();
        }
        std::string result = std::move(notifications_.front());
        notifications_.pop_front();
        return result;
    }

    /* Send one and do not wait for it. */
    void notify(const std::string &text) const
    {
        auto *copy = new std::string(text);
        ucp_request_param_t params{};
        params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS |
                              UCP_OP_ATTR_FIELD_CALLBACK |
                              UCP_OP_ATTR_FIELD_USER_DATA;
        params.flags     = UCP_AM_SEND_FLAG_EAGER;
        params.user_data = copy;
        params.cb.send   = [](void *request, ucs_status_t status, void *sent) {
            require(status, "a notification");
            delete static_cast<std::string *>(sent);
            ucp_request_free(request);
        };
        ucs_status_ptr_t request = ucp_am_send_nbx(
            endpoints[0], 0, nullptr, 0, copy->data(), copy->size(), &params);
        if (!UCS_PTR_IS_PTR(request)) {
            require(UCS_PTR_STATUS(request), "ucp_am_send_nbx");
            delete copy;
        }
    }

    std::vector<std::unique_ptr<worker>> workers;
    std::vector<ucp_ep_h> endpoints; /* one of each */

private:
    /* The other one may be done before, and end. */
    static void on_error(void *arg, ucp_ep_h, ucs_status_t status)
    {
        auto *self = static_cast<agent *>(arg);
        const std::lock_guard<std::mutex> lock(self->mutex_);
        self->lost_ = status;
        self->came_.notify_one();
    }

    static ucs_status_t on_notification(void *arg, const void *, size_t header,
                                        void *data, size_t length,
                                        const ucp_am_recv_param_t *param)
    {
        auto *self = static_cast<agent *>(arg);
        if (((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) ||
            (header != 0)) {
            die("a notification", "does not come as it was sent");
        }
        const std::lock_guard<std::mutex> lock(self->mutex_);
        self->notifications_.emplace_back(static_cast<char *>(data), length);
        self->came_.notify_one();
        return UCS_OK;
    }

    /* Unlike NIXL's thread it never wakes by itself: a wakeup that is lost is a
     * test that does not end. */
    void run()
    {
        set_case("the progress thread");
        std::vector<pollfd> events;
        for (const auto &one : workers) {
            events.push_back({one->event_fd(), POLLIN, POLLIN});
        }
        events.push_back({stop_fd_, POLLIN, 0});
        while ((events.back().revents & POLLIN) == 0) {
            for (size_t i = 0; i < workers.size(); ++i) {
                ucs_status_t status = UCS_OK;
                while ((events[i].revents & POLLIN) != 0) {
                    while (workers[i]->progress()) {}
                    status = ucp_worker_arm(workers[i]->get());
                    if (status != UCS_ERR_BUSY) {
                        break;
                    }
                }
                require(status, "ucp_worker_arm");
            }
            if ((poll(events.data(), events.size(), -1) < 0) &&
                (errno != EINTR)) {
                die("poll", std::strerror(errno));
            }
        }
    }

    std::mutex mutex_; /* of the next three */
    std::condition_variable came_;
    std::deque<std::string> notifications_;
    std::atomic<ucs_status_t> lost_ = UCS_OK; /* why it is out of reach */
    int stop_fd_                    = -1; /* readable: the thread has to end */
    std::thread thread_;
};

/* --- blocks --------------------------------------------------------------- */

/* How many there are, and of what size. */
struct shape {
    size_t blocks;
    size_t size;
};

constexpr size_t pieces = 4; /* both sides have so many */

/*
 * One side's blocks, of equal size, scattered in several pieces of memory, as
 * the keys and values of a model's layers are. Each piece is registered by
 * itself, and every second block is nobody's: it has to stay as it is.
 */
class cache {
public:
    /* @param framework  Has the device memory, and is not the agent's. */
    cache(const agent &of, const context &framework, kind_of_memory kind,
          const shape &shape)
        : how(shape), of_(of)
    {
        for (size_t i = 0; i < pieces; ++i) {
            pieces_.push_back(std::make_unique<memory>(
                framework, kind, size_of_piece(), 0, true));
        }
        add();
    }

    ~cache() { remove(); }
    cache(const cache &)            = delete;
    cache &operator=(const cache &) = delete;

    /* Tell the agent of the memory, but not of its type. */
    void add()
    {
        for (const auto &piece : pieces_) {
            ucp_mem_map_params_t params{};
            params.field_mask = UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                                UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                UCP_MEM_MAP_PARAM_FIELD_ADDRESS;
            params.address = piece->data();
            params.length  = piece->size();
            handles_.push_back(nullptr);
            require(ucp_mem_map(of_.context(), &params, &handles_.back()),
                    "ucp_mem_map");
            ucp_mem_attr_t attr{};
            attr.field_mask = UCP_MEM_ATTR_FIELD_MEM_TYPE;
            require(ucp_mem_query(handles_.back(), &attr), "ucp_mem_query");
            if ((attr.mem_type == UCS_MEMORY_TYPE_HOST) ==
                (piece->kind() == kind_of_memory::gaudi)) {
                die("memory", "is taken for other");
            }
        }
    }

    void remove()
    {
        for (ucp_mem_h handle : handles_) {
            require(ucp_mem_unmap(of_.context(), handle), "ucp_mem_unmap");
        }
        handles_.clear();
    }

    /* Tell the other side of it. */
    void describe(const channel &to) const
    {
        for (size_t i = 0; i < pieces; ++i) {
            description{reinterpret_cast<uint64_t>(pieces_[i]->data()),
                        pack_key(of_.context(), handles_[i])}
                .send(to);
        }
    }

    /* Fill all, and the blocks so that each differs. */
    void prepare(bool is_source)
    {
        for (size_t piece = 0; piece < pieces; ++piece) {
            const auto bytes =
                contents(piece, is_source, [](size_t i) { return i; });
            pieces_[piece]->store(0, bytes.data(), bytes.size());
        }
    }

    /* Dies unless a list brought each block what belongs there, and left the
     * rest as it was. */
    void expect(bool list_is_here) const
    {
        std::vector<size_t> from(how.blocks);
        for (size_t i = 0; i < how.blocks; ++i) {
            const size_t other             = scatter(i);
            from[list_is_here ? i : other] = list_is_here ? other : i;
        }
        for (size_t piece = 0; piece < pieces; ++piece) {
            const auto wanted =
                contents(piece, true, [&](size_t i) { return from[i]; });
            std::vector<char> there(wanted.size());
            pieces_[piece]->load(0, there.data(), there.size());
            const auto differs =
                std::mismatch(wanted.begin(), wanted.end(), there.begin());
            if (differs.first != wanted.end()) {
                die(std::string(name_of(pieces_[piece]->kind())) + " piece " +
                        std::to_string(piece),
                    "differs at byte " +
                        std::to_string(differs.first - wanted.begin()));
            }
        }
    }

    /* Which block there belongs to a block here. */
    [[nodiscard]] size_t scatter(size_t i) const
    {
        return (i * 37 + 11) % how.blocks; /* counts are no multiples of 37 */
    }

    /* Of a block within its piece. Frameworks do not begin with a page. */
    [[nodiscard]] size_t offset_of(size_t i) const
    {
        return 192 + 2 * (i / pieces) * how.size;
    }

    [[nodiscard]] char *data(size_t i) const
    {
        return pieces_[i % pieces]->data() + offset_of(i);
    }

    [[nodiscard]] ucp_mem_h handle(size_t i) const
    {
        return handles_[i % pieces];
    }

    const shape how;

private:
    [[nodiscard]] size_t size_of_piece() const
    {
        return offset_of(how.blocks + pieces - 1);
    }

    template <typename Seed>
    [[nodiscard]] std::vector<char> contents(size_t piece, bool has_blocks,
                                             const Seed &seed_of) const
    {
        constexpr unsigned blank = 4000; /* seed of what nobody has written */
        constexpr size_t seeds   = 3989;
        std::vector<char> bytes(size_of_piece());
        for (size_t at = 0; at < bytes.size(); at += how.size) {
            fill(bytes.data() + at, std::min(how.size, bytes.size() - at),
                 blank);
        }
        for (size_t i = piece; has_blocks && (i < how.blocks); i += pieces) {
            fill(bytes.data() + offset_of(i), how.size,
                 static_cast<unsigned>(seed_of(i) % seeds));
        }
        return bytes;
    }

    const agent &of_;
    std::vector<std::unique_ptr<memory>> pieces_;
    std::vector<ucp_mem_h> handles_;
};

/* One entry of a list: bytes here and there. */
struct block {
    char *local;
    ucp_mem_h handle;
    uint64_t remote;
    const std::vector<std::unique_ptr<remote_memory>> *keys; /* by worker */
    size_t size;
};

/* A list on its way. Dropping it while it is cancels what it can. */
class transfer_of_list {
public:
    transfer_of_list(agent &by, size_t worker) : by_(by), worker_(worker) {}
    ~transfer_of_list()
    {
        for (ucs_status_ptr_t request : requests_) {
            if (ucp_request_check_status(request) == UCS_INPROGRESS) {
                ucp_request_cancel(by_.workers[worker_]->get(), request);
            }
            ucp_request_free(request);
        }
    }
    transfer_of_list(const transfer_of_list &)            = delete;
    transfer_of_list &operator=(const transfer_of_list &) = delete;

    /* Start all, and a flush behind. The bytes are where they belong once
     * check() says UCS_OK. */
    ucs_status_t post(bool is_put, std::span<const block> list)
    {
        ucs_status_ptr_t last = nullptr;
        ucp_request_param_t params{};
        params.op_attr_mask =
            UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FLAG_MULTI_SEND;
        ucp_ep_h ep = by_.endpoints[worker_];
        for (const block &one : list) {
            params.memh    = one.handle;
            ucp_rkey_h key = (*one.keys)[worker_]->key();
            const ucs_status_ptr_t request =
                is_put ? ucp_put_nbx(ep, one.local, one.size, one.remote, key,
                                     &params)
                       : ucp_get_nbx(ep, one.local, one.size, one.remote, key,
                                     &params);
            if (UCS_PTR_IS_PTR(request)) {
                /* The flush waits for those that nobody remembers. */
                if (last != nullptr) {
                    ucp_request_free(last);
                }
                last = request;
            } else if (UCS_PTR_IS_ERR(request)) {
                if (last != nullptr) {
                    ucp_request_free(last);
                }
                return UCS_PTR_STATUS(request);
            }
        }
        const ucp_request_param_t defaults{};
        for (ucs_status_ptr_t request :
             {last, ucp_ep_flush_nbx(ep, &defaults)}) {
            if (UCS_PTR_IS_ERR(request)) {
                return UCS_PTR_STATUS(request);
            }
            if (request != nullptr) {
                requests_.push_back(request);
            }
        }
        return check();
    }

    /* Progress, and UCS_INPROGRESS until all has ended. */
    ucs_status_t check()
    {
        while (by_.workers[worker_]->progress()) {}
        ucs_status_t result = UCS_OK;
        for (ucs_status_ptr_t request : requests_) {
            const ucs_status_t status = ucp_request_check_status(request);
            if ((status == UCS_INPROGRESS) || (result == UCS_OK)) {
                result = status;
            }
        }
        return result;
    }

    ucs_status_t run(bool is_put, std::span<const block> list)
    {
        ucs_status_t status = post(is_put, list);
        while (status == UCS_INPROGRESS) {
            usleep(20); /* see util::nap */
            status = check();
        }
        return status;
    }

private:
    agent &by_;
    size_t worker_;
    std::vector<ucs_status_ptr_t> requests_; /* the last data one, the flush */
};

/* --- the two -------------------------------------------------------------- */

/* Of lists that are there to be on their way, and of those that are tried. */
constexpr shape load{512, 32768};
constexpr shape few{8, 65536};

class party {
public:
    explicit party(const agent_case &how) : how_(how), agent_(how)
    {
        agent_.connect_to(socket_.exchange(agent_.workers.front()->address()));
    }

    void run()
    {
        const std::map<std::string, void (party::*)()> cases{
            {"blocks", &party::move_all},
            {"churn", &party::churn},
            {"abandon", &party::abandon},
            {"withdraw", &party::withdraw}};
        if (!cases.contains(how_.what)) {
            die(how_.what, "is no case");
        }
        set_case(how_.what);
        (this->*cases.at(how_.what))();
        /* Nothing is closed that the other side may need. */
        set_case("the end");
        agent_.notify("bye");
        hear("bye");
        agent_.disconnect_all();
    }

private:
    using both_kinds = std::pair<kind_of_memory, kind_of_memory>;

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

    void put(const std::vector<block> &list, const char *what)
    {
        require(transfer_of_list(agent_, 0).run(true, list), what);
    }

    /* Blocks of either side, the server's told to the client. */
    struct blocks {
        blocks(party &of, const both_kinds &kinds, const shape &size)
            : mine(of.agent_, of.framework_,
                   of.how_.is_client ? kinds.first : kinds.second, size)
        {
            tell(of);
        }

        void tell(party &of)
        {
            if (!of.how_.is_client) {
                mine.describe(of.socket_);
                return;
            }
            theirs.clear();
            for (size_t i = 0; i < pieces; ++i) {
                const auto told = description::receive(of.socket_);
                auto &keys      = theirs.emplace_back();
                for (ucp_ep_h ep : of.agent_.endpoints) {
                    keys.push_back(std::make_unique<remote_memory>(ep, told));
                }
            }
        }

        [[nodiscard]] std::vector<block> list() const
        {
            std::vector<block> list;
            for (size_t i = 0; i < mine.how.blocks; ++i) {
                const size_t other = mine.scatter(i);
                const auto &keys   = theirs[other % pieces];
                list.push_back({mine.data(i), mine.handle(i),
                                keys[0]->address() + mine.offset_of(other),
                                &keys, mine.how.size});
            }
            return list;
        }

        cache mine;
        std::vector<std::vector<std::unique_ptr<remote_memory>>> theirs;
    };

    [[nodiscard]] both_kinds favourites() const
    {
        const auto kind =
            how_.host ? kind_of_memory::heap : kind_of_memory::gaudi;
        return {kind, kind};
    }

    /* Each thread a part of the list. */
    void move_by_threads(bool is_put, const std::vector<block> &list)
    {
        const size_t count =
            std::max(agent_.workers.size(), size_t{how_.thread ? 2u : 1u});
        const size_t share = list.size() / count;
        std::vector<std::thread> threads;
        for (size_t i = 0; i < count; ++i) {
            const size_t end = (i + 1 == count) ? list.size() : (i + 1) * share;
            const std::span<const block> part(list.data() + i * share,
                                              list.data() + end);
            threads.emplace_back([this, is_put, part, i] {
                set_case("thread " + std::to_string(i));
                require(transfer_of_list(agent_, i % agent_.workers.size())
                            .run(is_put, part),
                        "a list");
            });
        }
        for (std::thread &one : threads) {
            one.join();
        }
    }

    /* The client moves all blocks; who gets them looks as soon as the client
     * says that they are there. */
    void move(bool is_put, blocks &all)
    {
        const bool is_source = (how_.is_client == is_put);
        all.mine.prepare(is_source);
        if (how_.is_client) {
            hear("prepared");
            move_by_threads(is_put, all.list());
            agent_.notify("there");
        } else {
            agent_.notify("prepared");
            hear("there");
        }
        if (!is_source) {
            all.mine.expect(how_.is_client);
        }
        if (how_.is_client) {
            hear("seen");
        } else {
            agent_.notify("seen");
        }
    }

    void move_all()
    {
        constexpr auto gaudi   = kind_of_memory::gaudi;
        constexpr auto heap    = kind_of_memory::heap;
        constexpr size_t bytes = 8ul << 20; /* in many blocks or in few */
        std::vector<both_kinds> kinds{{heap, heap}};
        if (!how_.host) {
            kinds.insert(kinds.end(),
                         {{gaudi, gaudi}, {heap, gaudi}, {gaudi, heap}});
        }
        for (const both_kinds &pair : kinds) {
            blocks all(*this, pair, {how_.count, bytes / how_.count});
            for (const bool is_put : {true, false}) {
                set_case(std::string(is_put ? "put " : "get ") +
                         name_of(pair.first) + " " + name_of(pair.second));
                move(is_put, all);
            }
        }
    }

    /* Memory that the server adds, the client writes into once, and the server
     * removes. */
    void use_what_comes_and_goes()
    {
        for (size_t i = 0; i < how_.count; ++i) {
            set_case("coming and going " + std::to_string(i));
            blocks one(*this, favourites(), few);
            one.mine.prepare(how_.is_client);
            if (how_.is_client) {
                (void)socket_.hear();
                put(one.list(), "a short list");
                socket_.say('d');
            } else {
                socket_.say('w');
                await_letter();
                one.mine.expect(false);
            }
        }
    }

    void churn()
    {
        blocks all(*this, favourites(), load);
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
        move(true, all);
    }

    void abandon()
    {
        blocks all(*this, favourites(), load);
        if (how_.is_client) {
            for (size_t i = 0; i < how_.count; ++i) {
                (void)transfer_of_list(agent_, 0).post((i % 2) == 0,
                                                       all.list());
            }
            /* What was dropped may still be on its way, until here. */
            put({}, "the flush");
            agent_.notify("dropped");
        } else {
            hear("dropped");
        }
        move(true, all);
        move(false, all);
    }

    void withdraw()
    {
        blocks all(*this, favourites(), load);
        for (size_t i = 0; i < how_.count; ++i) {
            set_case("withdrawal " + std::to_string(i));
            all.mine.prepare(how_.is_client);
            if (how_.is_client) {
                hear("prepared");
                const std::vector<block> list = all.list();
                {
                    transfer_of_list going(agent_, 0);
                    ucs_status_t status = going.post(true, list);
                    socket_.say('w');
                    /* Well or badly: the memory goes meanwhile. */
                    while (status == UCS_INPROGRESS) {
                        status = going.check();
                    }
                }
                hear("removed");
                /* Without gaudi_ipc keys need not be refused; then the bytes
                 * are right. */
                const bool is_there =
                    (transfer_of_list(agent_, 0).run(true, list) == UCS_OK);
                if (is_there && how_.refuses) {
                    die("memory that was taken back", "is written into");
                }
                agent_.notify(is_there ? "there" : "refused");
            } else {
                agent_.notify("prepared");
                await_letter();
                all.mine.remove();
                agent_.notify("removed");
                if (agent_.await_notification() == "there") {
                    all.mine.expect(false);
                }
                all.mine.add();
            }
            all.tell(*this);
        }
        move(true, all);
    }

    const agent_case &how_;
    const channel socket_{peer_fd};
    context framework_; /* has device memory, and knows no agent */
    agent agent_;
};

} // namespace

int peer::run_agents(int argc, char **argv)
{
    start_program(life_s);
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
