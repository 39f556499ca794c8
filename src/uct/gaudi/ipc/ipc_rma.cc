/* SPDX-License-Identifier: BSD-3-Clause */
/* Put and get, to and from what a remote key stands for. */
#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/ipc/ipc_iface.h"
#include "uct/gaudi/ipc/remote_key.h"
#include "util/process.h"

namespace gaudi::ipc {

namespace {

using base::memory_map;
using base::side;

const char *kind_name(bool device)
{
    return device ? "gaudi" : "host";
}

} // namespace

void transport::log_way(uct_ep_h ep, bool is_put, const side &local,
                        size_t length, const side &remote)
{
    if (remote.remote == nullptr) { /* memory of this process */
        return;
    }
    const bool here  = local.is_device;
    const bool there = !static_cast<remote_key *>(remote.remote)->is_host();
    const unsigned kind =
        1u << ((is_put ? 4u : 0u) + (here ? 2u : 0u) + (there ? 1u : 0u));
    endpoint &self = *to_ep(ep);
    if (ucs_likely((self.logged & kind) != 0)) {
        return;
    }
    self.logged |= kind;

    const interface &iface = *to_iface(ep->iface);
    base::card *mover      = (here || there) ? iface.home : nullptr;
    if (here) {
        const auto known =
            memory_map::instance().find_device(local.pointer(), length);
        mover = known.has_value() ? known->owner : mover;
    }
    ucs_info("gaudi_ipc: ep %p to process %u: %s to %s, %s by %s, first %zu "
             "bytes",
             ep, self.out->address().pid, kind_name(is_put ? here : there),
             kind_name(is_put ? there : here), is_put ? "push" : "pull",
             (mover != nullptr) ? mover->name().c_str() : "the CPU", length);
}

/* @param remote  With its address. */
static ucs_status_t find_side(uct_ep_h ep, uct_rkey_t rkey, side &remote)
{
    endpoint &self = *to_ep(ep);
    if (ucs_unlikely(self.out->is_closed())) {
        self.super.fail(UCS_ERR_ENDPOINT_TIMEOUT);
    }
    if (ucs_unlikely(self.super.status() != UCS_OK)) {
        return self.super.status();
    }
    remote_key *key               = to_remote_key(rkey);
    const interface_address &peer = self.out->address();
    const uint64_t process =
        (key == nullptr) ? util::process_identity() : key->process();
    if (ucs_unlikely(process != peer.process)) {
        ucs_error("gaudi_ipc: an endpoint to process %u was given %s", peer.pid,
                  (key == nullptr) ? "no remote key"
                                   : "a remote key of another process");
        return UCS_ERR_INVALID_PARAM;
    }
    if ((key == nullptr) || key->is_own()) {
        /* A short one would wait, perhaps for a peer that is stopped. */
        return !transfers_of(self).is_past_fence() ? UCS_ERR_NO_RESOURCE
               : (key == nullptr)                  ? UCS_OK
                                                   : key->state();
    }
    remote = side(*key, remote.address, self.out.get());
    return UCS_OK;
}

ucs_status_t transport::find_remote(uct_ep_h ep, uct_rkey_t rkey, side &remote,
                                    uct_completion_t *comp)
{
    const ucs_status_t status = find_side(ep, rkey, remote);
    if (ucs_likely(status == UCS_OK) || (comp == nullptr)) {
        return status;
    }
    return to_iface(ep->iface)->engine->result_of(to_ep(ep)->domain, status,
                                                  comp);
}

} // namespace gaudi::ipc
