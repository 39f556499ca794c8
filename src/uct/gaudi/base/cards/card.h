/**
 * A card that this process has open.
 *
 * Immutable after opening, but for what the driver finds out.
 */
#pragma once

#include "hlthunk_shim/card.h"
#include "hlthunk_shim/cards/visible_cards.h"
#include "uct/gaudi/base/ucx/ucx.h"

#include <atomic>
#include <memory>
#include <string>

namespace gaudi::base {

/** Cards that a process can have open between the first open and the last close
 *  of the card table; one that the application reopens counts once more. */
inline constexpr size_t max_cards = 64;

class card {
public:
    /**
     * @param self  What is known of the card, and its name.
     * @param slot  Of the card in this process: 0 for the first one opened.
     */
    card(const shim::visible_card &self, unsigned slot,
         std::unique_ptr<shim::card> device);

    [[nodiscard]] const std::string &name() const { return name_; }
    [[nodiscard]] const shim::card_info &info() const { return info_; }
    [[nodiscard]] unsigned slot() const { return slot_; }
    [[nodiscard]] shim::card &device() const { return *device_; }
    [[nodiscard]] ucs_sys_device_t sys_device() const { return sys_device_; }

    /** Whether the application closed it, or it was reset or removed. It stays
     *  as long as the table is open, and does nothing. */
    [[nodiscard]] bool is_lost() const { return device_->is_lost(); }

    /** The level of a failure on this card: of those on a card that is lost
     *  the first is an error, the others add nothing. Each call is for one
     *  failure, and UCX's macros may evaluate an argument twice. */
    [[nodiscard]] ucs_log_level_t failure_level() const
    {
        return (is_lost() && failed_since_loss_.exchange(true))
                   ? UCS_LOG_LEVEL_DIAG
                   : UCS_LOG_LEVEL_ERROR;
    }

private:
    const shim::card_info info_;
    const unsigned slot_;
    const std::string name_;
    std::unique_ptr<shim::card> device_;
    mutable std::atomic<bool> failed_since_loss_{false};
    ucs_sys_device_t sys_device_ = UCS_SYS_DEVICE_ID_UNKNOWN;
};

/**
 * The CPUs near a card.
 *
 * @param of    The card; nullptr: none.
 * @param cpus  Set to them; to all when they are not known.
 */
void find_local_cpus(const card *of, ucs_cpu_set_t &cpus);

} // namespace gaudi::base
