/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/service.h"

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/cards/ports.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/folder.h"
#include "uct/gaudi/ipc/remote_key.h"
#include "uct/gaudi/ipc/socket.h"
#include "util/background_thread.h"
#include "util/epoll.h"
#include "util/locks.h"
#include "util/process.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include <poll.h>
#include <sys/epoll.h>

namespace gaudi::ipc {

namespace {

/* Copies under way, of all clients together: enough that the card does not
 * wait. What else they ask for stays in their slots, so that a later client
 * need not wait for it. */
constexpr unsigned most_under_way = 8;
/* Of a client in its turn: requests, of which some end at once, and bytes of
 * host memory, which are copied at once. */
constexpr unsigned most_in_turn       = 64;
constexpr uint64_t most_bytes_in_turn = 1 << 20;
/* For so long the thread looks before it sleeps: the next request of a client
 * that waits for the last one comes by then. */
constexpr std::chrono::microseconds idle_time{50};
/* Of serving between two looks at the sockets. */
constexpr std::chrono::microseconds look_time{20};
/* How long the thread leaves requests to interfaces that serve them. */
constexpr int trust_ms = 1;
/* How long a peer may take to give up a key. */
constexpr std::chrono::milliseconds revoke_timeout{100};
/* How long an interface that ends waits until its links are closed. */
constexpr std::chrono::milliseconds close_timeout{100};
/* Links of other processes to this one. */
constexpr size_t most_inbounds = 16384;
/* Of accepted connections and messages at a time. */
constexpr unsigned most_at_once = 16;

/* Names of the sockets in events_ that are no link. */
enum : uint64_t { listening_id, folder_id, engine_id, first_link_id };

bool watch(int events, int fd, uint64_t id)
{
    epoll_event wanted{};
    wanted.events   = EPOLLIN;
    wanted.data.u64 = id;
    return epoll_ctl(events, EPOLL_CTL_ADD, fd, &wanted) == 0;
}

void unwatch(int events, int fd)
{
    (void)epoll_ctl(events, EPOLL_CTL_DEL, fd, nullptr);
}

} // namespace

/* What there is from the first request to the closing of the last memory
 * domain. */
struct service::session {
    /* How many copies of each client may be under way. */
    [[nodiscard]] unsigned share() const
    {
        const auto busy =
            std::count_if(clients.begin(), clients.end(), [](const auto &each) {
                return each->has_posted() || (each->running() > 0);
            });
        return std::max(most_under_way / std::max(1u, unsigned(busy)), 1u);
    }
    ~session()
    {
        engine.reset(); /* ends what is under way */
        for (const auto &each : clients) {
            each->hang_up();
            each->unmap_chunks();
        }
    }

