#include "uct/gaudi/ipc/serving/copy_server.h"

#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/process/remote_process.h"
#include "uct/gaudi/ipc/serving/copy_ring.h"
#include "util/background_thread.h"
#include "util/file_mapping.h"
#include "util/fork_handlers.h"
#include "util/process.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

/* Requests of one client before the next one has its turn. */
constexpr unsigned turn = 16;
/* Looks that find nothing before the thread sleeps: the next request of a
 * client that waits for the last one comes by then. */
constexpr unsigned idle_looks = 100;
/* Between two looks whether interfaces still do the thread's work. */
constexpr std::chrono::milliseconds trust{1};
/* As many as have asked for anything, and are alive. */
constexpr size_t max_clients = 4096;

int to_errno(ucs_status_t status)
{
    switch (status) {
    case UCS_OK:
        return 0;
    case UCS_ERR_NO_DEVICE:
        return -ENODEV;
    case UCS_ERR_INVALID_ADDR:
        return -EFAULT;
    case UCS_ERR_TIMED_OUT:
        return -ETIMEDOUT;
    case UCS_ERR_NO_MEMORY:
        return -ENOMEM;
    case UCS_ERR_REJECTED:
        return -EKEYREVOKED;
    default:
        return -EIO;
    }
}

template <typename Number>
Number read_once(const Number &shared)
{
    return __atomic_load_n(&shared, __ATOMIC_RELAXED);
}

/* The flag is its process's, too, and can be cleared any time. */
bool is_nonblocking(int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    return (flags >= 0) && ((flags & O_NONBLOCK) != 0);
}

bool add_event(int epoll_fd, int fd, uint32_t how)
{
    epoll_event event{};
    event.events = EPOLLIN | how;
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

} // namespace

/* A copy of a client. */
struct copy_server::served_copy {
    uct_completion_t done;
    client *of      = nullptr;
    uint64_t number = 0;
    uint64_t stamp  = 0;
    bool is_running = false;
};

/* Who has brought a ring. */
class copy_server::client {
public:
    client(std::shared_ptr<remote_process> process, util::unique_fd wake)
        : process_(std::move(process)), wake_(std::move(wake))
    {}
    ~client()
    {
        if (memory_ != nullptr) {
            base::memory_map::instance().deregister_host(memory_);
        }
    }

    /* Map its ring. @return UCS_ERR_INVALID_PARAM: it is none;
     * UCS_ERR_NO_MEMORY. */
    ucs_status_t map(int fd);

    [[nodiscard]] const remote_process &process() const { return *process_; }

    /* Whether it wants nothing more, and all has ended that was started. */
    [[nodiscard]] bool is_gone() const
    {
        return (running_ == 0) && (gone_ || (ring().client_gone.load() != 0) ||
                                   !process_->is_alive());
    }

    [[nodiscard]] bool has_posted() const
    {
        return !gone_ && (ring().posted.load() != started_);
    }

    /* It is to ring before it waits for anything; or not. */
    void set_sleeping(bool sleeping)
    {
        ring().server_sleeps.store(sleeping ? 1 : 0);
    }

    /* Tell it that nothing more is copied. */
    void end()
    {
        gone_ = true;
        ring().server_gone.store(1);
        wake();
    }

    /* Start the next copy. @return false: there is none, or no room now. */
    bool start_next(base::transfer_engine &engine, base::flush_domain &domain);

    void finish(served_copy &copy, int result)
    {
        copy_request &ended = request(copy.number);
        ended.result        = result;
        ended.ended.store(copy.number + 1);
        copy.is_running = false;
        --running_;
        if (ring().client_sleeps.load() != 0) {
            wake();
        }
    }

private:
    [[nodiscard]] copy_ring &ring() const
    {
        return *reinterpret_cast<copy_ring *>(mapping_.start());
    }
    [[nodiscard]] copy_request &request(uint64_t number) const
    {
        return ring().requests()[number % copies_.size()];
    }

    void wake()
    {
        ring().client_sleeps.store(0);
        if (is_nonblocking(wake_.get())) {
            (void)eventfd_write(wake_.get(), 1);
        }
    }

    const std::shared_ptr<remote_process> process_;
    const util::unique_fd wake_;
    util::file_mapping mapping_;
    char *data_                = nullptr;
    uint64_t data_bytes_       = 0;
    base::host_memory *memory_ = nullptr; /* the chunks; goes first */
    std::vector<served_copy> copies_;     /* by slot */
    uint64_t started_ = 0;
    unsigned running_ = 0;
    bool gone_        = false;
};

ucs_status_t copy_server::client::map(int fd)
{
    const size_t length = util::lasting_length(fd);
    if (length < copy_ring::page) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (!mapping_.map(fd, 0, length)) {
        return UCS_ERR_NO_MEMORY;
    }
    const copy_ring &head = ring();
    const uint32_t slots  = read_once(head.slots);
    data_bytes_           = read_once(head.data_bytes);
    if ((head.magic != copy_ring::right_magic) ||
        (head.version != wire_version) || (slots == 0) ||
        (slots > copy_ring::max_slots) ||
        (data_bytes_ > copy_ring::max_data_bytes) ||
        (length != copy_ring::file_size(slots, data_bytes_)) ||
        (madvise(mapping_.start(), length, MADV_DONTFORK) != 0)) {
        return UCS_ERR_INVALID_PARAM;
    }
    data_ = mapping_.start() + copy_ring::data_offset(slots);
    copies_.resize(slots);
    memory_ =
        base::memory_map::instance().register_host(data_, data_bytes_, true);
    return UCS_OK;
}

