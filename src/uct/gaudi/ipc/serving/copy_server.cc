/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/serving/copy_server.h"

#include "uct/gaudi/base/cards/ports.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/process/remote_process.h"
#include "uct/gaudi/ipc/serving/served_client.h"
#include "util/background_thread.h"
#include "util/epoll.h"
#include "util/fork_handlers.h"
#include "util/locks.h"
#include "util/process.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

using clock = std::chrono::steady_clock;

/* Copies under way, of all clients together: enough that the card does not
 * wait. What else they ask for stays in their rings, so that whoever comes
 * later need not wait for it. */
constexpr unsigned most_under_way = 8;

/* For so long it looks before it sleeps: the next request of a client that
 * waits for the last one comes by then. Where others want the core, that is few
 * looks. */
constexpr std::chrono::microseconds idle_time{50};

/* Requests of a client in its turn: some end at once. */
constexpr unsigned most_in_turn = 64;

/* From one look at who has gone to the next. */
constexpr std::chrono::milliseconds look_apart{50};
/* Between two looks whether interfaces still do the thread's work. */
constexpr int trust_ms = 1;
/* As many as have asked for anything, and are alive. */
constexpr size_t max_clients = 4096;

} // namespace

/* What there is between the opening of a memory domain and the closing of the
 * last one. */
struct copy_server::session {
    /* How many copies of each may be under way. */
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
        for (const auto &each : clients) {
            each->end_ports();
        }
        engine.reset(); /* ends what is under way */
        for (const auto &each : clients) {
            each->end();
        }
    }

    std::vector<std::unique_ptr<served_client>> clients;
    base::flush_domain domain{};
    std::unique_ptr<base::transfer_engine> engine;
};

/* --- copy_server ---------------------------------------------------------- */

copy_server &copy_server::instance()
{
    return util::of_this_process<copy_server>();
}

copy_server::copy_server()  = default;
copy_server::~copy_server() = default;

void copy_server::open()
{
    const std::lock_guard<std::mutex> guard(lock_);
    ++users_;
}

/* What goes may close cards, so it goes without the lock. Nobody else has it
 * then: the next domain makes its own. */
void copy_server::close()
{
    std::unique_ptr<session> over;
    const std::lock_guard<std::mutex> guard(lock_);
    int fd = -1;
    if ((--users_ > 0) || (session_ == nullptr)) {
        return;
    }
    {
        const std::lock_guard<std::mutex> changing(looking_);
        over  = std::move(session_);
        ends_ = false;
    }
    any_clients_.store(false, std::memory_order_release);
    /* A forked child may have it open, too: it would stay. */
    if (over->engine->event_fd(fd) == UCS_OK) {
        (void)epoll_ctl(events_.get(), EPOLL_CTL_DEL, fd, nullptr);
    }
}

void copy_server::offer()
{
    if (ucs_likely(offered_.load(std::memory_order_acquire))) {
        return;
    }
    const std::lock_guard<std::mutex> guard(lock_);
    own_page *page = own_page::instance();
    if (offered_.load() || (page == nullptr)) {
        return;
    }
    util::unique_fd bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    util::unique_fd events(epoll_create1(EPOLL_CLOEXEC));
    file_offer way;
    file_ref name;
    way.fds[0] = bell.get();
    way.take   = take;
    if (!bell || !events || !util::add_event(events.get(), bell.get()) ||
        (file_service::add(std::move(way), name) != UCS_OK)) {
        ucs_diag("gaudi_ipc: no descriptors for copies for other processes: "
                 "%m");
        return;
    }
    bell_            = std::move(bell);
    events_          = std::move(events);
    not_in_children_ = util::closed_in_children(bell_.get());
    page->offer_copies(name);
    offered_.store(true, std::memory_order_release);
}

/* On the thread of files. */
ucs_status_t copy_server::take(const process_id &sender, file_pair brought)
{
    return base::guarded(
        [&] { return instance().add(sender, std::move(brought)); });
}

ucs_status_t copy_server::add(const process_id &sender, file_pair brought)
{
    if (!is_event(brought[1].get())) {
        return UCS_ERR_INVALID_PARAM;
    }
    auto client = own_page::instance()->find_importer(sender);
    if (client == nullptr) {
        return UCS_ERR_INVALID_PARAM;
    }
    auto added = std::make_unique<served_client>(client, std::move(brought[1]));
    ucs_status_t status = added->map(brought[0].get());
    if (status != UCS_OK) {
        return status;
    }
    const std::lock_guard<std::mutex> guard(lock_);
    if (users_ == 0) {
        return UCS_ERR_NO_ELEM;
    }
    if (session_ == nullptr) {
        status = start();
        if (status != UCS_OK) {
            return status;
        }
    }
    forget_gone();
    if (session_->clients.size() >= max_clients) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }
    /* The end of a process is told once for all its rings. */
    (void)util::add_event(events_.get(), client->process().life(),
                          EPOLLONESHOT);
    added->set_sleeping(true); /* the thread may be asleep already */
    {
        const std::lock_guard<std::mutex> changing(looking_);
        session_->clients.push_back(std::move(added));
    }
    any_clients_.store(true, std::memory_order_release);
    return UCS_OK;
}

