#include "uct/gaudi/ipc/mailbox.h"

#include "uct/gaudi/base/status.h"
#include "uct/gaudi/ipc/file_service.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

extern "C" {
#include <ucs/time/time.h>
}

namespace gaudi::ipc {

namespace {

/* How often senders are looked after, while there is no event. */
constexpr double look_interval_s = 0.1;

/* Name of the events that are not the end of a process. */
constexpr uint64_t signal_event = 0;

constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

bool has_ended(int pidfd)
{
    pollfd ended{pidfd, POLLIN, 0};
    return ::poll(&ended, 1, 0) == 1;
}

/* Whether the process that an owner word names is no more. One that cannot be
 * looked at is taken to live: its ring must not get a second writer. */
bool is_another_now(uint64_t owner)
{
    const uint64_t start = process_start_time(owner_pid(owner));
    return (start != unknown_start_time) &&
           (static_cast<uint32_t>(start) != owner_start_time(owner));
}

} // namespace

mailbox::mailbox(const mailbox_layout &layout, unsigned generation)
    : layout_(layout), generation_(generation), slots_(layout.ring_count())
{
    polled_.reserve(layout.ring_count()); /* polls allocate nothing */
}

ucs_status_t mailbox::create(const mailbox_options &options,
                             std::unique_ptr<mailbox> &mailbox_p)
{
    if ((options.fifo_size > largest_fifo) || (options.max_senders == 0) ||
        (options.max_senders > most_senders)) {
        ucs_error("gaudi_ipc: %u senders with %zu bytes each: not more than %u "
                  "and %zu, and at least one sender",
                  options.max_senders, options.fifo_size, most_senders,
                  largest_fifo);
        return UCS_ERR_INVALID_PARAM;
    }
    const mailbox_layout layout(
        std::bit_ceil(std::max(options.fifo_size, ring_min_size)),
        options.max_senders);
    const process_id process = own_process();
    std::unique_ptr<mailbox> fresh(
        new mailbox(layout, base::process_generation()));
    fresh->address_.process   = process;
    const ucs_status_t status = fresh->initialize();
    if (status == UCS_OK) {
        mailbox_p = std::move(fresh);
    }
    return status;
}

ucs_status_t mailbox::initialize()
{
    int ends[2];
    file_.reset(
        memfd_create("ucx-gaudi-mailbox", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file_ ||
        (ftruncate(file_.get(), static_cast<off_t>(layout_.length())) != 0) ||
        (fcntl(file_.get(), F_ADD_SEALS, seals) != 0)) {
        ucs_error("gaudi_ipc: cannot make a mailbox of %zu bytes: %m",
                  layout_.length());
        return UCS_ERR_NO_MEMORY;
    }
    memory_ = mmap(nullptr, layout_.length(), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_NORESERVE, file_.get(), 0);
    if (memory_ == MAP_FAILED) {
        memory_ = nullptr;
        ucs_error("gaudi_ipc: cannot map a mailbox of %zu bytes: %m",
                  layout_.length());
        return UCS_ERR_NO_MEMORY;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                   ends) != 0) {
        ucs_error("gaudi_ipc: cannot make a pair of sockets: %m");
        return UCS_ERR_IO_ERROR;
    }
    signal_.reset(ends[0]);
    senders_end_.reset(ends[1]);

    events_.reset(epoll_create1(EPOLL_CLOEXEC));
    epoll_event wanted{EPOLLIN, {.u64 = signal_event}};
    if (!events_ ||
        (epoll_ctl(events_.get(), EPOLL_CTL_ADD, signal_.get(), &wanted) !=
         0) ||
        !describe_file(file_.get(), file_kind::mailbox, address_.file) ||
        !describe_file(senders_end_.get(), file_kind::signal,
                       header().signal)) {
        ucs_error("gaudi_ipc: cannot wait for messages: %m");
        return UCS_ERR_IO_ERROR;
    }

    header().magic      = mailbox_header::right_magic;
    header().version    = wire_version;
    header().nonce      = address_.process.nonce;
    header().ring_size  = layout_.ring_size();
    header().ring_count = layout_.ring_count();
    /* Without the service pidfd_getfd is left to them. */
    (void)file_service::add(address_.file);
    (void)file_service::add(header().signal);
    looked_ = ucs_get_time();
    return UCS_OK;
}

mailbox::~mailbox()
{
    if (memory_ == nullptr) {
        return;
    }
    if (generation_ == base::process_generation()) {
        file_service::remove(address_.file);
        file_ref signal{};
        if (describe_file(senders_end_.get(), file_kind::signal, signal)) {
            file_service::remove(signal);
        }
        header().closed.store(1);
        for (const auto &ring : slots_) {
            if (ring != nullptr) {
                ring->reader.control()->state.store(ring_closed);
            }
        }
    }
    munmap(memory_, layout_.length());
}

/* After sleep. */
void mailbox::wake()
{
    armed_ = false;
    header().asleep.store(0, std::memory_order_relaxed);
    find_dead();
    if (header().ring_wanted.exchange(0) != 0) {
        adopt_all();
    }
}

/* Take notice of the rings that senders marked. */
void mailbox::collect()
{
    uint64_t words = header().marked_words.exchange(0);
    for (; words != 0; words &= words - 1) {
        const auto word = static_cast<unsigned>(std::countr_zero(words));
        uint64_t marks  = header().marked[word].exchange(0);
        for (; marks != 0; marks &= marks - 1) {
            const unsigned index =
                word * mailbox_header::word_bits + std::countr_zero(marks);
            if ((index < layout_.ring_count()) && (base::guarded([&] {
                                                       adopt(index);
                                                       return UCS_OK;
                                                   }) != UCS_OK)) {
                header().mark(index); /* to try again */
            }
        }
    }
}

void mailbox::look_after_senders()
{
    const ucs_time_t now = ucs_get_time();
    if (now - looked_ < ucs_time_from_sec(look_interval_s)) {
        return;
    }
    looked_ = now;
    find_dead();
    header().ring_wanted.store(0, std::memory_order_relaxed);
    adopt_all();
}

/* Bury processes that have ended. */
void mailbox::find_dead()
{
    constexpr int batch = 16;
    epoll_event found[batch];
    bool more = true;
    while (more) {
        const int count = epoll_wait(events_.get(), found, batch, 0);
        more            = false;
        for (int i = 0; i < count; ++i) {
            if (found[i].data.u64 != signal_event) {
                bury(found[i].data.u64);
                more = (count == batch);
            }
        }
    }
    for (auto next = senders_.begin(); next != senders_.end();) {
        const auto &[owner, who] = *next++; /* bury may erase it */
        if (!who.pidfd && (owner_pid(owner) != address_.process.pid) &&
            is_another_now(owner)) {
            bury(owner);
        }
    }
}

/* What a dead process has sent is delivered, then its rings are free. */
void mailbox::bury(uint64_t owner)
{
    const auto found = senders_.find(owner);
    if (found == senders_.end()) {
        return;
    }
    ucs_debug("gaudi_ipc: process %u, which owns %u rings, has ended",
              owner_pid(owner), found->second.rings);
    /* It stays readable. A process without a pidfd is found dead again, which
     * does no harm. */
    unwatch(found->second);
    found->second.is_dead = true; /* rings that it took and that are found later
                                     are finished, too */
    for (const auto &ring : slots_) {
        if ((ring != nullptr) && (ring->owner == owner)) {
            ring->finishing = true;
            start_polling(*ring);
        }
    }
}

void mailbox::adopt_all()
{
    for (unsigned index = 0; index < layout_.ring_count(); ++index) {
        if ((slots_[index] == nullptr) &&
            (header().owners[index].load(std::memory_order_relaxed) != 0)) {
            adopt(index);
        }
    }
}

/* Read a ring that has an owner; it may have been read already. */
void mailbox::adopt(unsigned index)
{
    const uint64_t owner =
        header().owners[index].load(std::memory_order_acquire);
    std::unique_ptr<slot> &ring = slots_[index];
    if (ring == nullptr) {
        if (owner == 0) {
            return;
        }
        auto *start = static_cast<char *>(memory_) + layout_.ring_offset(index);
        auto *control = reinterpret_cast<ring_control *>(start);
        sender &who   = senders_[owner];
        ring          = std::make_unique<slot>();
        ring->index   = index;
        ring->owner   = owner;
        ring->reader  = ring_reader(control, start + layout_.data_offset(),
                                    layout_.ring_size());
        if (who.rings++ == 0) {
            who.is_dead = !watch(owner, who);
        }
        ring->finishing = who.is_dead;
        ++adopted_;
    }
    if ((owner != ring->owner) || (ring->reader.control()->finished.load(
                                       std::memory_order_acquire) != 0)) {
        ring->finishing = true;
    }
    start_polling(*ring);
}

/* @return Whether the process lives. */
bool mailbox::watch(uint64_t owner, sender &who)
{
    const uint32_t pid = owner_pid(owner);
    if (pid == address_.process.pid) {
        return owner == owner_word(address_.process);
    }
    who.pidfd.reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!who.pidfd && ((errno == ESRCH) || (errno == EINVAL))) {
        return false;
    }
    if (is_another_now(owner) || (who.pidfd && has_ended(who.pidfd.get()))) {
        who.pidfd.reset();
        return false;
    }
    epoll_event wanted{EPOLLIN, {.u64 = owner}};
    if (who.pidfd && (epoll_ctl(events_.get(), EPOLL_CTL_ADD, who.pidfd.get(),
                                &wanted) != 0)) {
        who.pidfd.reset();
    }
    return true;
}

