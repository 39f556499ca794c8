#include "uct/gaudi/copy/copy_iface.h"

#include "uct/gaudi/base/ucx/callers.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

namespace gaudi::copy {

namespace {

using base::side;

/* What we keep in a pending request. */
struct pending_private {
    uct_pending_req_priv_queue_t super;
    uct_ep_h ep;
};
static_assert(sizeof(pending_private) <= UCT_PENDING_REQ_PRIV_LEN);

pending_private *private_of(uct_pending_req_t *req)
{
    return reinterpret_cast<pending_private *>(&req->priv);
}

uct_pending_req_t *request_of(ucs_queue_elem_t *elem)
{
    return ucs_container_of(elem, uct_pending_req_t, priv);
}

base::transfer_engine &engine_of(uct_ep_h ep)
{
    return *to_iface(ep->iface)->engine;
}

/* UCS_OK, or how an endpoint has failed: the interface that it goes to has
 * closed, for one. */
ucs_status_t status_of(uct_ep_h tl_ep)
{
    endpoint *ep = to_ep(tl_ep);
    if (ucs_unlikely(ep->peer->load(std::memory_order_relaxed))) {
        ep->super.fail(UCS_ERR_ENDPOINT_TIMEOUT);
    }
    return ep->super.status();
}

/* Whether a copy that failed may succeed the next time: a job was aborted, or
 * there was no room for it. */
bool may_pass(ucs_status_t status)
{
    return (status == UCS_ERR_IO_ERROR) || (status == UCS_ERR_NO_RESOURCE) ||
           (status == UCS_ERR_NO_MEMORY) || (status == UCS_ERR_BUSY) ||
           (status == UCS_ERR_TIMED_OUT);
}

/* A copy at once has failed. UCP cannot try again one that it packs or unpacks
 * a message by, and does not bear its failure; others get the error. */
[[gnu::noinline, gnu::cold]] ucs_status_t
bear_failure(uct_ep_h ep, const side &to, const side &from, size_t length,
             const void *caller, ucs_status_t status)
{
    constexpr std::chrono::milliseconds shortest{1};
    constexpr std::chrono::milliseconds longest{64};

    if (!base::is_packing(caller)) {
        return status;
    }
    for (auto nap = shortest; may_pass(status) && (nap <= longest); nap *= 2) {
        std::this_thread::sleep_for(nap);
        ucs_diag("gaudi_cpy: %zu bytes of a message are copied again", length);
        status = engine_of(ep).copy(to, from, length);
    }
    if (base::ignores_failed_packing && (status != UCS_OK) &&
        !to_iface(ep->iface)->bears_failed_pack) {
        ucs_fatal("gaudi_cpy: %zu bytes of a message cannot be copied to or "
                  "from device memory: %s; UCX would deliver others "
                  "(UCX_GAUDI_COPY_FAILED_PACK)",
                  length, ucs_status_string(status));
    }
    return status;
}

/* A copy that is over on return. */
inline ucs_status_t do_short(uct_ep_h ep, const side &to, const side &from,
                             size_t length, const void *caller)
{
    ucs_status_t status = status_of(ep);
    if (ucs_likely(status == UCS_OK)) {
        status = engine_of(ep).copy(to, from, length);
    }
    return ucs_likely(status == UCS_OK)
               ? UCS_OK
               : bear_failure(ep, to, from, length, caller, status);
}

} // namespace

ucs_status_t transport::ep_put_short(uct_ep_h ep, base::call_site caller,
                                     const void *buffer, unsigned length,
                                     uint64_t remote_addr, uct_rkey_t) noexcept
{
    ucs_status_t status =
        do_short(ep, side(remote_addr), buffer, length, caller.return_address);
    return status;
}

ucs_status_t transport::ep_get_short(uct_ep_h ep, base::call_site caller,
                                     void *buffer, unsigned length,
                                     uint64_t remote_addr, uct_rkey_t) noexcept
{
    ucs_status_t status =
        do_short(ep, buffer, side(remote_addr), length, caller.return_address);
    return status;
}

ssize_t transport::ep_put_bcopy(uct_ep_h ep, uct_pack_callback_t pack_cb,
                                void *arg, uint64_t remote_addr,
                                uct_rkey_t) noexcept
{
    if (ucs_unlikely(status_of(ep) != UCS_OK)) {
        return to_ep(ep)->super.status();
    }
    return engine_of(ep).start_packed(to_ep(ep)->domain, side(remote_addr),
                                      pack_cb, arg);
}

ucs_status_t transport::ep_get_bcopy(uct_ep_h ep,
                                     uct_unpack_callback_t unpack_cb, void *arg,
                                     size_t length, uint64_t remote_addr,
                                     uct_rkey_t,
                                     uct_completion_t *comp) noexcept
{
    if (ucs_unlikely(status_of(ep) != UCS_OK)) {
        return to_ep(ep)->super.status();
    }
    ucs_status_t status = engine_of(ep).start_unpacked(
        to_ep(ep)->domain, side(remote_addr), length, unpack_cb, arg, comp);
    return engine_of(ep).result_of(to_ep(ep)->domain, status, comp);
}

ucs_status_t transport::zcopy(uct_ep_h ep, bool is_put, void *buffer,
                              size_t length, uint64_t remote_addr, uct_rkey_t,
                              uct_completion_t *comp)
{
    if (ucs_unlikely(status_of(ep) != UCS_OK)) {
        return to_ep(ep)->super.status();
    }
    const side local(buffer);
    const side remote(remote_addr);
    base::flush_domain &domain = to_ep(ep)->domain;
    return engine_of(ep).result_of(
        domain,
        engine_of(ep).start(domain, is_put ? remote : local,
                            is_put ? local : remote, length, comp),
        comp);
}

ucs_status_t transport::ep_flush(uct_ep_h ep, unsigned,
                                 uct_completion_t *comp) noexcept
{
    return engine_of(ep).flush(&to_ep(ep)->domain, comp);
}

ucs_status_t transport::ep_pending_add(uct_ep_h ep, uct_pending_req_t *req,
                                       unsigned) noexcept
{
    interface *iface = to_iface(ep->iface);
    /* Requests keep their order: none may pass those that wait. */
    if (ucs_queue_is_empty(&iface->pending) && iface->engine->has_resources()) {
        return UCS_ERR_BUSY;
    }
    private_of(req)->ep = ep;
    ucs_queue_push(&iface->pending, uct_pending_req_priv_queue_elem(req));
    return UCS_OK;
}

void transport::ep_pending_purge(uct_ep_h ep, uct_pending_purge_callback_t cb,
                                 void *arg) noexcept
{
    const auto purge = [&](uct_pending_req_t *req, void *) {
        if (cb != nullptr) {
            cb(req, arg);
        }
    };
    pending_private *waiting;
    uct_pending_queue_purge(waiting, &to_iface(ep->iface)->pending,
                            waiting->ep == ep, purge, nullptr);
}

unsigned dispatch_pending(interface *iface)
{
    unsigned count = 0;
    while (!ucs_queue_is_empty(&iface->pending) &&
           iface->engine->has_resources()) {
        ucs_queue_elem_t *elem = ucs_queue_pull_non_empty(&iface->pending);
        uct_pending_req_t *req = request_of(elem);
        ucs_status_t status    = req->func(req);
        if (status != UCS_OK) {
            ucs_queue_push_head(&iface->pending, elem);
            if (UCS_STATUS_IS_ERR(status)) {
                break;
            }
        }
        ++count;
    }
    return count;
}

ucs_status_t endpoint::open(const uct_ep_params_t &params)
{
    base::transfer_engine::open(domain);
    interface_address to;
    memcpy(&to, params.iface_addr, sizeof(to));
    peer = find_interface(to);
    if (peer == nullptr) {
        ucs_debug("gaudi_cpy: there is no interface %lu in this process",
                  to.number);
        return UCS_ERR_UNREACHABLE;
    }
    return UCS_OK;
}

endpoint::~endpoint()
{
    if (peer != nullptr) {
        transport::ep_pending_purge(super.handle(), nullptr, nullptr);
        to_iface(super.iface())->engine->close(domain);
    }
}

} // namespace gaudi::copy
