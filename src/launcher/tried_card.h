/**
 * A card in the child of a step. Whatever goes wrong ends the step, and names
 * what was being done. Nothing is given back then: the process ends.
 */
#pragma once

#include "hlthunk_shim/cards/driver.h"
#include "hlthunk_shim/memory.h"
#include "launcher/check.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace launcher {

/** The driver library of this process; it is loaded once. */
const gaudi::shim::driver &driver_of(const subject &with);

/** Say what is done now; a failure begins with it. */
void doing(const std::string &what);

/** End the step as failed, unless this is 0. @param result  0 or -errno. */
void must_succeed(int result);

/** End the step as failed, unless this holds. */
void must_hold(bool holds, const std::string &otherwise);

/** Bytes that tell each position apart, and one text from another. */
void fill(char *data, size_t size, unsigned seed);

/** End the step as failed, unless these are the bytes; of others says which is
 *  the first, and what it is. */
void require_filled(const char *data, size_t size, unsigned seed);

/** Whether they are. */
bool is_filled(const char *data, size_t size, unsigned seed);

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
    void write(uint64_t dst, const char *data, uint64_t size);
    void read(char *data, uint64_t src, uint64_t size);

    /** Copy 8 bytes to the card and back. */
    void exchange(uint64_t there);

    /** Give all back, and say so when the driver refuses that. */
    void close();

private:
    gaudi::shim::pinned_buffer &bounce(uint64_t size);

    const subject &with_;
    std::string wait_;
    std::unique_ptr<gaudi::shim::card> card_;
    std::vector<gaudi::shim::allocation> memory_;
    std::vector<std::unique_ptr<gaudi::shim::pinned_buffer>> pinned_;
    gaudi::shim::pinned_buffer bounce_;
    std::array<std::unique_ptr<gaudi::shim::dma_queue>,
               gaudi::shim::dma_directions>
        queues_;
};

} // namespace launcher
