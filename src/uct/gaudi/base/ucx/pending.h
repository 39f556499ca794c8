/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Requests that wait until an interface has room for them: those of an endpoint
 * in order, those of several in turns. A transport derives from
 * pending_functions, its interfaces and endpoints have one of these each,
 * `pending`, the interfaces an `engine` besides, and it says
 *
 *   static bool has_resources(const endpoint &);   for every kind of operation
 *   static ucs_status_t try_request(endpoint &, uct_pending_req_t *);
 *                          what the request returns; UCS_ERR_NO_RESOURCE
 *                          where there is no use in calling it
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

extern "C" {
#include <ucs/datastruct/arbiter.h>
}

namespace gaudi::base {

/** Of an interface. */
struct pending_requests : ucs_arbiter_t {
    pending_requests() { ucs_arbiter_init(this); }
    ~pending_requests() { ucs_arbiter_cleanup(this); }
    [[nodiscard]] bool empty() const { return waiting == 0; }

    /** Those of endpoints that are being tried, too: the arbiter's own list
     *  lacks them. */
    unsigned waiting = 0;
};

/** Of an endpoint; purged before it goes. */
struct pending_group : ucs_arbiter_group_t {
    pending_group() { ucs_arbiter_group_init(this); }
    ~pending_group() { ucs_arbiter_group_cleanup(this); }
    [[nodiscard]] bool empty() { return ucs_arbiter_group_is_empty(this); }

    /** Whether an operation that may not pass requests that wait has to wait,
     *  too. */
    [[nodiscard]] bool is_in_the_way() { return !has_turn && !empty(); }

    /** A request is being tried, and has not started anything yet. */
    bool has_turn = false;
};

template <typename Transport>
struct pending_functions {
    static ucs_status_t ep_pending_add(uct_ep_h ep, uct_pending_req_t *req,
                                       unsigned) noexcept
    {
        /* None may pass those that wait. */
        if (group_of(ep).empty() &&
            Transport::has_resources(
                *reinterpret_cast<typename Transport::endpoint *>(ep))) {
            return UCS_ERR_BUSY;
        }
        UCS_STATIC_ASSERT(sizeof(uct_pending_req_priv_arb_t) <=
                          UCT_PENDING_REQ_PRIV_LEN);
        uct_pending_req_arb_group_push(&group_of(ep), req);
        ucs_arbiter_group_schedule(&requests_of(ep), &group_of(ep));
        ++requests_of(ep).waiting;
        return UCS_OK;
    }

    static void ep_pending_purge(uct_ep_h ep, uct_pending_purge_callback_t cb,
                                 void *arg) noexcept
    {
        struct {
            uct_pending_purge_callback_t callback;
            void *argument;
        } taker{cb, arg};
        const auto give = [](ucs_arbiter_t *all, ucs_arbiter_group_t *,
                             ucs_arbiter_elem_t *elem, void *to) {
            --static_cast<pending_requests *>(all)->waiting;
            const auto &known = *static_cast<decltype(taker) *>(to);
            if (known.callback != nullptr) {
                known.callback(ucs_container_of(elem, uct_pending_req_t, priv),
                               known.argument);
            }
            return UCS_ARBITER_CB_RESULT_REMOVE_ELEM;
        };
        ucs_arbiter_group_purge(&requests_of(ep), &group_of(ep), give, &taker);
    }

    /** Behind what waits, too. */
    static ucs_status_t iface_flush(uct_iface_h iface, unsigned,
                                    uct_completion_t *comp) noexcept
    {
        auto &self = *reinterpret_cast<typename Transport::interface *>(iface);
        if (!self.pending.empty()) {
            /* UCP takes the second for a failure, and asks without a
             * completion. */
            return (comp == nullptr) ? UCS_INPROGRESS : UCS_ERR_NO_RESOURCE;
        }
        return self.engine->flush(nullptr, comp);
    }

    /** Try them while there is room. @return How many went through. */
    static unsigned dispatch(pending_requests &all)
    {
        unsigned count = 0;
        ucs_arbiter_dispatch(&all, 1, try_one, &count);
        return count;
    }

private:
    static pending_requests &requests_of(uct_ep_h ep)
    {
        return reinterpret_cast<typename Transport::interface *>(ep->iface)
            ->pending;
    }

    static pending_group &group_of(uct_ep_h ep)
    {
        return reinterpret_cast<typename Transport::endpoint *>(ep)->pending;
    }

    static ucs_arbiter_cb_result_t try_one(ucs_arbiter_t *all,
                                           ucs_arbiter_group_t *group,
                                           ucs_arbiter_elem_t *elem,
                                           void *count) noexcept
    {
        using endpoint = typename Transport::endpoint;
        auto *ep       = ucs_container_of(static_cast<pending_group *>(group),
                                          endpoint, pending);
        ep->pending.has_turn      = true;
        const ucs_status_t status = Transport::try_request(
            *ep, ucs_container_of(elem, uct_pending_req_t, priv));
        ep->pending.has_turn = false;
        if ((status != UCS_OK) && (status != UCS_INPROGRESS)) {
            return UCS_ARBITER_CB_RESULT_RESCHED_GROUP;
        }
        ++*static_cast<unsigned *>(count);
        if (status == UCS_INPROGRESS) {
            return UCS_ARBITER_CB_RESULT_NEXT_GROUP;
        }
        --static_cast<pending_requests *>(all)->waiting;
        return UCS_ARBITER_CB_RESULT_REMOVE_ELEM;
    }
};

} // namespace gaudi::base
