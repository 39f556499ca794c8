/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The ports of a card of this process: opened when a peer is met that they may
 * lead to, and there until the card is closed. Any thread.
 */
#pragma once

#include "hlthunk_shim/ports/port_device.h"

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

namespace gaudi::base {

class card;

/** See @ref ports_of, in routes.h. */
class card_ports {
public:
    /** From when a queue pair is destroyed what arrives for it is still taken
     *  for so long: HBL_CN_QP_DRAIN_TIME of the driver, 5 s, and some more. */
    static constexpr std::chrono::milliseconds drain_time{6000};

private:
    friend shim::port_device *ports_of(const card &of, std::string &why_p);

    std::mutex lock_; /* held across opening them */
    bool tried_ = false;
    std::string why_;
    std::unique_ptr<shim::port_device> device_;
};

} // namespace gaudi::base
