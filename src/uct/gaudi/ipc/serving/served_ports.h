/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Ports of cards of this process that another process has asked to be connected
 * to, by the names that it has given them. By one engine.
 */
#pragma once

#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/ipc/serving/copy_ring.h"

#include <cstdint>
#include <unordered_map>

namespace gaudi::ipc {

/** What is told of a status to who has asked. */
[[nodiscard]] int to_errno(ucs_status_t status);

class served_ports {
public:
    served_ports()                                = default;
    served_ports(const served_ports &)            = delete;
    served_ports &operator=(const served_ports &) = delete;
    ~served_ports() { end(); }

    /** Connect some. A name that is used again is of ports that these replace.
     *  @param letter  Of the other end; then of this one.
     *  @return 0 or -errno. */
    [[nodiscard]] int connect(base::transfer_engine &engine, uint32_t name,
                              base::pci_address card, shim::port_offer &letter);

    /** Start a write over them that was asked for, from device memory of this
     *  process, by a key.
     *  @param completion  Has to end the use of the key (own_page::end_use).
     *  @return As transfer_engine::start. */
    [[nodiscard]] ucs_status_t start_write(base::transfer_engine &engine,
                                           base::flush_domain &domain,
                                           const request_body &asked,
                                           uct_completion_t *completion) const;

    /** nullptr: there are none of that name. */
    [[nodiscard]] base::channel *find(uint32_t name) const
    {
        const auto known = all_.find(name);
        return (known != all_.end()) ? known->second : nullptr;
    }

    [[nodiscard]] bool empty() const { return all_.empty(); }

    /** Nothing goes over them any more; while the engine is there. */
    void end();

private:
    /* One process may have so many. */
    static constexpr size_t most = 64;

    base::transfer_engine *engine_ = nullptr; /* which has them */
    std::unordered_map<uint32_t, base::channel *> all_;
};

} // namespace gaudi::ipc
