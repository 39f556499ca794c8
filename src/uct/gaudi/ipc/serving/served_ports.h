/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Ports of cards of this process that another process has asked to be connected
 * to, by the names that it has given them. By one engine.
 */
#pragma once

#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/ipc/serving/copy_ring.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gaudi::ipc {

/** What is told of a status to who has asked. */
[[nodiscard]] int to_errno(ucs_status_t status);

class served_ports {
public:
    served_ports()                                = default;
    served_ports(const served_ports &)            = delete;
    served_ports &operator=(const served_ports &) = delete;
    ~served_ports();

    /** Connect some. A name that is used again is of ports that these replace.
     *  @param letter  Of the other end; then of this one.
     *  @return 0 or -errno. */
    [[nodiscard]] int connect(base::transfer_engine &engine, uint32_t name,
                              base::pci_address card, shim::port_offer &letter);

    /** Map host memory for the card of some (request_map).
     *  @return What remote_memory::mapping is to have. */
    [[nodiscard]] uint64_t map(const request_body &asked);

    /** Keep none of it mapped whose key has ended, and which the other process
     *  does not use any more. @return Whether it still uses some. */
    bool forget_mapped();
    /** What is mapped, and the other process uses: its writes may still come.
     *  Ends with these. */
    [[nodiscard]] std::vector<base::held_registration> take_used();
    /** Whether anybody has any. */
    static bool any_mapped() { return all_mapped.load() != 0; }

    /** Start a write over them that was asked for, from device memory of this
     *  process, or what @ref map has mapped, by a key.
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

    /* What may be written to by a card's ports, and be written from there, by
     * the stamp of its key. */
    using mapped_name = std::pair<uint64_t, const base::card *>;
    struct mapped_host {
        uint32_t cell; /* of its key */
        base::held_registration memory;
        uint64_t added; /* to addresses, by the card */
    };
    static inline std::atomic<size_t> all_mapped{0};

    base::transfer_engine *engine_ = nullptr; /* which has them */
    std::unordered_map<uint32_t, base::channel *> all_;
    std::map<mapped_name, mapped_host> mapped_;
};

} // namespace gaudi::ipc
