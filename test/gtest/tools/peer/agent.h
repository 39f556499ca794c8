/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * An agent of a serving system: it tells UCP of memory that others allocated,
 * and moves lists of blocks between it and memory of other agents.
 *
 * Its calls of UCP, their order and their parameters are those of NIXL's UCX
 * backend (ai-dynamo/nixl v1.4.0, src/plugins/ucx: ucx_utils.cpp and
 * ucx_backend.cpp), so that what breaks there breaks here. Public UCP headers
 * only.
 *
 * Threads: with a progress thread any number of threads may use an agent, each
 * its own transfers; without, one. Connections, segments and remote segments
 * are made and dropped by one thread at a time.
 */
#pragma once

#include "gtest/tools/peer/kinds.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace peer {

struct agent_options {
    bool progress_thread = false; /**< one that sleeps until something happens*/
    unsigned workers     = 1;
    bool peer_errors     = true; /**< endpoints notice dead peers */
    bool lists = false; /**< one call for a list, where UCP has that: see
                             starts_lists() */
};

class agent {
public:
    explicit agent(const agent_options &options);
    ~agent();
    agent(const agent &)            = delete;
    agent &operator=(const agent &) = delete;

    [[nodiscard]] const agent_options &options() const { return options_; }
    [[nodiscard]] ucp_context_h context() const { return context_.get(); }
    [[nodiscard]] size_t workers() const { return workers_.size(); }
    [[nodiscard]] ucp_worker_h worker(size_t number) const
    {
        return workers_[number]->get();
    }

    /** Of its first worker, which is the one that others connect to. */
    [[nodiscard]] std::vector<char> address() const
    {
        return workers_.front()->address();
    }

    /** Progress of all workers, until nothing happens. */
    void progress();

    /** The oldest notification that has come; waits for one. */
    std::string await_notification();

private:
    friend class connection;
    static ucs_status_t on_notification(void *arg, const void *header,
                                        size_t header_length, void *data,
                                        size_t length,
                                        const ucp_am_recv_param_t *param);
    void start_thread();
    void run();

    agent_options options_;
    peer::context context_;
    std::vector<std::unique_ptr<peer::worker>> workers_;

    std::mutex mutex_; /* of the notifications */
    std::condition_variable came_;
    std::deque<std::string> notifications_;

    int stop_fd_ = -1; /* readable: the thread has to end */
    std::thread thread_;
};

/** Endpoints to another agent, or to itself: one of each worker, all of them
 *  to the other's first. Dies when the other cannot be reached. */
class connection {
public:
    connection(agent &of, const std::vector<char> &address);
    ~connection();
    connection(const connection &)            = delete;
    connection &operator=(const connection &) = delete;

    [[nodiscard]] agent &of() const { return of_; }

    /** Dies when the endpoint has failed. */
    [[nodiscard]] ucp_ep_h ep(size_t worker) const;

    /** The error that was reported for the endpoint, which is closed then. */
    [[nodiscard]] ucs_status_t error(size_t worker) const
    {
        return ends_[worker]->error;
    }

    /** Send a notification and do not wait for it. */
    void notify(const std::string &text, size_t worker = 0);

    /** What UCP expects one put of so many bytes to take. */
    [[nodiscard]] double estimate(size_t size) const;

private:
    struct end {
        ucp_ep_h ep = nullptr;
        std::atomic<ucs_status_t> error{UCS_OK};
        std::atomic<bool> closed{false}; /* whoever comes first */
    };
    static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status);

    agent &of_;
    std::vector<std::unique_ptr<end>> ends_;
};

/** Memory that an agent was told of. The memory is somebody else's. */
class segment {
public:
    /** UCP is not told of what type the memory is. Dies when it takes device
     *  memory for host memory.
     *  @param is_device  What it is in truth. */
    segment(const agent &of, void *data, size_t size, bool is_device);
    ~segment();
    segment(const segment &)            = delete;
    segment &operator=(const segment &) = delete;

    [[nodiscard]] ucp_mem_h handle() const { return handle_; }
    [[nodiscard]] const std::vector<char> &key() const { return key_; }

private:
    const agent &of_;
    ucp_mem_h handle_ = nullptr;
    std::vector<char> key_;
};

/** Another agent's segment, by each worker of an agent. */
using remote_segment = std::vector<std::unique_ptr<remote_memory>>;

/** One entry of a list: bytes here and there. */
struct block {
    char *local;
    const segment *local_segment;
    uint64_t remote;
    const remote_segment *of_remote;
    size_t size;
};

enum class direction { put, get };

/** Whether a list can be started by one call of UCP where it has such: none of
 *  gets can, up to 1.23. */
constexpr bool starts_lists(direction what)
{
    return what == direction::put;
}

/** A list on its way. Dropping it while it is cancels what it can. */
class transfer {
public:
    transfer(connection &by, size_t worker) : by_(by), worker_(worker) {}
    ~transfer() { release(); }
    transfer(const transfer &)            = delete;
    transfer &operator=(const transfer &) = delete;

    /** Start all of a list. The bytes are where they belong once @ref check
     *  says UCS_OK.
     *  @return That of @ref check, or why an entry was refused: nothing is on
     *      its way then that has to be waited for. */
    ucs_status_t post(direction what, std::span<const block> list);

    /** Progress, and UCS_INPROGRESS until all has ended. */
    ucs_status_t check();

    /** Until all has ended. */
    ucs_status_t wait();

    /** Both. */
    ucs_status_t run(direction what, std::span<const block> list);

    /** Forget what is still on its way. */
    void release();

private:
#ifdef ucp_dt_make_sgl
    ucs_status_ptr_t start_all(direction what, std::span<const block> list);
#endif
    ucs_status_t keep(ucs_status_ptr_t request);

    connection &by_;
    size_t worker_;
    std::vector<ucs_status_ptr_t> requests_; /* the last data one, the flush */
    struct {
        std::vector<void *> buffers;
        std::vector<size_t> lengths;
        std::vector<ucp_mem_h> handles;
        std::vector<uint64_t> addresses;
        std::vector<ucp_rkey_h> keys;
    } arrays_; /* of a list that one call has started, until it ends */
};

} // namespace peer
