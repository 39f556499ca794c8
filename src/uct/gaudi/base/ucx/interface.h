/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What UCX has of an interface and of an endpoint: the first member of ours,
 * which are of standard layout.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

extern "C" {
#include <ucs/async/async.h>
}

#include <type_traits>

namespace gaudi::base {

class ucx_endpoint;

/** Of an interface. One thread at a time (UCT's rule), but for worker_block. */
class ucx_interface {
public:
    ucx_interface() { ucs_list_head_init(&failed_); }
    ~ucx_interface();
    ucx_interface(const ucx_interface &)            = delete;
    ucx_interface &operator=(const ucx_interface &) = delete;

    /** Called once, before anything else.
     *  @param name  Of the transport, in UCX's statistics. */
    [[nodiscard]] ucs_status_t
    init(uct_iface_ops_t &operations, uct_iface_internal_ops_t &internal,
         uct_md_h md, uct_worker_h worker, const uct_iface_params_t &params,
         const uct_iface_config_t &config, const char *name);

    [[nodiscard]] uct_iface_h handle() { return &super_.super; }
    [[nodiscard]] uct_md_h md() const { return super_.md; }

    [[nodiscard]] bool shares_worker(const ucx_interface &other) const
    {
        return super_.worker == other.super_.worker;
    }

    /** Whether its progress is part of the worker's. */
    [[nodiscard]] bool is_progressed() const
    {
        return super_.progress_flags != 0;
    }

    /** Call a function as the interface's progress. */
    template <typename Function>
    unsigned progress(Function &&function)
    {
        is_in_progress_      = true;
        const unsigned count = function();
        is_in_progress_      = false;
        return count;
    }

    /** Whether a callback of the program runs inside it. */
    [[nodiscard]] bool is_in_progress() const { return is_in_progress_; }

    /** Whether endpoints have failed that UCX was not told of. */
    [[nodiscard]] bool has_failures() { return !ucs_list_is_empty(&failed_); }

    /** Call UCX's handler for each of them: from progress. @return How many. */
    unsigned report_failures();

    /** Give an active message that has come to its handler. */
    void receive(uint8_t id, void *data, size_t length)
    {
        if (ucs_likely(id < UCT_AM_ID_MAX)) {
            uct_iface_trace_am(&super_, UCT_AM_TRACE_TYPE_RECV, id, data,
                               length, "RX: AM");
            (void)uct_iface_invoke_am(&super_, id, data,
                                      static_cast<unsigned>(length), 0);
        }
    }

private:
    friend class ucx_endpoint;
    friend class worker_block;

    uct_base_iface_t super_;
    ucs_list_link_t failed_; /* endpoints */
    bool has_super_      = false;
    bool is_in_progress_ = false;
};

/** Keeps other threads from the worker of an interface: UCP creates endpoints
 *  on one of its own. */
class worker_block {
public:
    explicit worker_block(const ucx_interface &of)
        : async_(of.super_.worker->async)
    {
        UCS_ASYNC_BLOCK(async_);
    }
    ~worker_block() { UCS_ASYNC_UNBLOCK(async_); }
    worker_block(const worker_block &)            = delete;
    worker_block &operator=(const worker_block &) = delete;

private:
    ucs_async_context_t *const async_;
};

/** Of an endpoint of a ucx_interface. */
class ucx_endpoint {
public:
    ucx_endpoint() { ucs_list_head_init(&in_failed_); }
    ~ucx_endpoint();
    ucx_endpoint(const ucx_endpoint &)            = delete;
    ucx_endpoint &operator=(const ucx_endpoint &) = delete;

    /** Called once, before anything else. */
    [[nodiscard]] ucs_status_t init(uct_iface_h iface);

    [[nodiscard]] uct_ep_h handle() { return &super_.super; }
    [[nodiscard]] uct_iface_h iface() const { return super_.super.iface; }

    /** UCS_OK, or how it has failed: what operations return from then on. */
    [[nodiscard]] ucs_status_t status() const { return status_; }

    /** Let it fail, once: ucx_interface::report_failures tells UCX. */
    void fail(ucs_status_t status);

    /** Whether it has failed and UCX was not told. */
    [[nodiscard]] bool is_failure_untold() const
    {
        return in_failed_.next != &in_failed_;
    }

    /** Have UCX's log and statistics show an active message that was sent.
     *  @param is_short  Else bcopy. */
    void note_sent([[maybe_unused]] bool is_short, uint8_t id, const void *data,
                   size_t length)
    {
        uct_iface_trace_am(ucs_derived_of(iface(), uct_base_iface_t),
                           UCT_AM_TRACE_TYPE_SEND, id, data, length, "TX: AM");
        UCS_STATS_UPDATE_COUNTER(super_.stats, UCT_EP_STAT_AM, 1);
        UCS_STATS_UPDATE_COUNTER(super_.stats,
                                 is_short ? UCT_EP_STAT_BYTES_SHORT
                                          : UCT_EP_STAT_BYTES_BCOPY,
                                 length);
    }

private:
    friend class ucx_interface;

    [[nodiscard]] ucx_interface &owner() const
    {
        return *reinterpret_cast<ucx_interface *>(iface());
    }

    uct_base_ep_t super_;
    ucs_list_link_t in_failed_; /* self-linked unless its failure is untold */
    ucs_status_t status_ = UCS_OK;
    bool has_super_      = false;
};

/** Whether a struct can stand for one of UCX's: by its first member. Its others
 *  may be smart pointers, which clang has no offsets beside. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
template <typename Own>
inline constexpr bool begins_as_in_ucx =
    std::is_standard_layout_v<decltype(Own::super)> &&
    !std::is_polymorphic_v<Own> && (offsetof(Own, super) == 0);
#pragma GCC diagnostic pop

} // namespace gaudi::base
