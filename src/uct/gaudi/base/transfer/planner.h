/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Finds out how bytes get from one side of a copy to the other: what the
 * addresses are, which card has them, whether host memory is mapped. What comes
 * out is a way with all that it relies on held; nothing has been moved then.
 */
#pragma once

#include "uct/gaudi/base/memory/registration_cache.h"
#include "uct/gaudi/base/transfer/channel_set.h"
#include "uct/gaudi/base/transfer/planned_copy.h"

namespace gaudi::base {

/** What to do about host memory here: for few bytes a look-up costs more than
 *  it can save. */
enum class host_side { find_registration, stage };

class planner {
public:
    planner(channel_set &channels, const transfer_options &options)
        : channels_(channels), remember_host_(options.remember_host),
          looks_for_cards_(options.looks_for_cards)
    {}

    /** Use the cards, and hold them. Without this the first that is open when
     *  device memory is met.
     *  @param home  Copies where none has the memory itself. */
    void use_cards(card &home);

    /** Plan a copy of which a side is not plain.
     *  @param copy  Empty; filled, on an error perhaps in part.
     *  @return UCS_OK, or an error, which was logged. */
    [[nodiscard]] ucs_status_t plan(const side &dst, const side &src,
                                    size_t length, host_side host,
                                    planned_copy &copy);

    /** Find device memory, for a copy from or to a chunk.
     *  @param by  Filled: the channel that has the chunks, whose queues
     *  @param va  reach the memory at this address.
     *  @param copy  What it relies on is filled in; on an error perhaps, too.
     *  @return As @ref plan. */
    [[nodiscard]] ucs_status_t reach(const side &device, size_t length,
                                     bool to_device, channel *&by, uint64_t &va,
                                     planned_copy &copy);

    /** Find device memory of this process, and the channel to its card. It is
     *  not held: for a copy that ends before the caller returns.
     *  @return As @ref plan. */
    [[nodiscard]] ucs_status_t find_device(const side &device, size_t length,
                                           device_location &where, channel *&by)
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
                                           device_location &where, channel *&by,
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

private:
    struct found {
        device_location where;
        channel *by;
    };
    struct undo_join {
        void operator()(registration_cache *joined) const
        {
            (void)joined->close();
        }
    };

    [[nodiscard]] bool find_home();
    [[nodiscard]] bool has_registrations();
    [[nodiscard]] static ucs_status_t hold(const side &there, size_t length,
                                           held_remote &held);
    [[nodiscard]] ucs_status_t look_up_device(const side &device, size_t length,
                                              device_location &where,
                                              channel *&by);
    ucs_status_t plan_between_devices(const side &dst, const side &src,
                                      planned_copy &copy);
    void plan_host_side(bool to_card, const side &here, host_side how,
                        channel &by, uint64_t va, planned_copy &copy);
    [[nodiscard]] int find_ports(const side &there, channel &by, bool waits,
                                 channel *&ports, planned_copy &copy);
    [[nodiscard]] int plan_over_ports(bool put, const side &there,
                                      const side &here, host_side host,
                                      channel &by, bool waits,
                                      planned_copy &copy);
    [[nodiscard]] int find_owner(const side &there, channel *&others,
                                 planned_copy &copy);
    template <typename Plan>
    [[nodiscard]] ucs_status_t take_first_route(const side &there,
                                                const channel *by, Plan &&plan);
    [[nodiscard]] ucs_status_t plan_by_owner(bool put, const side &there,
                                             const side &here, channel &others,
                                             channel *by, planned_copy &copy);
    ucs_status_t plan_remote_device(bool put, const side &there,
                                    const side &here, host_side host,
                                    planned_copy &copy);

    held_cards cards_;
    channel_set &channels_;
    const bool remember_host_;
    const bool looks_for_cards_;
    memory_map &map_ = memory_map::instance();
    card *home_      = nullptr; /* nullptr: no card was needed so far */
    found last_[2]{}; /* ranges that were looked up, of cards that are held:
                         a message comes to one buffer, and goes from another */
    unsigned oldest_ = 0;
    std::unique_ptr<registration_cache, undo_join>
        registrations_; /* nullptr: the process has none */
};

} // namespace gaudi::base
