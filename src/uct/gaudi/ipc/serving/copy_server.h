/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Copies for other processes, between device memory of this one that they have
 * keys of and chunks of host memory that they have brought: see copy_ring.h.
 *
 * A thread of its own does it, which sleeps when there is nothing to do, so
 * that nobody hangs on the progress of this process. Interfaces that make
 * progress do it, too, without the way to that thread; then it looks now and
 * then whether they still do, and when a client rings that waits for long.
 *
 * One per process. One lock, held while copies are started and collected; what
 * ends a key waits for copies by it without that lock (own_page::begin_use).
 */
#pragma once

#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/ipc/process/file_service.h"
#include "uct/gaudi/ipc/process/shared_page.h"
#include "util/fork_handlers.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace gaudi::ipc {

class copy_server {
public:
    static copy_server &instance();

    copy_server();
    ~copy_server();

    /** A memory domain has opened, or closes: with the last one all copies end,
     *  and cards are let go. */
    void open();
    void close();

    /** Let others find it, from the first key on that needs it. Where it
     *  cannot be had, which is said as a diagnostic, nobody does. */
    void offer();

    /** Do what there is to do, unless another thread is at it. For interfaces
     *  that make progress; costs a load when nobody wants anything. @return
     *  How much was done. */
    static unsigned progress();

private:
    struct session;

    static ucs_status_t take(const process_id &sender, file_pair brought);
    ucs_status_t add(const process_id &sender, file_pair brought);
    void run();
    [[nodiscard]] bool is_rung(int timeout_ms);
    [[nodiscard]] bool may_sleep();
    void sleep();

    [[nodiscard]] bool has_work();

    /* Under the lock. */
    ucs_status_t start();
    unsigned serve();
    void forget_gone();
    void set_sleeping(bool sleeping);

    std::mutex lock_;
    /* Held, too, where the session and its clients change: interfaces look for
     * work under this one alone. One that loses its core does so mostly there,
     * and would keep the thread from serving. */
    std::mutex looking_;
    unsigned idle_looks_ = 0; /* since one that found something */
    unsigned users_      = 0;
    bool running_        = false;   /* the thread */
    std::atomic<bool> ends_{false}; /* what is let go of later has ended */
    std::atomic<bool> offered_{false};
    util::unique_fd bell_;
    /* epoll: the bell, the engine's event, ends of clients */
    util::unique_fd events_;
    util::closed_in_children not_in_children_;
    std::unique_ptr<session> session_; /* since somebody brought a ring */
    std::atomic<bool> any_clients_{false};
    std::atomic<unsigned> helped_{0}; /* times that interfaces served */
};

} // namespace gaudi::ipc
