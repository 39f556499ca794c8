/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * In the child of a step: what is done, how that ends, and a card. Whatever
 * goes wrong ends the step, and names what was being done. Nothing is given
 * back then: the process ends.
 */
#pragma once

#include "hlthunk_shim/discovery/driver.h"
#include "hlthunk_shim/memory.h"
#include "launcher/check.h"

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace launcher {

/** End the step as failed, unless this is 0. @param result  0 or -errno. */
void must_succeed(int result);

/** The same of what the machine may not have, which -EOPNOTSUPP says. */
void must_be_there(int result, const char *otherwise);

/** End the step as failed, unless this holds. */
void must_hold(bool holds, const std::string &otherwise);

/** Whether SynapseAI drives the cards. */
bool is_by_synapse(const subject &with);

/** End a step that is not for cards of SynapseAI. */
void must_not_be_by_synapse(const subject &with, const char *otherwise);

inline constexpr char one_card[] = "a process has one card by SynapseAI";

/** Bytes that tell each position apart, and one text from another. */
std::vector<char> pattern(size_t size, unsigned seed);

/** End the step as failed, unless these are the bytes; says which is the first
 *  other one, and what it is. */
void require_same(const char *data, const std::vector<char> &text);

/** With one decimal. */
std::string to_decimal(double value);

/** The driver library of this process; it is loaded once. */
const gaudi::shim::driver &driver_of(const subject &with);

class tried_card {
public:
    /** Open it, waiting for the end of a reset. */
    tried_card(const subject &with, const std::string &bus_id,
               const gaudi::shim::driver &driver);
    tried_card(const subject &with, const std::string &bus_id)
        : tried_card(with, bus_id, driver_of(with))
    {}

    [[nodiscard]] gaudi::shim::card &device() const { return *card_; }
    [[nodiscard]] const gaudi::shim::capabilities &knows() const
    {
        return card_->capabilities();
    }

    /** What it gives out memory in; where nobody tells, enough for a step. */
    [[nodiscard]] uint64_t page() const
    {
        return (knows().page_bytes != 0) ? knows().page_bytes
                                         : uint64_t{32} << 20;
    }

    /** Empty; or that it was waited for, and how long. */
    [[nodiscard]] const std::string &wait() const { return wait_; }

    /** Device memory until the end; its address. */
    uint64_t allocate(uint64_t size);

    /** Zeroed pages that the card reaches, until the end. */
    gaudi::shim::pinned_buffer &pin(uint64_t size);

    /** Copy, and wait for the end of it. */
    void copy(gaudi::shim::dma_direction direction, uint64_t dst, uint64_t src,
              uint64_t length, unsigned times = 1);

    /** The same, of a copy that may fail. @return 0 or -errno. */
    int try_copy(gaudi::shim::dma_direction direction, uint64_t dst,
                 uint64_t src, uint64_t length, unsigned times = 1);

    /** Through a pinned buffer of the card's own: host memory to the card, and
     *  back. */
    void write(uint64_t dst, const std::vector<char> &text);
    std::vector<char> read(uint64_t src, uint64_t size);

    /** Copy 8 bytes to the card and back. @return That, for the table. */
    std::string exchange(uint64_t there);

    /** Give all back, and say so when the driver refuses that. */
    void close();

private:
    gaudi::shim::pinned_buffer &bounce(uint64_t size);

    const subject &with_;
    std::string wait_;
    std::unique_ptr<gaudi::shim::card> card_;
    std::vector<gaudi::shim::allocation> memory_;
    std::deque<gaudi::shim::pinned_buffer> pinned_;
    gaudi::shim::pinned_buffer bounce_;
    std::array<std::unique_ptr<gaudi::shim::dma_queue>,
               gaudi::shim::dma_directions>
        queues_;
};

} // namespace launcher
