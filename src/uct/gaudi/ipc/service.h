/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The thread of gaudi_ipc, `ucx-gaudi`: accepts links, reads their sockets,
 * and makes the copies that other processes ask for, with an engine of its own.
 * One per process. Interfaces that make progress serve requests, too.
 *
 * Two locks: the control lock for the lists of links and interfaces, and the
 * serve lock for requests and the engine, which is taken first. A slow call of
 * the driver for one client delays requests of others, and what the thread
 * reads from sockets: bells and new links, not messages to an interface that
 * polls.
 */
#pragma once

#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/ipc/inbound.h"
#include "uct/gaudi/ipc/link.h"
#include "uct/gaudi/ipc/service_calls.h"
#include "util/fork_handlers.h"
#include "util/unique_fd.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gaudi::ipc {

class service final : public service_calls {
public:
    static service &instance();

    service();
    ~service(); /* never called: see util/process.h */

    /** A memory domain has opened, or closes: with the last one copies for
     *  others end, and the engine releases the cards. */
    void open();
    void close();

    /* service_calls */
    [[nodiscard]] ucs_status_t start() override;
    [[nodiscard]] ucs_status_t
    follow(const std::shared_ptr<link> &which) override;
    void unfollow(const link &which) override;
    void revoke(const std::shared_ptr<link> &by, uint64_t word) override;
    [[nodiscard]] bool revoke_at_peers(uint64_t word, bool drain) override;

    /** Take messages for an interface. @return As @ref start. */
    [[nodiscard]] ucs_status_t add(const std::shared_ptr<receiver> &to);
    /** And close its links, for which it waits up to 0.1 s. */
    void remove(receiver &to);
    [[nodiscard]] bool has(uint32_t number);

    /** Serve requests unless another thread is at it. For interfaces; costs a
     *  load while nobody asks for anything. @return How much was done. */
    static unsigned progress();

    /** How many other processes' links there are. */
    [[nodiscard]] uint64_t count_links();

private:
    using clock = std::chrono::steady_clock;

    struct session;

    [[nodiscard]] bool may_have_links(const receiver &to);
    void run();
    bool handle_events(int timeout_ms);
    void accept_from(int listening);
    bool receive(const std::shared_ptr<inbound> &from);
    bool take(const std::shared_ptr<inbound> &from, const char *message,
              size_t length, util::unique_fd &fd);
    void greet(const std::shared_ptr<inbound> &from, const hello_message &hello,
               const util::unique_fd &file);
    void connect_ports(const std::shared_ptr<inbound> &from,
                       ports_message asked);
    void drop(const std::shared_ptr<inbound> &ended);
    void answer_revocations();

    [[nodiscard]] ucs_status_t start_session();
    unsigned serve();
    [[nodiscard]] bool may_sleep();
    void stay_awake();
    [[nodiscard]] ucs_status_t
    add_client(const std::shared_ptr<inbound> &client);

    /* --- under the control lock --- */
    std::mutex control_lock_;
    bool started_ = false;
    util::unique_fd listening_;
    util::unique_fd events_; /* epoll: all sockets, the engine's event */
    util::closed_in_children not_in_children_[2];
    uint64_t last_id_     = 0; /* of a socket in events_ */
    uint32_t last_number_ = 0; /* of an interface */
    std::unordered_map<uint32_t, std::shared_ptr<receiver>> receivers_;
    std::unordered_map<uint64_t, std::shared_ptr<inbound>> inbounds_;
    std::unordered_map<uint64_t, std::weak_ptr<link>> links_;
    std::condition_variable revoked_; /* a peer has answered, or ended */
    clock::time_point quiet_at_{};    /* of ports of peers that ended */

    std::mutex revoking_; /* one revocation at a time; before control_lock_ */

    /* --- under the serve lock --- */
    std::mutex serve_lock_;
    unsigned users_ = 0;
    std::unique_ptr<session> session_; /* since a request or ports */

    std::atomic<bool> any_clients_{false};
    std::atomic<unsigned> helped_{0}; /* times that interfaces served */

    /* --- the thread's --- */
    bool request_bell_ = false;
    std::vector<std::pair<std::weak_ptr<link>, uint64_t>> to_answer_;
};

} // namespace gaudi::ipc