    std::vector<std::shared_ptr<inbound>> clients;
    base::flush_domain domain{};
    bounce_buffer bounce;
    std::unique_ptr<base::transfer_engine> engine;
};

service_calls &service_calls::instance()
{
    return service::instance();
}

service &service::instance()
{
    return util::of_this_process<service>();
}

service::service()  = default;
service::~service() = default;

void service::open()
{
    const std::lock_guard<std::mutex> guard(serve_lock_);
    ++users_;
}

/* The session may close cards, so it goes without the lock. */
void service::close()
{
    std::unique_ptr<session> over;
    const std::lock_guard<std::mutex> guard(serve_lock_);
    int fd = -1;
    if ((--users_ > 0) || (session_ == nullptr)) {
        return;
    }
    over = std::move(session_);
    any_clients_.store(false);
    for (const auto &each : over->clients) {
        each->hang_up(); /* no other session serves it */
        if (each->has_ports()) {
            const std::lock_guard<std::mutex> control(control_lock_);
            quiet_at_ = clock::now() + base::card_ports::drain_time;
        }
        each->end_ports();
    }
    if (over->engine->event_fd(fd) == UCS_OK) {
        unwatch(events_.get(), fd);
    }
}

ucs_status_t service::start()
{
    const std::lock_guard<std::mutex> guard(control_lock_);
    if (started_) {
        return UCS_OK;
    }
    listening_ = listen_at(util::process_identity());
    events_.reset(epoll_create1(EPOLL_CLOEXEC));
    const int folder = folder_socket();
    if (!listening_ || !events_ ||
        !watch(events_.get(), listening_.get(), listening_id) ||
        ((folder >= 0) && !watch(events_.get(), folder, folder_id))) {
        listening_.reset(); /* its name is free for the next try */
        ucs_error("gaudi_ipc: cannot listen for other processes: %m (raise "
                  "ulimit -n)");
        return UCS_ERR_NO_RESOURCE;
    }
    int at = 0;
    for (const util::unique_fd *each : {&listening_, &events_}) {
        not_in_children_[at++] = util::closed_in_children(each->get());
    }
    last_id_                  = first_link_id;
    const ucs_status_t status = base::guarded([this] {
        util::start_background_thread("ucx-gaudi", [this] { run(); });
        return UCS_OK;
    });
    started_                  = (status == UCS_OK);
    return status;
}

ucs_status_t service::add(const std::shared_ptr<receiver> &to)
{
    const ucs_status_t status = start();
    if (status == UCS_OK) {
        const std::lock_guard<std::mutex> guard(control_lock_);
        to->number = ++last_number_;
        receivers_.emplace(to->number, to);
    }
    return status;
}

void service::remove(receiver &to)
{
    {
        const std::lock_guard<std::mutex> guard(control_lock_);
        receivers_.erase(to.number);
    }
    to.close();
    const auto last = clock::now() + close_timeout;
    while (may_have_links(to) && (clock::now() < last)) {
        util::nap();
    }
}

/* Connections that have not said where to may be its own. */
bool service::may_have_links(const receiver &to)
{
    const std::lock_guard<std::mutex> guard(control_lock_);
    pollfd unread{.fd = events_.get(), .events = POLLIN, .revents = 0};
    return (poll(&unread, 1, 0) > 0) ||
           std::any_of(inbounds_.begin(), inbounds_.end(),
                       [&](const auto &each) {
                           const uint32_t leads_to = each.second->interface();
                           return (leads_to == to.number) ||
                                  (leads_to == unknown_interface);
                       });
}

bool service::has(uint32_t number)
{
    const std::lock_guard<std::mutex> guard(control_lock_);
    return receivers_.contains(number);
}

ucs_status_t service::follow(const std::shared_ptr<link> &which)
{
    const ucs_status_t status = start();
    if (status != UCS_OK) {
        return status;
    }
    const std::lock_guard<std::mutex> guard(control_lock_);
    const uint64_t id = ++last_id_;
    if (!watch(events_.get(), which->socket(), id)) {
        ucs_debug("gaudi_ipc: cannot watch a link: %m");
        return UCS_ERR_NO_RESOURCE;
    }
    links_.emplace(id, which);
    which->name_in_service = id;
    return UCS_OK;
}

void service::unfollow(const link &which)
{
    const std::lock_guard<std::mutex> guard(control_lock_);
    unwatch(events_.get(), which.socket());
    links_.erase(which.name_in_service);
}

uint64_t service::count_links()
{
    const std::lock_guard<std::mutex> guard(control_lock_);
    return inbounds_.size();
}

/* --- sockets ----------------------------------------------------------------
 */

/* @return Whether a client rang for a request. */
bool service::handle_events(int timeout_ms)
{
    epoll_event what[most_at_once];
    const int count = epoll_wait(events_.get(), what, most_at_once, timeout_ms);
    request_bell_   = false;
    for (int i = 0; i < count; ++i) {
        const uint64_t id = what[i].data.u64;
        if (id == listening_id) {
            accept_from(listening_.get());
        } else if (id == folder_id) {
            accept_from(folder_socket());
        } else if (id != engine_id) {
            std::shared_ptr<inbound> from;
            std::shared_ptr<link> over;
            {
                const std::lock_guard<std::mutex> guard(control_lock_);
                if (const auto found = inbounds_.find(id);
                    found != inbounds_.end()) {
                    from = found->second;
                } else if (const auto known = links_.find(id);
                           known != links_.end()) {
                    over = known->second.lock();
                }
            }
            if ((from != nullptr) && !receive(from)) {
                const std::lock_guard<std::mutex> guard(control_lock_);
                inbounds_.erase(id);
            }
            if ((over != nullptr) && !over->receive()) {
                unfollow(*over);
                revoked_.notify_all();
            }
        }
    }
    if (!to_answer_.empty()) {
        answer_revocations();
    }
    return request_bell_;
}

void service::accept_from(int listening)
{
    for (unsigned i = 0; i < most_at_once; ++i) {
        std::unique_lock<std::mutex> guard(control_lock_);
        util::unique_fd socket = ipc::accept_from(listening);
        if (!socket) {
            guard.unlock();
            if ((errno == EMFILE) || (errno == ENFILE) || (errno == ENOMEM) ||
                (errno == ENOBUFS)) {
                /* It stays readable meanwhile. */
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            return;
        }
        auto made = std::make_shared<inbound>(std::move(socket));
        if (inbounds_.size() >= most_inbounds) {
            continue;
        }
        const uint64_t id = ++last_id_;
        if (watch(events_.get(), made->socket(), id)) {
            inbounds_.emplace(id, std::move(made));
        }
    }
}

/* @return false: the link has ended. */
bool service::receive(const std::shared_ptr<inbound> &from)
{
    for (unsigned i = 0; i < most_at_once; ++i) {
        char message[max_message];
        util::unique_fd fd;
        const ssize_t length =
            receive_message(from->socket(), message, sizeof(message),
                            from->is_greeted() ? nullptr : &fd);
        if (length == -EAGAIN) {
            return true;
        }
        if ((length < 0) && (length != -ECONNRESET)) {
            return true; /* transient: ENOMEM, ENOBUFS */
        }
        if ((length <= 0) ||
            !take(from, message, static_cast<size_t>(length), fd)) {
            drop(from);
            return false;
        }
    }
    return true;
}

/* @return false: the link is to be closed. */
bool service::take(const std::shared_ptr<inbound> &from, const char *message,
                   size_t length, util::unique_fd &fd)
{
    message_type type{};
    std::memcpy(&type, message, std::min(length, sizeof(type)));
    const auto is = [&](message_type wanted, size_t size) {
        return (type == wanted) && (length == size) &&
               (from->is_greeted() == (wanted != message_type::hello));
    };
    if (is(message_type::hello, sizeof(hello_message))) {
        hello_message hello;
        std::memcpy(&hello, message, sizeof(hello));
        greet(from, hello, fd);
        return from->is_greeted();
    }
    if (is(message_type::bell, sizeof(bell_message))) {
        bell_message bell;
        std::memcpy(&bell, message, sizeof(bell));
        if (bell.reason == bell_reason::request) {
            request_bell_ = true;
            const std::lock_guard<std::mutex> guard(serve_lock_);
            /* Without resources it rings again. */
            return (add_client(from) == UCS_OK) || (users_ > 0);
        }
        const std::lock_guard<std::mutex> guard(control_lock_);
        const auto found = receivers_.find(from->interface());
        if (found != receivers_.end()) {
            found->second->wake();
        }
        return true;
    }
    if (is(message_type::ports, sizeof(ports_message))) {
        ports_message asked;
        std::memcpy(&asked, message, sizeof(asked));
        connect_ports(from, asked);
        return true;
    }
    if (is(message_type::revoke, sizeof(revoke_message))) {
        revoke_message answer;
        std::memcpy(&answer, message, sizeof(answer));
        const std::lock_guard<std::mutex> guard(control_lock_);
        if (answer.word == from->awaited_word) {
            from->awaited_word = 0;
            revoked_.notify_all();
        }
        return true;
    }
    if (is(message_type::quiet, sizeof(quiet_message))) {
        const std::lock_guard<std::mutex> guard(serve_lock_);
        from->end_ports();
        return true;
    }
    ucs_diag("gaudi_ipc: process %u sent nonsense: its link is closed",
             from->pid());
    return false;
}

void service::greet(const std::shared_ptr<inbound> &from,
                    const hello_message &hello, const util::unique_fd &file)
{
    std::shared_ptr<receiver> to;
    welcome_message answer{.error = 0};
    {
        const std::lock_guard<std::mutex> guard(control_lock_);
        const auto found = receivers_.find(hello.interface);
        if (found != receivers_.end()) {
            to = found->second;
        }
    }
    if (hello.version != wire_version) {
        answer.error = -EPROTO;
    } else if ((hello.process != util::process_identity()) ||
               ((to == nullptr) && (hello.interface != 0))) {
        answer.error = -ENOENT;
    } else {
        answer.error = from->greet(hello, file);
    }
    if (answer.error != 0) {
        ucs_debug("gaudi_ipc: a connection of process %u is refused: %s",
                  hello.pid, std::strerror(-answer.error));
    }
    (void)from->send(&answer, sizeof(answer));
    if ((answer.error == 0) && (to != nullptr) && (base::guarded([&] {
                                                       to->add(from);
                                                       return UCS_OK;
                                                   }) != UCS_OK)) {
        from->hang_up();
    }
}

void service::connect_ports(const std::shared_ptr<inbound> &from,
                            ports_message asked)
{
    asked.error = -ENODEV;
    {
        const std::lock_guard<std::mutex> guard(serve_lock_);
        if (add_client(from) == UCS_OK) {
            from->connect_ports(*session_->engine, asked);
        }
    }
    (void)from->send(&asked, sizeof(asked));
}

/* A link has ended. */
void service::drop(const std::shared_ptr<inbound> &ended)
{
    if (ended->has_ports()) { /* before anybody finds that it has none */
        const std::lock_guard<std::mutex> guard(control_lock_);
        quiet_at_ = clock::now() + base::card_ports::drain_time;
    }
    ended->hang_up();
    unwatch(events_.get(), ended->socket());
    {
        const std::lock_guard<std::mutex> guard(serve_lock_);
        ended->close();
    }
    const std::lock_guard<std::mutex> guard(control_lock_);
    revoked_.notify_all();
    const auto found = receivers_.find(ended->interface());
    if (found != receivers_.end()) {
        found->second->note_change();
    }
}

/* --- keys that end ----------------------------------------------------------
 */

void service::revoke(const std::shared_ptr<link> &by, uint64_t word)
{
    const bool is_known = std::any_of(
        to_answer_.begin(), to_answer_.end(), [&](const auto &each) {
            return (each.second == word) && (each.first.lock() == by);
        });
    if (!is_known) {
        to_answer_.emplace_back(by, word);
    }
}

/* Once no operation uses the key any more. */
void service::answer_revocations()
{
    std::erase_if(to_answer_, [](const auto &each) {
        const auto to = each.first.lock();
        if ((to != nullptr) &&
            remote_key::revoke(to->address().process, each.second)) {
            return false;
        }
        if (to != nullptr) {
            to->answer_revocation(each.second);
        }
        return true;
    });
}

bool service::revoke_at_peers(uint64_t word, bool drain)
{
    std::unique_lock<std::mutex> one(revoking_);
    std::vector<std::shared_ptr<inbound>> asked;
    std::unique_lock<std::mutex> guard(control_lock_);
    for (const auto &[_, each] : inbounds_) {
        if (each->has_ports() && each->has_ended()) {
            quiet_at_ = clock::now() + base::card_ports::drain_time;
        } else if (each->has_ports()) {
            const revoke_message message{.word = word};
            each->awaited_word = word;
            (void)each->send(&message, sizeof(message));
            asked.push_back(each);
        }
    }
    const auto is_silent = [&](const auto &each) {
        return (each->awaited_word == word) && !each->has_ended();
    };
    (void)revoked_.wait_for(guard, revoke_timeout, [&] {
        return std::none_of(asked.begin(), asked.end(), is_silent);
    });
    std::erase_if(asked, [&](const auto &each) { return !is_silent(each); });
    guard.unlock();
    if (!asked.empty()) {
        const std::lock_guard<std::mutex> serving(serve_lock_);
        for (const auto &each : asked) {
            ucs_diag("gaudi_ipc: process %u does not give up a key: its ports "
                     "are disconnected",
                     each->pid());
            each->end_ports();
        }
    }
    one.unlock();
    guard.lock();
    if (!asked.empty()) {
        quiet_at_ = clock::now() + base::card_ports::drain_time;
        return false;
    }
    while (drain && (clock::now() < quiet_at_)) {
        (void)revoked_.wait_until(guard, quiet_at_);
    }
    return clock::now() >= quiet_at_;
}

/* --- serving ----------------------------------------------------------------
 */

/* Under the serve lock. */
ucs_status_t service::start_session()
{
    if (session_ != nullptr) {
        return UCS_OK;
    }
    if (users_ == 0) {
        return UCS_ERR_NO_DEVICE;
    }
    return base::guarded([this] {
        auto made                    = std::make_unique<session>();
        const base::held_cards cards = base::card_table::instance().cards();
        base::card *const home       = cards.first();
        base::transfer_options options;
        options.looks_for_cards = false;
        /* A lost card is no reason to refuse: each request gets its error. */
        ucs_status_t status =
            (home != nullptr)
                ? base::transfer_engine::create(*home, options, made->engine)
                : UCS_ERR_NO_DEVICE;
        if (status != UCS_OK) {
            status = base::transfer_engine::create(options, made->engine);
        }
        int fd = -1;
        if (status == UCS_OK) {
            status = made->engine->event_fd(fd);
        }
        if ((status == UCS_OK) && !watch(events_.get(), fd, engine_id)) {
            status = UCS_ERR_NO_RESOURCE;
        }
        if (status == UCS_OK) {
            base::transfer_engine::open(made->domain);
            session_ = std::move(made);
        }
        return status;
    });
}

/* Under the serve lock. */
ucs_status_t service::add_client(const std::shared_ptr<inbound> &client)
{
    const ucs_status_t status =
        client->has_ended() ? UCS_ERR_CONNECTION_RESET : start_session();
    if (status != UCS_OK) {
        return status;
    }
    auto &clients = session_->clients;
    if (std::find(clients.begin(), clients.end(), client) == clients.end()) {
        client->set_awake(true);
        clients.push_back(client);
        any_clients_.store(true, std::memory_order_release);
    }
    return UCS_OK;
}

/* Start what was asked for, and collect what has ended. Under the serve lock.
 */
unsigned service::serve()
{
    if (session_ == nullptr) {
        return 0;
    }
    unsigned count        = 0;
    bool any_gone         = false;
    const unsigned share  = session_->share();
    bounce_buffer &bounce = session_->bounce;
    for (const auto &each : session_->clients) {
        const uint64_t last = bounce.copied() + most_bytes_in_turn;
        for (unsigned i = 0; (i < most_in_turn) && (bounce.copied() < last) &&
                             each->start_next(*session_->engine,
                                              session_->domain, share, bounce);
             ++i) {
            ++count;
        }
        any_gone |= each->has_ended() && (each->running() == 0);
    }
    if (!session_->engine->is_idle()) {
        count += session_->engine->progress();
    }
    if (any_gone) {
        std::erase_if(session_->clients, [](const auto &each) {
            const bool is_over = each->has_ended() && (each->running() == 0) &&
                                 !each->has_ports();
            if (is_over) {
                each->unmap_chunks();
            }
            return is_over;
        });
        any_clients_.store(!session_->clients.empty());
    }
    return count;
}

unsigned service::progress()
{
    service &self = instance();
    if (!self.any_clients_.load(std::memory_order_acquire)) [[likely]] {
        return 0;
    }
    const std::unique_lock<std::mutex> guard(self.serve_lock_,
                                             std::try_to_lock);
    if (!guard.owns_lock()) {
        return 0;
    }
    const unsigned count = self.serve();
    if (count > 0) {
        self.helped_.fetch_add(1, std::memory_order_relaxed);
    }
    return count;
}

/* Until the process ends. */
void service::run()
{
    unsigned helped = 0;
    clock::time_point worked;
    clock::time_point looked;
    for (;;) {
        const unsigned now = helped_.load(std::memory_order_relaxed);
        if ((now != std::exchange(helped, now)) && !handle_events(trust_ms)) {
            worked = clock::now();
            continue;
        }
        unsigned count;
        {
            const std::lock_guard<std::mutex> guard(serve_lock_);
            count = serve();
        }
        const auto time = clock::now();
        if (count > 0) {
            worked = time;
        } else if (time - worked >= idle_time) {
            if (may_sleep()) {
                handle_events(to_answer_.empty() ? -1 : 1);
                stay_awake();
                worked = clock::now();
                continue;
            }
            stay_awake();
            util::nap(); /* ports end without an event */
        } else {
            std::this_thread::yield();
        }
        if (time - looked >= look_time) {
            looked = time;
            handle_events(0);
        }
    }
}

/* Have clients ring. @return false: there is something to do. */
bool service::may_sleep()
{
    const std::lock_guard<std::mutex> guard(serve_lock_);
    if (session_ == nullptr) {
        return true;
    }
    const auto &clients = session_->clients;
    for (const auto &each : clients) {
        each->set_awake(false);
    }
    const unsigned share = session_->share();
    return std::none_of(
               clients.begin(), clients.end(),
               [=](const auto &each) { return each->may_start(share); }) &&
           (session_->engine->arm() == UCS_OK);
}

void service::stay_awake()
{
    const std::lock_guard<std::mutex> guard(serve_lock_);
    if (session_ != nullptr) {
        for (const auto &each : session_->clients) {
            each->set_awake(true);
        }
    }
}

} // namespace gaudi::ipc
