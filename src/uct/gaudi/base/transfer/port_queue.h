/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Writes over a card's ports, as a queue like others.
 *
 * Their end is told by polling alone, and comes in any order.
 */
#pragma once

#include "hlthunk_shim/dma_queue.h"
#include "hlthunk_shim/ports/connection.h"
#include "uct/gaudi/base/transfer/owner_queue.h"

#include <memory>
#include <utility>
#include <vector>

namespace gaudi::base {

class port_queue final : public shim::dma_queue {
public:
    /** @param peer  Whose process has the other end; nullptr: whoever knows
     *               when it ends calls @ref close. */
    port_queue(std::unique_ptr<shim::connection> over, owner_queue *peer)
        : over_(std::move(over)), peer_(peer)
    {}

    /** Whether ports work, and none has failed. */
    [[nodiscard]] bool is_usable() const { return over_->is_usable(); }

    /** Nothing is written any more: what is under way fails. */
    void close() { over_->close(); }

    int submit(uint64_t dst, uint64_t src, uint64_t length, void *cookie,
               uint64_t &) override
    {
        return over_->post(dst, src, length, cookie);
    }
    unsigned poll(shim::dma_completion *completions, unsigned max) override;
    int wait(uint64_t, uint64_t) override { return -EOPNOTSUPP; }
    int wait_all(uint64_t timeout_us) override;
    [[nodiscard]] unsigned outstanding() const override
    {
        return over_->outstanding() + static_cast<unsigned>(ended_.size());
    }
    [[nodiscard]] shim::ticket oldest_ticket() const override
    {
        return shim::ticket::none;
    }

private:
    unsigned look(shim::dma_completion *completions, unsigned max);

    /* Polls that find nothing between two looks at the peer. */
    static constexpr unsigned polls_before_look = 1024;

    const std::unique_ptr<shim::connection> over_;
    owner_queue *const peer_;
    unsigned idle_polls_ = 0;
    std::vector<shim::dma_completion> ended_; /* by wait_all */
};

} // namespace gaudi::base
