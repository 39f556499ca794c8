/**
 * Writes over a card's ports, as a queue like others.
 *
 * Their end is told by polling alone, and comes in any order.
 */
#pragma once

#include "hlthunk_shim/dma_queue.h"
#include "hlthunk_shim/ports/connection.h"

#include <memory>
#include <utility>
#include <vector>

namespace gaudi::base {

class port_queue final : public shim::dma_queue {
public:
    explicit port_queue(std::unique_ptr<shim::connection> over)
        : over_(std::move(over))
    {}

    /** Whether no port works any more. */
    [[nodiscard]] bool is_down() const { return over_->usable_ports() == 0; }

    /** Nothing is written any more: what is under way fails. */
    void close() { over_->close(); }

    int submit(uint64_t dst, uint64_t src, uint64_t length, void *cookie,
               uint64_t &, bool) override
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
    const std::unique_ptr<shim::connection> over_;
    std::vector<shim::dma_completion> ended_; /* by wait_all */
};

} // namespace gaudi::base
