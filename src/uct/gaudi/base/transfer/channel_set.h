/**
 * The channels of one engine: one per card that it has used so far.
 */
#pragma once

#include "uct/gaudi/base/transfer/channel.h"
#include "uct/gaudi/base/ucx/status.h"

#include <memory>
#include <vector>

namespace gaudi::base {

class channel_set {
public:
    explicit channel_set(const transfer_options &options) : options_(options) {}

    /** The channel to a card; made when the card is used for the first time.
     *  @return UCS_OK, or an error, which was logged. */
    [[nodiscard]] ucs_status_t get(card &owner, channel *&channel_p)
    {
        if ((owner.slot() < by_slot_.size()) &&
            (by_slot_[owner.slot()] != nullptr)) {
            channel_p = by_slot_[owner.slot()];
            return UCS_OK;
        }
        return guarded([&] { return add(owner, channel_p); });
    }

    [[nodiscard]] auto begin() const { return all_.begin(); }
    [[nodiscard]] auto end() const { return all_.end(); }

    /** In a forked child: leave everything to the parent. */
    void disown()
    {
        for (auto &each : all_) {
            (void)each.release();
        }
    }

private:
    [[nodiscard]] ucs_status_t add(card &owner, channel *&channel_p)
    {
        if (owner.slot() >= by_slot_.size()) {
            by_slot_.resize(owner.slot() + 1);
        }
        all_.reserve(all_.size() + 1);
        std::unique_ptr<channel> made;
        const ucs_status_t status = channel::create(owner, options_, made);
        if (status == UCS_OK) {
            channel_p = by_slot_[owner.slot()] = made.get();
            all_.push_back(std::move(made));
        }
        return status;
    }

    const transfer_options &options_;
    std::vector<channel *> by_slot_; /* of the card; nullptr: not used yet */
    std::vector<std::unique_ptr<channel>> all_;
};

} // namespace gaudi::base
