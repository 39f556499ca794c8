/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Another process with a card and device memory, which gaudi_ipc reaches.
 */
#pragma once

#include "transport.h"

namespace gaudi::bench {

class ipc_peer : public transport {
public:
    /** Start the process. Before this one opens UCX, or has threads. */
    static void start();

    /** Its memory opened, with an endpoint to it. Ends the program when that
     *  fails. After @ref load_module. */
    static ipc_peer &instance();

    /** Put from here to its device memory, at most session::max_size bytes, and
     *  call progress until the put has completed. */
    void put_zcopy(void *local, size_t size)
    {
        begin_zcopy(uct_ep_put_zcopy, local, size, 0);
        complete();
    }

    /** Start one only, at an offset in its device memory.
     *  @param how  uct_ep_put_zcopy or uct_ep_get_zcopy. */
    void begin_zcopy(uct_ep_put_zcopy_func_t how, void *local, size_t size,
                     uint64_t offset)
    {
        transport::begin_zcopy(how, to_peer_, local, size, address_ + offset,
                               key_.rkey);
    }
    using transport::complete;

    /** Put from here, and return when that has ended. */
    void put_short(const void *local, size_t size)
    {
        require(uct_ep_put_short(to_peer_, local, static_cast<unsigned>(size),
                                 address_, key_.rkey),
                "put_short");
    }

private:
    ipc_peer();

    uint64_t address_ = 0;
    uct_rkey_bundle_t key_{};
    uct_ep_h to_peer_ = nullptr;
};

} // namespace gaudi::bench
