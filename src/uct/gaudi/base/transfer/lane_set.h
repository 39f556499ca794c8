/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The lanes of one engine, made as they are needed: one per card that it has
 * used so far, one per process whose cards have copied for it, and one per card
 * that has ports to another one. Used by one thread at a time.
 */
#pragma once

#include "uct/gaudi/base/transfer/lane.h"

#include <memory>
#include <vector>

namespace gaudi::base {

class lane_set {
public:
    explicit lane_set(const transfer_options &options) : options_(options) {}

    /** The lane of a card; made when the card is used for the first time.
     *  @return UCS_OK, or an error, which was logged. */
    [[nodiscard]] ucs_status_t get(card &owner, lane *&lane_p)
    {
        if ((owner.place() < by_place_.size()) &&
            (by_place_[owner.place()] != nullptr)) {
            lane_p = by_place_[owner.place()];
            return UCS_OK;
        }
        return guarded([&] { return add(owner, lane_p); });
    }

    /** The lane of another process, made when it is first used. The caller
     *  counts itself among its users.
     *  @return As @ref remote_peer::open_lane. */
    [[nodiscard]] int get(remote_peer &there, owner_lane *&lane_p)
    {
        lane_p = there.in_use;
        return (lane_p == nullptr) ? connect(there, lane_p)
               : lane_p->is_over() ? -ESRCH
                                   : 0;
    }

    /** Let the lane of a process go when nothing uses it any more. */
    void release(remote_peer &there)
    {
        if (there.in_use != nullptr) {
            there.in_use->end();
            forget_over();
        }
    }

    /** The lane of a card's ports to the card that has memory, for which its
     *  process is asked when the first such is used. The caller counts itself
     *  among its users. Where there is none, nobody is asked again for some
     *  seconds.
     *  @param waits  A little for the answer, unless it did not come so soon
     *                before.
     *  @return 0 or -errno, logged at debug level; -EINPROGRESS before there is
     *          an answer. */
    [[nodiscard]] int get_ports(card &from, const side &there, bool waits,
                                lane *&lane_p);

    /** Whether memory may be used over ports, as owner_lane::confirm.
     *  @param waits  A little for the answer. */
    [[nodiscard]] static int confirm(const side &there, bool waits);

    /** Connect ports of a card with those of another process, which asks.
     *  @return 0 or -errno, said at debug level. */
    [[nodiscard]] int accept_ports(card &from, shim::port_offer &offer,
                                   port_lane *&lane_p);
    /** Nothing new is to go over them; with `at_once` what is under way fails.
     */
    void end_ports(port_lane &ports, bool at_once)
    {
        ports.end();
        if (at_once) {
            ports.close();
        }
        forget_over();
    }

    [[nodiscard]] auto begin() const { return all_.begin(); }
    [[nodiscard]] auto end() const { return all_.end(); }

    /** The ports before the lanes of the processes that they lead to. */
    ~lane_set()
    {
        while (!all_.empty()) {
            all_.pop_back();
        }
    }

private:
    [[nodiscard]] ucs_status_t add(card &owner, lane *&lane_p);
    [[nodiscard]] int connect(remote_peer &there, owner_lane *&lane_p);

    /* Ports from a card of ours to another process's: asked for, there, or not
     * to be had. */
    struct port_way {
        const card *from       = nullptr;
        const owner_lane *peer = nullptr;
        pci_address to         = pci_address::unknown; /* its card */
        std::unique_ptr<shim::connection> asked_for;
        bool is_slow       = false;   /* the answer did not come soon */
        uint32_t number    = 0;       /* by which the peer knows them */
        port_lane *by      = nullptr; /* that were made */
        int error          = -ENETDOWN;
        ucs_time_t retries = 0; /* not asked for again before */
    };

    void forget_over();
    void forget_unused();
    [[nodiscard]] port_way &find_way(const card &from, const owner_lane &peer,
                                     pci_address to);
    [[nodiscard]] int get_ports(port_way &way, card &from, card_place to,
                                owner_lane &peer, bool waits);
    [[nodiscard]] int ask_for_ports(port_way &way, const card &from,
                                    card_place to, owner_lane &peer);
    [[nodiscard]] int take_ports(port_way &way, card &from, owner_lane &peer,
                                 bool waits);
    port_lane &add_ports(card &from, std::unique_ptr<shim::connection> over,
                         owner_lane *peer, uint32_t number);
    [[nodiscard]] static int give_up(port_way &way, const card &from,
                                     const lane &peer, int error);

    const transfer_options &options_;
    std::vector<lane *> by_place_; /* of the card; nullptr: not used yet */
    std::vector<port_way> ways_;   /* as many as cards meet */
    uint32_t last_number_ = 0;
    std::vector<std::unique_ptr<lane>> all_;
};

} // namespace gaudi::base
