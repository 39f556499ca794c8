/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What links and keys call of the service (service.h), which is above them.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

#include <cstdint>
#include <memory>

namespace gaudi::ipc {

class link;

class service_calls {
public:
    /** Of this process: the service. */
    static service_calls &instance();

    /** Be found by others, from now on until the process ends.
     *  @return UCS_ERR_NO_RESOURCE, which was logged. */
    [[nodiscard]] virtual ucs_status_t start() = 0;

    /** Read the socket of a link. @return As @ref start. */
    [[nodiscard]] virtual ucs_status_t
    follow(const std::shared_ptr<link> &which) = 0;
    virtual void unfollow(const link &which)   = 0;

    /** A peer revokes keys of a word. The service's thread. */
    virtual void revoke(const std::shared_ptr<link> &by, uint64_t word) = 0;

    /** Have peers whose ports may write to this process's memory give up the
     *  keys of a word.
     *  @param drain  Wait for writes of peers that have ended, some seconds.
     *  @return false: some may still arrive, or a peer did not answer in time:
     *          its ports are disconnected. */
    [[nodiscard]] virtual bool revoke_at_peers(uint64_t word, bool drain) = 0;

protected:
    ~service_calls() = default;
};

} // namespace gaudi::ipc
