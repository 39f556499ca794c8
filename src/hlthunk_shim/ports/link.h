/** Placeholder. */
#pragma once

#include "hlthunk_shim/card.h"
#include "hlthunk_shim/dma_queue.h"

#include <cstdint>
#include <memory>
#include <string>

namespace gaudi::shim {

struct port_address {
    uint64_t words[64];
};

class port_link : public dma_queue {
public:
    [[nodiscard]] static int create(card &from,
                                    std::unique_ptr<port_link> &link_p);
    [[nodiscard]] virtual const port_address &address() const     = 0;
    [[nodiscard]] virtual int connect(const port_address &theirs) = 0;
    [[nodiscard]] virtual bool is_down() const                    = 0;
    [[nodiscard]] virtual unsigned depth() const                  = 0;
};

/** Why a card has no ports to another one; empty: it may. */
std::string why_no_ports(card &from, unsigned peer_module);
} // namespace gaudi::shim
