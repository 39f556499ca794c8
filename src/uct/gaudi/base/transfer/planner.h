/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Finds out how bytes get from one side of a copy to the other: what the
 * addresses are, which card has them, whether host memory is mapped. What comes
 * out is in the operation, with all that it relies on held; nothing has been
 * moved then. By target (rows) and source, the first that is possible:
 *
 *           | own card           | own host           | peer, card or host
 * ----------|--------------------|--------------------|----------------------
 * own card  | same: direct       | registered: direct | ports: direct (asked)
 *           | other one: relay   | upload             | host: relay
 * own host  | registered: direct | (CPU, no plan)     | ports: direct or
 *           | download           |                    |   download (asked)
 *           |                    |                    | host: download
 * peer      | ports: direct      | ports: direct or   | (refused)
 *           | host: relay        |   upload           |
 *           |                    | host: upload       |
 *
 * By the host way the peer's cards, or its CPU, copy from or to a chunk that
 * both processes have; by ports the card writes that has the bytes.
 */
#pragma once

#include "uct/gaudi/base/memory/registration_cache.h"
#include "uct/gaudi/base/transfer/lane_set.h"
#include "uct/gaudi/base/transfer/operation.h"

namespace gaudi::base {

/** What to do about host memory here: for few bytes a look-up costs more than
 *  it can save. A chunk takes its place in bcopy, which is taken and held. */
enum class host_side { find_registration, stage, chunk };

class planner {
public:
    /* Staging chunks that only calls may take, so that they always get on: two,
     * to fill one while the other is on its way. */
    static constexpr size_t reserved_chunks = 2;

    planner(lane_set &lanes, const transfer_options &options)
        : lanes_(lanes), remember_host_(options.remember_host),
          looks_for_cards_(options.looks_for_cards)
    {}

    /** Use the cards, and hold them. Without this the first that is open when
     *  device memory is met.
     *  @param home  Copies where none has the memory itself. */
    void use_cards(card &home);

    /** Plan a copy of which a side is not plain.
     *  @param op  Empty; filled, on an error perhaps in part.
     *  @return UCS_OK, UCS_ERR_NO_RESOURCE, or an error, which was logged. */
    [[nodiscard]] ucs_status_t plan(const side &dst, const side &src,
                                    size_t length, host_side host,
                                    operation &op);

    /** Find device memory of this process, and the lane of its card. It is not
     *  held: for a copy that ends before the caller returns.
     *  @return As @ref plan. */
    [[nodiscard]] ucs_status_t find_device(const side &device, size_t length,
                                           device_location &where, lane *&by)
    {
        for (const found &last : last_) {
            if (ucs_likely((device.address >= last.where.start) &&
                           (device.address < last.where.end) &&
                           (length <= last.where.end - device.address) &&
                           (map_.device_version() == last.where.version) &&
                           !last.where.owner->is_lost())) {
                where = last.where;
                by    = last.by;
                return UCS_OK;
            }
        }
        return look_up_device(device, length, where, by);
    }

    /** The same, and keep it from being given out again. */
    [[nodiscard]] ucs_status_t hold_device(const side &device, size_t length,
                                           device_location &where, lane *&by,
                                           held_device &held)
    {
        ucs_status_t status;
        do {
            status = find_device(device, length, where, by);
        } while ((status == UCS_OK) && !map_.hold(where));
        held.reset((status == UCS_OK) ? where.memory : nullptr);
        return status;
    }

    /** A card of this process; nullptr: it is not open, or lost. */
    [[nodiscard]] card *find_card(pci_address address)
    {
        const auto is_it = [&](const card &each) {
            return each.address() == address;
        };
        return find_home() ? cards_.find_open(is_it) : nullptr;
    }

    /** Hold a registration of host memory, if there is one.
     *  @param remember  Make one where host memory is remembered. */
    [[nodiscard]] held_registration
    find_registration(const side &host, size_t length, bool remember);

    /** Whether so many bytes of device memory are there. @return As @ref plan.
     */
    [[nodiscard]] ucs_status_t check(const side &device, size_t length);

    [[nodiscard]] bool has_card() const { return home_ != nullptr; }

    /** Whether the last plan for memory of another process would have been for
     *  ports that are being connected. */
    [[nodiscard]] bool waits_for_ports() const { return waits_for_ports_; }

private:
    struct found {
        device_location where;
        lane *by;
    };
    struct undo_join {
        void operator()(registration_cache *joined) const
        {
            (void)joined->close();
        }
    };

    [[nodiscard]] bool find_home();
    [[nodiscard]] bool has_registrations();
    [[nodiscard]] ucs_status_t look_up_device(const side &device, size_t length,
                                              device_location &where,
                                              lane *&by);
    ucs_status_t plan_within(const side &dst, const side &src, operation &op);
    ucs_status_t plan_host(bool to_card, const side &host, host_side how,
                           lane &by, uint64_t there, operation &op);
    ucs_status_t plan_remote(bool put, const side &there, const side &here,
                             host_side host, operation &op);
    [[nodiscard]] int find_ports(const side &there, const side &here, lane *by,
                                 bool waits, operation &op);
    [[nodiscard]] int find_owner(const side &there, operation &op);

    held_cards cards_;
    lane_set &lanes_;
    const bool remember_host_;
    const bool looks_for_cards_;
    memory_map &map_      = memory_map::instance();
    bool waits_for_ports_ = false;
    card *home_           = nullptr; /* nullptr: no card was needed so far */
    found last_[2]{}; /* ranges that were looked up, of cards that are held:
                         a message comes to one buffer, and goes from another */
    unsigned oldest_ = 0;
    std::unique_ptr<registration_cache, undo_join>
        registrations_; /* nullptr: the process has none */
};

} // namespace gaudi::base
