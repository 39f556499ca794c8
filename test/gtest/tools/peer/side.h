/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What one side of a transfer has of UCP: context, worker, endpoint. Public UCP
 * headers only.
 *
 * Threads: a worker may be shared by threads when it was opened so. A side
 * belongs to one thread, but its callbacks run in whichever thread makes the
 * worker progress.
 */
#pragma once

#include "gtest/tools/peer/channel.h"

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include <netinet/in.h>
#include <ucp/api/ucp.h>

namespace peer {

/** What a thread does when the worker has nothing to do. */
enum class waiting {
    poll,        /**< asks again */
    worker_wait, /**< ucp_worker_wait */
    event_fd,    /**< arms the worker, and polls its file descriptor */
};

struct context_options {
    bool shared = false; /**< several threads have workers of it */
    waiting how = waiting::poll;
    uint64_t features =
        UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_STREAM | UCP_FEATURE_RMA;
    std::function<void(ucp_config_t *config)> configure = [](ucp_config_t *) {};
    const char *prefix = nullptr; /**< of variables for this context alone */
};

class context {
public:
    explicit context(const context_options &options = {});
    ~context();
    context(const context &)            = delete;
    context &operator=(const context &) = delete;

    [[nodiscard]] ucp_context_h get() const { return handle_; }
    [[nodiscard]] waiting how() const { return how_; }

private:
    ucp_context_h handle_ = nullptr;
    waiting how_;
};

class worker {
public:
    worker(context &of, ucs_thread_mode_t threads);
    ~worker();
    worker(const worker &)            = delete;
    worker &operator=(const worker &) = delete;

    [[nodiscard]] ucp_worker_h get() const { return handle_; }
    [[nodiscard]] std::vector<char> address() const;

    /** To arm the worker and to wait for, with waiting::event_fd. */
    [[nodiscard]] int event_fd() const { return event_fd_; }

    /** @return Whether anything happened. */
    [[nodiscard]] bool progress() { return ucp_worker_progress(handle_) != 0; }

    /** The same; others may run where nothing happened. */
    void step();

    /** Until something may have happened on the worker, or @a fd has input. */
    void rest(int fd = -1);

private:
    ucp_worker_h handle_ = nullptr;
    waiting how_;
    int event_fd_ = -1;
};

/** Something that goes on. @a done is asked after each progress. */
class operation {
public:
    explicit operation(std::function<bool()> done) : done_(std::move(done)) {}

    /** Of what a UCP function returned. Dies when it failed.
     *  @param kept  What UCP reads or writes until it is done. */
    operation(ucs_status_ptr_t request, const char *what,
              std::shared_ptr<const void> kept = nullptr);

    [[nodiscard]] bool done() { return done_(); }

private:
    std::function<bool()> done_;
};

/** Until it is done; the first worker is the one to sleep on. */
void finish(operation what, const std::vector<worker *> &workers);

/** The same, of what a UCP function returned. Dies when it failed. */
void finish(ucs_status_ptr_t request, const char *what,
            const std::vector<worker *> &workers);

/** Until it has ended, however, or the time is over.
 *  @return UCS_INPROGRESS then: the request is not released. */
[[nodiscard]] ucs_status_t
end_of(ucs_status_ptr_t request, worker &of,
       std::chrono::milliseconds time = std::chrono::hours(1));

/** What the other side says; the worker makes progress meanwhile. */
char await_letter(worker &of, const channel &from);

/** An endpoint to another worker.
 *  @param errors   With peer error handling.
 *  @param handler  Who is told of errors, if anybody is. */
[[nodiscard]] ucs_status_t connect(const worker &of,
                                   const std::vector<char> &address,
                                   bool errors, ucp_err_handler_t handler,
                                   ucp_ep_h &ep_p);

/** Start to close an endpoint. @return Its request, or a status. */
[[nodiscard]] ucs_status_ptr_t disconnect(ucp_ep_h ep, bool force);

/** Accepts connections on a port of the loopback interface. */
class listener {
public:
    explicit listener(worker &of);
    ~listener();
    listener(const listener &)            = delete;
    listener &operator=(const listener &) = delete;

    [[nodiscard]] sockaddr_in address() const;

    /** The next request; waits for it. */
    [[nodiscard]] ucp_conn_request_h accept();

private:
    worker &of_;
    ucp_listener_h handle_      = nullptr;
    ucp_conn_request_h request_ = nullptr;
};

/** Where the next active message goes; see active_messages.cc. */
struct mailbox;

/** One end of a connection between two workers, maybe the same one. */
class side {
public:
    /**
     * @param number   Tells sides apart that share a worker.
     * @param address  Of the other end's worker.
     * @param errors   Endpoint with peer error handling.
     */
    side(worker &of, unsigned number, const std::vector<char> &address,
         bool errors = false);

    /** The same, to a @ref listener. */
    side(worker &of, unsigned number, const sockaddr_in &address, bool errors);

    /** The same, of a @ref listener. */
    side(worker &of, unsigned number, ucp_conn_request_h request, bool errors);
    ~side();
    side(const side &)            = delete;
    side &operator=(const side &) = delete;

    [[nodiscard]] ucp_ep_h ep() const { return ep_; }
    [[nodiscard]] worker &of() const { return of_; }
    [[nodiscard]] unsigned number() const { return number_; }
    [[nodiscard]] mailbox &mail() { return *mail_; }

    /** Start to close the endpoint; errors of the peer are no failure then. */
    [[nodiscard]] operation close();

private:
    void open(ucp_ep_params_t &params);
    static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status);

    worker &of_;
    unsigned number_;
    bool errors_;
    bool closing_ = false;
    ucp_ep_h ep_  = nullptr;
    std::shared_ptr<mailbox> mail_;
};

/** One of two processes that a test starts with a socket between them: what it
 *  has, connected to the other one. */
struct meeting {
    context common;
    worker mine{common, UCS_THREAD_MODE_SINGLE};
    channel socket{peer_fd};
    side end{mine, 0, socket.exchange(mine.address())};

    /** Close the connection. */
    void part() { finish(end.close(), {&mine}); }
};

} // namespace peer
