/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/copy/copy_iface.h"

#include "uct/gaudi/base/ucx/callers.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

namespace gaudi::copy {

namespace {

using base::side;

/* Whether a copy that failed may succeed the next time: a job was aborted, or
 * there was no room for it. */
bool may_pass(ucs_status_t status)
{
    return (status == UCS_ERR_IO_ERROR) || (status == UCS_ERR_NO_RESOURCE) ||
           (status == UCS_ERR_NO_MEMORY) || (status == UCS_ERR_BUSY) ||
           (status == UCS_ERR_TIMED_OUT);
}

} // namespace

/* A copy at once has failed. UCP cannot try again one that it packs or unpacks
 * a message by, and does not bear its failure; others get the error. */
ucs_status_t transport::bear_failure(uct_ep_h ep, const side &to,
                                     const side &from, size_t length,
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
        status = to_iface(ep->iface)->engine->copy(to, from, length);
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

ucs_status_t transport::ep_flush(uct_ep_h ep, unsigned,
                                 uct_completion_t *comp) noexcept
{
    endpoint &self = *to_ep(ep);
    if (self.pending.is_in_the_way()) {
        return UCS_ERR_NO_RESOURCE;
    }
    self.pending.has_turn = false;
    return to_iface(ep->iface)->engine->flush(&self.domain, comp);
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