/* The event would outlive the descriptor here if a forked child had it, too. */
void mailbox::unwatch(sender &who)
{
    if (who.pidfd) {
        epoll_ctl(events_.get(), EPOLL_CTL_DEL, who.pidfd.get(), nullptr);
        who.pidfd.reset();
    }
}

void mailbox::start_polling(slot &ring)
{
    if (ring.broken) {
        if (ring.finishing) {
            free(ring);
        }
    } else if (!ring.polled) {
        polled_.push_back(&ring);
        ring.polled      = true;
        ring.empty_polls = 0;
        ring.reader.control()->state.store(ring_polled,
                                           std::memory_order_relaxed);
    }
}

void mailbox::fail(slot &ring)
{
    ring.broken = true;
    untidy_     = true;
    ring.reader.control()->state.store(ring_closed, std::memory_order_relaxed);
    ucs_error("gaudi_ipc: process %u sends nonsense: nothing more is taken "
              "from it",
              owner_pid(ring.owner));
}

/* Tell the sender that a ring is not polled, unless there is something in it.
 */
bool mailbox::try_idle(slot &ring)
{
    ring_reader::message message;
    std::atomic<uint32_t> &state = ring.reader.control()->state;
    state.store(ring_idle, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (ring.reader.peek(message) == ring_reader::result::none) {
        return true;
    }
    state.store(ring_polled, std::memory_order_relaxed);
    return false;
}

/* Take rings off the polled ones: those that are done, broken, or long empty.
 */
void mailbox::tidy()
{
    ring_reader::message message;
    untidy_ = false;
    for (size_t i = 0; i < polled_.size();) {
        slot &ring = *polled_[i];
        bool keep  = true;
        if (ring.finishing) {
            keep = !ring.broken &&
                   (ring.reader.peek(message) != ring_reader::result::none);
        } else if (ring.broken) {
            keep = false;
        } else if (ring.empty_polls > patience) {
            ring.empty_polls = 0;
            keep             = !try_idle(ring);
        }
        if (keep) {
            ++i;
            continue;
        }
        ring.polled = false;
        polled_.erase(polled_.begin() + static_cast<ptrdiff_t>(i));
        if (ring.finishing) {
            free(ring);
        }
    }
    next_ = 0;
}

/* Make a ring as new, for the next sender. */
void mailbox::free(slot &ring)
{
    const unsigned index = ring.index;
    const auto found     = senders_.find(ring.owner);
    if (--found->second.rings == 0) {
        unwatch(found->second);
        senders_.erase(found);
    }
    if (fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(layout_.ring_offset(index)),
                  static_cast<off_t>(layout_.ring_length())) != 0) {
        ucs_debug("gaudi_ipc: memory of a ring cannot be given back: %m");
        std::memset(static_cast<char *>(memory_) + layout_.ring_offset(index),
                    0, layout_.ring_length());
    }
    slots_[index].reset();
    --adopted_;
    header().owners[index].store(0, std::memory_order_release);
}

