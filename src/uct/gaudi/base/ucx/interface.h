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

/** Of an interface. One thread at a time (UCT's rule), but for worker_block. */
class ucx_interface {
public:
    ucx_interface() = default;
    ~ucx_interface()
    {
        if (has_super_) {
            UCS_CLASS_CLEANUP(uct_base_iface_t, &super_);
        }
    }
    ucx_interface(const ucx_interface &)            = delete;
    ucx_interface &operator=(const ucx_interface &) = delete;

    /** Called once, before anything else.
     *  @param name  Of the transport, in UCX's statistics. */
    [[nodiscard]] ucs_status_t
    init(uct_iface_ops_t &operations, uct_iface_internal_ops_t &internal,
         uct_md_h md, uct_worker_h worker, const uct_iface_params_t &params,
         const uct_iface_config_t &config, [[maybe_unused]] const char *name)
    {
        const ucs_status_t status = UCS_CLASS_INIT(
            uct_base_iface_t, &super_, &operations, &internal, md, worker,
            &params,
            &config UCS_STATS_ARG(params.stats_root) UCS_STATS_ARG(name));
        has_super_ = (status == UCS_OK);
        return status;
    }

    [[nodiscard]] uct_iface_h handle() { return &super_.super; }
    [[nodiscard]] uct_md_h md() const { return super_.md; }

    [[nodiscard]] bool shares_worker(const ucx_interface &other) const
    {
        return super_.worker == other.super_.worker;
    }

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
    bool has_super_ = false;
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

/** Of an endpoint. */
class ucx_endpoint {
public:
    ucx_endpoint() = default;
    ~ucx_endpoint()
    {
        if (has_super_) {
            UCS_CLASS_CLEANUP(uct_base_ep_t, &super_);
        }
    }
    ucx_endpoint(const ucx_endpoint &)            = delete;
    ucx_endpoint &operator=(const ucx_endpoint &) = delete;

    /** Called once, before anything else. */
    [[nodiscard]] ucs_status_t init(uct_iface_h iface)
    {
        const ucs_status_t status = UCS_CLASS_INIT(
            uct_base_ep_t, &super_, ucs_derived_of(iface, uct_base_iface_t));
        has_super_ = (status == UCS_OK);
        return status;
    }

    [[nodiscard]] uct_ep_h handle() { return &super_.super; }
    [[nodiscard]] uct_iface_h iface() const { return super_.super.iface; }

    /** Call UCX's handler of failures: from progress. */
    void report_failure(ucs_status_t status)
    {
        (void)uct_iface_handle_ep_err(iface(), handle(), status);
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
    uct_base_ep_t super_;
    bool has_super_ = false;
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
