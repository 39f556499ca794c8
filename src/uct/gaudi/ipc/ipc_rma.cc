/* Put and get, to and from what a remote key stands for. */
#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/ipc/ipc_iface.h"
#include "uct/gaudi/ipc/sharing/remote_key.h"

namespace gaudi::ipc {

namespace {

using base::memory_map;
using base::side;

base::transfer_engine &engine_of(uct_ep_h ep)
{
    return *to_iface(ep->iface)->engine;
}

enum class way { put, get };

const char *kind_name(bool device)
{
    return device ? "gaudi" : "host";
}

/* Log what moves how, once for every kind of transfer of an endpoint. */
void log_way(uct_ep_h ep, way which, const side &local, size_t length,
             const side &remote)
{
    if (remote.remote == nullptr) { /* memory of this process */
        return;
    }
    const bool here  = local.is_device;
    const bool there = remote.is_device;
    const bool put   = (which == way::put);
    const unsigned kind =
        1u << ((put ? 4u : 0u) + (here ? 2u : 0u) + (there ? 1u : 0u));
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
             ep, self.peer->id().pid, kind_name(put ? here : there),
             kind_name(put ? there : here), put ? "push" : "pull",
             (mover != nullptr) ? mover->name().c_str() : "the CPU", length);
}

/* Find out what the other side is. @param remote  With its address. */
ucs_status_t find_remote(uct_ep_h ep, uct_rkey_t rkey, side &remote)
{
    endpoint &self = *to_ep(ep);
    self.has_turn  = false;
    if (ucs_unlikely((self.status == UCS_OK) && self.out->is_closed())) {
        fail(ep, UCS_ERR_ENDPOINT_TIMEOUT);
    }
    if (ucs_unlikely(self.status != UCS_OK)) {
        return self.status;
    }
    remote_key *key = to_remote_key(rkey);
    if ((key == nullptr) || key->is_own()) {
        if (ucs_likely(self.peer->is_self())) {
            return (key == nullptr) ? UCS_OK : key->state();
        }
        ucs_error("gaudi_ipc: an endpoint to process %u was given %s",
                  self.peer->id().pid,
                  (key == nullptr) ? "no remote key"
                                   : "a remote key of this process");
        return UCS_ERR_INVALID_PARAM;
    }
    if (ucs_unlikely(!(key->process() == self.peer->id()))) {
        ucs_error("gaudi_ipc: an endpoint to process %u was given a remote key "
                  "of process %u",
                  self.peer->id().pid, key->process().pid);
        return UCS_ERR_INVALID_PARAM;
    }
    const ucs_status_t failure = key->failure();
    if (ucs_unlikely(failure != UCS_OK)) {
        if (failure == UCS_ERR_ENDPOINT_TIMEOUT) {
            fail(ep, failure);
        }
        return failure;
    }
    remote = side(*key, remote.address);
    return UCS_OK;
}

/* The same, and log what is going to be done. */
ucs_status_t find_remote(uct_ep_h ep, way which, const side &local,
                         size_t length, uct_rkey_t rkey, side &remote)
{
    const ucs_status_t status = find_remote(ep, rkey, remote);
    if (ucs_likely(status == UCS_OK)) {
        log_way(ep, which, local, length, remote);
    }
    return status;
}

ucs_status_t do_short(uct_ep_h ep, way which, const side &local, size_t length,
                      uint64_t remote_addr, uct_rkey_t rkey)
{
    side remote(remote_addr);
    const ucs_status_t status =
        find_remote(ep, which, local, length, rkey, remote);
    if (status != UCS_OK) {
        return status;
    }
    return (which == way::put) ? engine_of(ep).copy(remote, local, length)
                               : engine_of(ep).copy(local, remote, length);
}

ucs_status_t do_zcopy(uct_ep_h ep, way which, const uct_iov_t *iov,
                      size_t iovcnt, uint64_t remote_addr, uct_rkey_t rkey,
                      uct_completion_t *comp)
{
    UCT_CHECK_IOV_SIZE(iovcnt, 1ul, "gaudi_ipc zcopy");
    const side local((iovcnt > 0) ? iov->buffer : nullptr);
    const size_t length = (iovcnt > 0) ? uct_iov_get_length(iov) : 0;
    side remote(remote_addr);
    ucs_status_t status = find_remote(ep, which, local, length, rkey, remote);
    const bool is_put   = (which == way::put);
    if (status == UCS_OK) {
        status = engine_of(ep).start(to_ep(ep)->domain, is_put ? remote : local,
                                     is_put ? local : remote, length, comp);
    }
    return engine_of(ep).result_of(to_ep(ep)->domain, status, comp);
}

} // namespace

ucs_status_t transport::ep_put_short(uct_ep_h ep, const void *buffer,
                                     unsigned length, uint64_t remote_addr,
                                     uct_rkey_t rkey) noexcept
{
    return do_short(ep, way::put, buffer, length, remote_addr, rkey);
}

ucs_status_t transport::ep_get_short(uct_ep_h ep, void *buffer, unsigned length,
                                     uint64_t remote_addr,
                                     uct_rkey_t rkey) noexcept
{
    return do_short(ep, way::get, buffer, length, remote_addr, rkey);
}

ssize_t transport::ep_put_bcopy(uct_ep_h ep, uct_pack_callback_t pack_cb,
                                void *arg, uint64_t remote_addr,
                                uct_rkey_t rkey) noexcept
{
    side remote(remote_addr);
    const ucs_status_t status = find_remote(ep, rkey, remote);
    if (status != UCS_OK) {
        return status;
    }
    const ssize_t result =
        engine_of(ep).start_packed(to_ep(ep)->domain, remote, pack_cb, arg);
    if (ucs_likely(result >= 0)) {
        log_way(ep, way::put, nullptr, static_cast<size_t>(result), remote);
    }
    return result;
}

ucs_status_t transport::ep_get_bcopy(uct_ep_h ep,
                                     uct_unpack_callback_t unpack_cb, void *arg,
                                     size_t length, uint64_t remote_addr,
                                     uct_rkey_t rkey,
                                     uct_completion_t *comp) noexcept
{
    side remote(remote_addr);
    ucs_status_t status =
        find_remote(ep, way::get, nullptr, length, rkey, remote);
    if (status == UCS_OK) {
        status = engine_of(ep).start_unpacked(to_ep(ep)->domain, remote, length,
                                              unpack_cb, arg, comp);
    }
    return engine_of(ep).result_of(to_ep(ep)->domain, status, comp);
}

ucs_status_t transport::ep_put_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                     size_t iovcnt, uint64_t remote_addr,
                                     uct_rkey_t rkey,
                                     uct_completion_t *comp) noexcept
{
    return do_zcopy(ep, way::put, iov, iovcnt, remote_addr, rkey, comp);
}

ucs_status_t transport::ep_get_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                     size_t iovcnt, uint64_t remote_addr,
                                     uct_rkey_t rkey,
                                     uct_completion_t *comp) noexcept
{
    return do_zcopy(ep, way::get, iov, iovcnt, remote_addr, rkey, comp);
}

} // namespace gaudi::ipc