bool mailbox::arm()
{
    if (generation_ != base::process_generation()) {
        return true;
    }
    if (armed_) {
        wake();
    }
    /* Bytes that come from now on may be for the sleep to come. */
    char bytes[256];
    for (unsigned i = 0;
         (i < most_senders) && (recv(signal_.get(), bytes, sizeof(bytes),
                                     MSG_DONTWAIT) == sizeof(bytes));
         ++i) {}
    find_dead();

    ring_reader::message message;
    bool empty = true;
    for (slot *ring : polled_) {
        ring->reader.control()->state.store(ring_idle,
                                            std::memory_order_relaxed);
    }
    header().asleep.store(++sleeps_, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (slot *ring : polled_) {
        empty = empty && !ring->finishing &&
                (ring->reader.peek(message) == ring_reader::result::none);
    }
    empty = empty && (header().marked_words.load() == 0) &&
            (header().ring_wanted.load() == 0);

    if (!empty) {
        header().asleep.store(0, std::memory_order_relaxed);
        for (slot *ring : polled_) {
            ring->reader.control()->state.store(ring_polled,
                                                std::memory_order_relaxed);
        }
        if (header().ring_wanted.exchange(0) != 0) {
            adopt_all();
        }
        return false;
    }
    for (slot *ring : polled_) {
        ring->polled = false;
    }
    polled_.clear();
    next_  = 0;
    armed_ = true;
    return true;
}

} // namespace gaudi::ipc
