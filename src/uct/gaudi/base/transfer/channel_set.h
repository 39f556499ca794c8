/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The channels of one engine, made as they are needed. Used by one thread at a
 * time.
 */
#pragma once

#include "uct/gaudi/base/transfer/channel.h"

#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

namespace gaudi::base {

/** The channels of one engine: one per card that it has used so far, one per
 *  process whose cards have copied for it, and one per card that has ports to
 *  another one. */
class channel_set {
public:
    explicit channel_set(const transfer_options &options) : options_(options) {}

    /** The channel to a card; made when the card is used for the first time.
     *  @return UCS_OK, or an error, which was logged. */
    [[nodiscard]] ucs_status_t get(card &owner, channel *&channel_p)
    {
        if ((owner.place() < by_place_.size()) &&
            (by_place_[owner.place()] != nullptr)) {
            channel_p = by_place_[owner.place()];
            return UCS_OK;
        }
        return guarded([&] { return add(owner, channel_p); });
    }

    /** The channel to another process, made when it is first used. The caller
     *  counts itself among its users.
     *  @return As @ref channel::create. */
    [[nodiscard]] int get(remote_peer &there, channel *&channel_p)
    {
        channel_p = there.in_use;
        return (channel_p == nullptr) ? connect(there, channel_p)
               : channel_p->is_over() ? -ESRCH
                                      : 0;
    }

    /** Let a channel go when nothing uses it any more. */
    void release(remote_peer &there)
    {
        if (there.in_use != nullptr) {
            there.in_use->end(false);
            forget_over();
        }
    }

    /** The channel of a card's ports to the card that has memory, which its
     *  process is asked for when the first such is used. The caller counts
     *  itself among its users. Where there is none, nobody is asked again for
     *  some seconds.
     *  @param waits  A little for the answer, unless it did not come so soon
     *                before.
     *  @return 0 or -errno, logged at debug level; -EINPROGRESS before there is
     *          an answer. */
    [[nodiscard]] int get_ports(card &from, const side &there, bool waits,
                                channel *&channel_p);

    /** Whether memory may be used over ports, as owner_queue::confirm.
     *  @param waits  A little for the answer. */
    [[nodiscard]] static int confirm(const side &there, bool waits);

    /** Connect ports of a card with those of another process, which asks.
     *  @return 0 or -errno, said at debug level. */
    [[nodiscard]] int accept_ports(card &from, shim::port_offer &letter,
                                   channel *&channel_p);
    /** See @ref channel::end. */
    void end_ports(channel &ports, bool at_once)
    {
        ports.end(at_once);
        forget_over();
    }

    [[nodiscard]] auto begin() const { return all_.begin(); }
    [[nodiscard]] auto end() const { return all_.end(); }

    /** The ports before the channels to the processes that they lead to. */
    ~channel_set()
    {
        ways_.clear();
        while (!all_.empty()) {
            all_.pop_back();
        }
    }

private:
    [[nodiscard]] ucs_status_t add(card &owner, channel *&channel_p);
    [[nodiscard]] int connect(remote_peer &there, channel *&channel_p);

    /* Ports from a card of ours to another process's: asked for, there, or not
     * to be had. */
    struct port_way {
        std::unique_ptr<shim::connection> asked_for;
        bool is_slow       = false;   /* the answer did not come soon */
        uint32_t number    = 0;       /* by which the peer knows them */
        channel *by        = nullptr; /* that were made */
        int error          = -ENETDOWN;
        ucs_time_t retries = 0; /* not asked for again before */
    };

    void forget_over();
    void forget_unused();
    channel &add(std::unique_ptr<channel> made)
    {
        return *all_.emplace_back(std::move(made));
    }
    [[nodiscard]] int get_ports(port_way &way, card &from, card_place to,
                                channel &peer, bool waits);
    [[nodiscard]] int ask_for_ports(port_way &way, const card &from,
                                    card_place to, channel &peer);
    [[nodiscard]] int take_ports(port_way &way, card &from, channel &peer,
                                 bool waits);
    [[nodiscard]] static int give_up(port_way &way, const card &from,
                                     const channel &peer, int error);

    const transfer_options &options_;
    std::vector<channel *> by_place_; /* of the card; nullptr: not used yet */
    /* From the place of a card, by the channel to a process, to its card. */
    std::map<std::tuple<size_t, channel *, pci_address>, port_way> ways_;
    /* Those that were used last, by module id of where they lead to. */
    struct used_way {
        const remote_peer *peer;
        pci_address to;
        size_t from; /* place of the card */
        port_way *way;
    };
    std::array<used_way, 8> used_{};
    uint32_t last_number_ = 0;
    std::vector<std::unique_ptr<channel>> all_;
};

} // namespace gaudi::base
