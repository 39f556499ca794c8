/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What this project does when the process forks. All of it goes through here:
 * nothing else calls pthread_atfork, and that only for the child.
 *
 * Before a fork, handlers run of whoever registered any, and among them UCX's.
 * It takes the locks of its caches, which threads hold while they call us, and
 * empties caches, which calls us on the thread that forks. So
 *   - nothing of ours happens before a fork: no handler takes a lock, waits, or
 *     marks the thread. A fork never waits for us, nor we for a fork;
 *   - so any of our locks may be held by a thread that the child does not have,
 *     and what it protects may be half changed. A child uses neither: objects
 *     that are there once per process are made anew (util/process.h), and
 *     locks of what cannot be are @ref child_mutex;
 *   - what guards the initialisation of a static inside a function is a lock,
 *     too, and a child that finds it taken waits for ever. No such initialiser
 *     takes long, or calls what does: a driver, the loader, UCX;
 *   - memory is not copied at one point in time either. What a handler reads in
 *     the child is atomic, or is checked before it is believed;
 *   - handlers in the child store, and close descriptors. They take no lock but
 *     their own library's, which are new by then, and allocate nothing. They
 *     run in the order in which they were registered: those of a library that
 *     has opened something before those that close it.
 *
 * Knows nothing of what registers here. The emulator has a copy of its own. A
 * child that was made without handlers (vfork, _Fork, clone) may do nothing but
 * exec or exit.
 */
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

namespace gaudi::util {

/** Have a function called in every child that is forked from now on. Each call
 *  adds one. @return false without memory for it. */
[[nodiscard]] bool run_in_children(void (*handler)());

/** The same, but for what is there already. Without a lock: pthread_atfork
 * waits for forks, and the child would find that taken. So it may be called
 * twice, by who was forked, or came, at the same time. */
template <void (*handler)()>
[[nodiscard]] bool run_in_children_once()
{
    static constinit std::atomic<bool> added{false};
    if (!added.load()) {
        added.store(run_in_children(handler));
    }
    return added.load();
}

/**
 * A descriptor that children close as soon as they are forked, as long as this
 * object lives. It is to end before the descriptor is closed.
 *
 * Numbers above 65535 stay open in children.
 */
class closed_in_children {
public:
    closed_in_children() = default;

    /** @param close  What closes it; nullptr: close(2). */
    explicit closed_in_children(int fd, int (*close)(int) = nullptr);
    ~closed_in_children() { forget(); }
    closed_in_children(closed_in_children &&other) noexcept { swap(other); }
    closed_in_children &operator=(closed_in_children &&other) noexcept
    {
        closed_in_children(std::move(other)).swap(*this);
        return *this;
    }

    void swap(closed_in_children &other) noexcept
    {
        std::swap(fd_, other.fd_);
        std::swap(number_, other.number_);
    }

private:
    void forget();

    int fd_          = -1;
    uint64_t number_ = 0; /* of its entry: not that of a later descriptor */
};

/**
 * A mutex that is free in a child, whoever had it when it was forked. Only for
 * objects that live as long as the process. Of use before static objects are
 * initialised: nothing happens in its constructor.
 */
class child_mutex {
public:
    constexpr child_mutex()                     = default;
    child_mutex(const child_mutex &)            = delete;
    child_mutex &operator=(const child_mutex &) = delete;

    void lock()
    {
        if (!listed_.load(std::memory_order_acquire)) {
            enlist();
        }
        mutex_.lock();
        held_.store(true);
    }

    void unlock()
    {
        held_.store(false);
        mutex_.unlock();
    }

    /** Whether a thread had it when this process, or one before it, was forked:
     *  what it protects may be half changed. Under the lock. */
    [[nodiscard]] bool was_abandoned() const { return abandoned_; }

private:
    void enlist();
    static void renew_all();

    std::mutex mutex_;
    std::atomic<bool> listed_{false};
    std::atomic<bool> held_{false};
    bool abandoned_ = false;
};

} // namespace gaudi::util
