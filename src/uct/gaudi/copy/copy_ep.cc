/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/copy/copy_iface.h"

#include <cstring>
#include <memory>

namespace gaudi::copy {

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
