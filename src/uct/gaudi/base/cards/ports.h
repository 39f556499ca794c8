/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The ports of a card of this process: opened when a peer is met that they may
 * lead to, and there until the card is closed. Any thread.
 */
#pragma once

#include "hlthunk_shim/cards/driver.h"
#include "hlthunk_shim/ports/port_device.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

namespace gaudi::base {

class card_ports {
public:
    /** From when a queue pair is destroyed what arrives for it is still taken
     *  for so long: HBL_CN_QP_DRAIN_TIME of the driver, 5 s, and some more. */
    static constexpr std::chrono::milliseconds drain_time{6000};

    /** Open them, at the first call.
     *  @param of      The card; outlives them, as @p driver does.
     *  @param number  N of /dev/accel/accelN.
     *  @param why_p   Filled with a nullptr: why they cannot be used. */
    [[nodiscard]] shim::port_device *get(const shim::driver &driver,
                                         const shim::card &of, unsigned number,
                                         std::string &why_p);

    /** Whether this is the first time that this is asked. */
    [[nodiscard]] bool is_first_refusal() { return !refused_.exchange(true); }

private:
    std::string open(const shim::driver &driver, const shim::card &of,
                     unsigned number);

    std::mutex lock_; /* held across opening them */
    bool tried_ = false;
    std::atomic<bool> refused_{false};
    std::string why_;
    std::unique_ptr<shim::port_device> device_;
};

} // namespace gaudi::base
