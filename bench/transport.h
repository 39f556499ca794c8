/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * One UCT transport, opened by its names, with an endpoint to itself.
 */
#pragma once

extern "C" {
#include <uct/api/uct.h>
}

namespace gaudi::bench {

/** Ends the program, with a message, unless `good`. */
void require(bool good, const char *what);
void require(ucs_status_t status, const char *what);

/** By its name; ends the program when there is none. */
uct_component_h find_component(const char *name);

class transport {
public:
    /** The memory domain has the name of its component. Ends the program when
     *  something cannot be opened. It is never closed. */
    transport(const char *component, const char *name, const char *device);

    uct_md_h md         = nullptr;
    uct_worker_h worker = nullptr;
    uct_iface_h iface   = nullptr;
    uct_ep_h ep         = nullptr;
    uct_iface_attr_t attr{};

protected:
    /** Start a zcopy.
     *  @param start  uct_ep_put_zcopy or uct_ep_get_zcopy. */
    void begin_zcopy(uct_ep_put_zcopy_func_t start, uct_ep_h to, void *local,
                     size_t size, uint64_t remote, uct_rkey_t rkey);

    /** Call progress until all that were started have completed. */
    void complete();

private:
    uct_completion_t completion_{}; /* of all: counts */
    ucs_async_context_t *async_ = nullptr;
};

} // namespace gaudi::bench