ucs_status_t copy_server::start()
{
    auto made           = std::make_unique<session>();
    ucs_status_t status = base::transfer_engine::create({}, made->engine);
    int fd              = -1;
    if (status == UCS_OK) {
        status = made->engine->event_fd(fd);
    }
    if (status != UCS_OK) {
        return status;
    }
    base::transfer_engine::open(made->domain);
    if (!running_) {
        util::start_background_thread("ucx-gaudi-copy", [this] { run(); });
        running_ = true;
    }
    if (!util::add_event(events_.get(), fd)) {
        return UCS_ERR_NO_RESOURCE;
    }
    const std::lock_guard<std::mutex> changing(looking_);
    session_ = std::move(made);
    return UCS_OK;
}

void copy_server::forget_gone()
{
    auto &clients = session_->clients;
    for (const auto &each : clients) {
        each->end_ports_if_gone();
    }
    ends_ = own_page::forget_dead_importers();
    const std::lock_guard<std::mutex> changing(looking_);
    std::erase_if(clients, [](const auto &each) { return each->is_gone(); });
    any_clients_.store(!clients.empty(), std::memory_order_release);
}

/* Start what was asked for, and collect what has ended. */
unsigned copy_server::serve()
{
    unsigned count = 0;
    if (session_ == nullptr) {
        return count;
    }
    base::transfer_engine &engine = *session_->engine;
    const unsigned share          = session_->share();
    for (const auto &each : session_->clients) {
        for (unsigned i = 0; (i < most_in_turn) &&
                             each->start_next(engine, session_->domain, share);
             ++i) {
            ++count;
        }
    }
    return engine.is_idle() ? count : count + engine.progress();
}

/* For an interface. Where there has been nothing for a while, it gives its core
 * once to a client that may wait for it. */
bool copy_server::has_work()
{
    const uint32_t core = own_core();
    bool yields         = false;
    {
        const std::unique_lock<std::mutex> guard(looking_, std::try_to_lock);
        if (!guard.owns_lock() || (session_ == nullptr)) {
            return false;
        }
        ++idle_looks_;
        for (const auto &each : session_->clients) {
            each->set_core(core);
            if (each->is_waiting()) {
                idle_looks_ = 0;
                return true;
            }
            yields |= each->was_on(core);
        }
        yields &= (idle_looks_ == looks_before_yield);
    }
    if (yields) {
        std::this_thread::yield();
    }
    return false;
}

unsigned copy_server::progress()
{
    copy_server &self = instance();
    if (ucs_likely(!self.any_clients_.load(std::memory_order_acquire))) {
        return 0;
    }
    if (!self.has_work()) {
        return 0;
    }
    const std::unique_lock<std::mutex> guard(self.lock_, std::try_to_lock);
    if (!guard.owns_lock()) {
        return 0;
    }
    self.helped_.fetch_add(1, std::memory_order_relaxed);
    return self.serve();
}

/* Until the process ends. */
void copy_server::run()
{
    unsigned helped = 0;
    clock::time_point looked;
    clock::time_point worked;
    for (;;) {
        const auto time = clock::now();
        if (time - looked >= look_apart) { /* it may never sleep */
            looked = time;
            const std::lock_guard<std::mutex> guard(lock_);
            if (session_ != nullptr) {
                forget_gone();
            }
        }
        const unsigned now = helped_.load(std::memory_order_relaxed);
        if ((now != std::exchange(helped, now)) && !is_rung(trust_ms)) {
            worked = time;
            continue;
        }
        unsigned count;
        {
            const std::lock_guard<std::mutex> guard(lock_);
            count = serve();
        }
        if (count > 0) {
            worked = time;
        } else if (time - worked < idle_time) {
            std::this_thread::yield();
        } else if (may_sleep()) {
            sleep();
            worked = clock::now();
        } else { /* for ports, which ring no bell */
            util::nap();
        }
    }
}

/* Whether a client rings within a time. */
bool copy_server::is_rung(int timeout_ms)
{
    pollfd wanted{bell_.get(), POLLIN, 0};
    eventfd_t rung;
    return (poll(&wanted, 1, timeout_ms) > 0) &&
           (eventfd_read(bell_.get(), &rung) == 0);
}

/* Have whoever brings something to do ring. @return false: there is something.
 */
bool copy_server::may_sleep()
{
    const std::lock_guard<std::mutex> guard(lock_);
    if (session_ == nullptr) {
        return true;
    }
    forget_gone();
    set_sleeping(true);
    const auto &clients = session_->clients;
    if (std::any_of(clients.begin(), clients.end(),
                    [share = session_->share()](const auto &each) {
                        return each->may_start(share);
                    }) ||
        (session_->engine->arm() != UCS_OK)) {
        set_sleeping(false);
        return false;
    }
    return true;
}

void copy_server::set_sleeping(bool sleeping)
{
    for (const auto &each : session_->clients) {
        each->set_sleeping(sleeping);
    }
}

void copy_server::sleep()
{
    constexpr int most = 16;
    epoll_event what[most];
    const std::chrono::milliseconds drain = base::card_ports::drain_time;
    (void)epoll_wait(events_.get(), what, most,
                     ends_ ? std::max(static_cast<int>(drain.count()), 10)
                           : -1);
    (void)is_rung(0);
    const std::lock_guard<std::mutex> guard(lock_);
    if (session_ != nullptr) {
        set_sleeping(false);
    }
}

} // namespace gaudi::ipc
