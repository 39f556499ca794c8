/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Put and get of a transport, by the engine of its interfaces. The transport
 * derives from this, and says what the other side is:
 *
 *   static ucs_status_t find_remote(uct_ep_h, uct_rkey_t, side &remote,
 *                                   uct_completion_t *);
 *
 * `remote` has the address; what it returns beside UCS_OK is the operation's
 * result. Short ones are done when they return, whatever the length, unless
 * another process takes long; the others are completed from progress: UCP does
 * not expect UCS_OK.
 */
#pragma once

#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/base/ucx/packing.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/base/ucx/trace.h"

namespace gaudi::base {

template <typename Transport>
struct rma {
    /** An operation is going to be started, or a put has been packed. */
    static void log_way(uct_ep_h, bool /* is_put */, const side & /* local */,
                        size_t, const side & /* remote */)
    {}

    /** The registration of host memory behind a handle of the transport's
     *  memory domain; nullptr: it is none. */
    static host_region *registration_of(uct_mem_h) { return nullptr; }

    static ucs_status_t ep_put_short(uct_ep_h ep, const void *buffer,
                                     unsigned length, uint64_t remote_addr,
                                     uct_rkey_t rkey) noexcept
    {
        return do_short(ep, true, buffer, length, remote_addr, rkey);
    }

    static ucs_status_t ep_get_short(uct_ep_h ep, void *buffer, unsigned length,
                                     uint64_t remote_addr,
                                     uct_rkey_t rkey) noexcept
    {
        const ucs_status_t status =
            do_short(ep, false, buffer, length, remote_addr, rkey);
        if (ucs_unlikely(status != UCS_OK)) {
            fetch_failure = status;
        }
        return status;
    }

    static ssize_t ep_put_bcopy(uct_ep_h ep, uct_pack_callback_t pack,
                                void *arg, uint64_t remote_addr,
                                uct_rkey_t rkey) noexcept
    {
        side remote(remote_addr);
        const ucs_status_t status = begin(ep, rkey, remote, nullptr);
        if (ucs_unlikely(status != UCS_OK)) {
            return status;
        }
        fetch_failure = UCS_OK; /* perhaps nothing gets packed */
        const ssize_t result =
            engine_of(ep).start_packed(domain_of(ep), remote, pack, arg);
        if (ucs_likely(result >= 0)) {
            Transport::log_way(ep, true, nullptr, static_cast<size_t>(result),
                               remote);
        } else if (fetch_failure != UCS_OK) {
            to_endpoint(ep).super.fail(fetch_failure);
        }
        return result;
    }

    static ucs_status_t ep_get_bcopy(uct_ep_h ep, uct_unpack_callback_t unpack,
                                     void *arg, size_t length,
                                     uint64_t remote_addr, uct_rkey_t rkey,
                                     uct_completion_t *comp) noexcept
    {
        side remote(remote_addr);
        const ucs_status_t status =
            find(ep, false, nullptr, length, rkey, remote, comp);
        if (ucs_unlikely(status != UCS_OK)) {
            return status;
        }
        return engine_of(ep).result_of(
            domain_of(ep),
            engine_of(ep).start_unpacked(domain_of(ep), remote, length, unpack,
                                         arg, comp),
            comp);
    }

    static ucs_status_t zcopy(uct_ep_h ep, bool is_put, void *buffer,
                              size_t length, uct_mem_h memh,
                              uint64_t remote_addr, uct_rkey_t rkey,
                              uct_completion_t *comp)
    {
        side local(buffer);
        local.registration = Transport::registration_of(memh);
        side remote(remote_addr);
        const ucs_status_t status =
            find(ep, is_put, local, length, rkey, remote, comp);
        if (ucs_unlikely(status != UCS_OK)) {
            return status;
        }
        return engine_of(ep).result_of(
            domain_of(ep),
            engine_of(ep).start(domain_of(ep), is_put ? remote : local,
                                is_put ? local : remote, length, comp),
            comp);
    }

private:
    static transfer_engine &engine_of(uct_ep_h ep)
    {
        return *reinterpret_cast<typename Transport::interface *>(ep->iface)
                    ->engine;
    }

    static auto &to_endpoint(uct_ep_h ep)
    {
        return *reinterpret_cast<typename Transport::endpoint *>(ep);
    }

    static flush_domain &domain_of(uct_ep_h ep)
    {
        return to_endpoint(ep).domain;
    }

    /* Whatever comes of it, a request that waited has had its turn. */
    static ucs_status_t begin(uct_ep_h ep, uct_rkey_t rkey, side &remote,
                              uct_completion_t *comp)
    {
        to_endpoint(ep).pending.has_turn = false;
        const ucs_status_t status        = check_process();
        return ucs_likely(status == UCS_OK)
                   ? Transport::find_remote(ep, rkey, remote, comp)
                   : status;
    }

    static ucs_status_t find(uct_ep_h ep, bool is_put, const side &local,
                             size_t length, uct_rkey_t rkey, side &remote,
                             uct_completion_t *comp)
    {
        const ucs_status_t status = begin(ep, rkey, remote, comp);
        if (ucs_likely(status == UCS_OK)) {
            Transport::log_way(ep, is_put, local, length, remote);
        }
        return status;
    }

    static ucs_status_t do_short(uct_ep_h ep, bool is_put, const side &local,
                                 size_t length, uint64_t remote_addr,
                                 uct_rkey_t rkey)
    {
        side remote(remote_addr);
        const ucs_status_t status =
            find(ep, is_put, local, length, rkey, remote, nullptr);
        if (ucs_likely(status == UCS_OK)) {
            return engine_of(ep).copy_short(domain_of(ep),
                                            is_put ? remote : local,
                                            is_put ? local : remote, length);
        }
        /* A put to a peer that has gone counts as posted: UCX's error handler
         * reports the failure first. */
        return (is_put && (status == UCS_ERR_ENDPOINT_TIMEOUT) &&
                to_endpoint(ep).super.is_failure_untold())
                   ? UCS_OK
                   : status;
    }
};

} // namespace gaudi::base
