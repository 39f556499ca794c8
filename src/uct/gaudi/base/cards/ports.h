/**
 * The ports of cards of this process: opened when a peer is met that they may
 * lead to, and there until the card is closed. Any thread.
 */
#pragma once

#include "hlthunk_shim/ports/port_device.h"

#include <memory>
#include <mutex>
#include <string>

namespace gaudi::base {

class card;

class card_ports {
public:
    /** Open them, at the first call.
     *  @param why_p  Filled with a nullptr: why they cannot be used. */
    [[nodiscard]] shim::port_device *get(const card &of, std::string &why_p);

private:
    std::string open(const card &of);

    std::mutex lock_; /* held across opening them */
    bool tried_ = false;
    std::string why_;
    std::unique_ptr<shim::port_device> device_;
};

/** Whether ports of a card of this process lead to another card, as far as it
 *  can tell: the other end has to agree.
 *  @param module_to  Module id of that one.
 *  @return Why not; empty: they may. */
[[nodiscard]] std::string why_no_ports(const card &from, unsigned module_to);

} // namespace gaudi::base