bool copy_server::client::start_next(base::transfer_engine &engine,
                                     base::flush_domain &domain)
{
    const uint64_t posted = ring().posted.load();
    served_copy &copy     = copies_[started_ % copies_.size()];
    if (gone_ || (posted == started_)) {
        return false;
    }
    if ((posted - started_ > copies_.size()) || copy.is_running) {
        ucs_diag("gaudi_ipc: process %u asks for copies in a way that makes no "
                 "sense: it gets no more",
                 process_->id().pid);
        end();
        return false;
    }
    const copy_request &asked = request(started_);
    const uint64_t address    = read_once(asked.address);
    const uint64_t offset     = read_once(asked.offset);
    const uint64_t length     = read_once(asked.length);
    const bool is_put         = read_once(asked.is_put) != 0;
    const own_page::mark key{read_once(asked.cell), read_once(asked.stamp)};
    const bool fits = (length != 0) && (offset <= data_bytes_) &&
                      (length <= data_bytes_ - offset) &&
                      base::memory_map::is_device(address);
    own_page &page      = *own_page::instance();
    ucs_status_t status = !fits ? UCS_ERR_INVALID_ADDR
                          : page.begin_use(key, address, length)
                              ? UCS_OK
                              : UCS_ERR_REJECTED;
    copy                = {{}, this, started_, key.stamp, true};
    if (status == UCS_OK) {
        const base::side here(address);
        const base::side chunk(data_ + offset);
        copy.done.count = 1;
        copy.done.func  = on_end;
        status          = engine.start(domain, is_put ? here : chunk,
                              is_put ? chunk : here, length, &copy.done);
        if (status != UCS_INPROGRESS) {
            page.end_use(key.stamp);
        }
        if (status == UCS_ERR_NO_RESOURCE) {
            copy.is_running = false;
            return false;
        }
    }
    ++started_;
    ++running_;
    if (status != UCS_INPROGRESS) {
        finish(copy, to_errno(status));
    }
    return true;
}

/* What there is between the opening of a memory domain and the closing of the
 * last one. */
struct copy_server::session {
    ~session()
    {
        engine.reset(); /* ends what is under way */
        for (const auto &each : clients) {
            each->end();
        }
    }

    std::vector<std::unique_ptr<client>> clients;
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
    over = std::move(session_);
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
    if (!bell || !events || !add_event(events.get(), bell.get(), 0) ||
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
    std::shared_ptr<remote_process> process;
    ucs_status_t status = remote_process::open(sender, process);
    if (status != UCS_OK) {
        return status;
    }
    auto added = std::make_unique<client>(process, std::move(brought[1]));
    status     = added->map(brought[0].get());
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
    (void)add_event(events_.get(), process->pidfd(), EPOLLONESHOT);
    added->set_sleeping(true); /* the thread may be asleep already */
    session_->clients.push_back(std::move(added));
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
    if (!add_event(events_.get(), fd, 0)) {
        return UCS_ERR_NO_RESOURCE;
    }
    session_ = std::move(made);
    return UCS_OK;
}

void copy_server::on_end(uct_completion_t *self)
{
    auto &copy = *ucs_container_of(self, served_copy, done);
    own_page::instance()->end_use(copy.stamp);
    copy.of->finish(copy, to_errno(self->status));
}

void copy_server::forget_gone()
{
    auto &clients = session_->clients;
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
    for (const auto &each : session_->clients) {
        for (unsigned i = 0;
             (i < turn) && each->start_next(engine, session_->domain); ++i) {
            ++count;
        }
    }
    return engine.is_idle() ? count : count + engine.progress();
}

unsigned copy_server::progress()
{
    copy_server &self = instance();
    if (ucs_likely(!self.any_clients_.load(std::memory_order_acquire))) {
        return 0;
    }
    const std::unique_lock<std::mutex> guard(self.lock_, std::try_to_lock);
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
void copy_server::run()
{
    unsigned helped = 0;
    for (unsigned looks = 0;;) {
        const unsigned now = helped_.load(std::memory_order_relaxed);
        if (now != std::exchange(helped, now)) {
            std::this_thread::sleep_for(trust);
            looks = 0;
            continue;
        }
        unsigned count;
        {
            const std::lock_guard<std::mutex> guard(lock_);
            count = serve();
        }
        if (count > 0) {
            looks = 0;
        } else if (++looks < idle_looks) {
            std::this_thread::yield();
        } else if (may_sleep()) {
            sleep();
            looks = 0;
        }
    }
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
                    [](const auto &each) { return each->has_posted(); }) ||
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
    (void)epoll_wait(events_.get(), what, most, -1);
    eventfd_t rung;
    (void)eventfd_read(bell_.get(), &rung);
    const std::lock_guard<std::mutex> guard(lock_);
    if (session_ != nullptr) {
        set_sleeping(false);
    }
}

} // namespace gaudi::ipc
