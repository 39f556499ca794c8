/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/transfer/channel_set.h"

#include <cerrno>

namespace gaudi::base {

ucs_status_t channel_set::add(card &owner, channel *&channel_p)
{
    if (owner.place() >= by_place_.size()) {
        by_place_.resize(owner.place() + 1);
    }
    all_.reserve(all_.size() + 1);
    std::unique_ptr<channel> made;
    const ucs_status_t status = channel::create(owner, options_, made);
    if (status == UCS_OK) {
        channel_p = by_place_[owner.place()] = &add(std::move(made));
    }
    return status;
}

/* Those that are over go when nothing uses them any more: of a process after
 * its ports. */
void channel_set::forget_over()
{
    used_ = {};
    /* A process may end meanwhile: each is asked once, and before its ports. */
    for (const bool ports : {false, true}) {
        for (const auto &each : all_) {
            if ((each->is_of_ports() == ports) && each->is_over()) {
                each->end(false);
            }
        }
    }
    const auto has_ended = [](const channel *one) {
        return (one != nullptr) && one->has_ended();
    };
    std::erase_if(ways_, [&](const auto &entry) {
        return has_ended(std::get<channel *>(entry.first));
    });
    for (auto &[_, way] : ways_) {
        if (has_ended(way.by)) {
            way.by = nullptr;
        }
    }
    forget_unused();
    forget_unused();
}

void channel_set::forget_unused()
{
    const auto is_unused = [](const channel &one) {
        return one.has_ended() && (one.users == 0);
    };
    for (auto &[_, way] : ways_) {
        if ((way.by != nullptr) && is_unused(*way.by)) {
            way.by = nullptr;
        }
    }
    std::erase_if(all_, [&](const auto &each) { return is_unused(*each); });
}

int channel_set::connect(remote_peer &there, channel *&channel_p)
{
    int error = -ENOMEM;
    (void)guarded([&] {
        forget_over();
        all_.reserve(all_.size() + 1);
        std::unique_ptr<channel> made;
        error = channel::create(there, options_, made);
        if (error == 0) {
            channel_p = &add(std::move(made));
        }
        return UCS_OK;
    });
    return error;
}

} // namespace gaudi::base
