/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What is on its way in a box, and when it gets there: the timing model.
 *
 * Pure arithmetic on times that are passed in. A plain structure, since the
 * processes of a box share one: see box_traffic.h, which also locks it.
 *
 * A transfer needs a share of several things at once: the links of the cards it
 * goes through, their memory, its engine. All that is under way shares these
 * fairly, in the sense of max-min: the rates of all rise together until
 * something is used up; who needs that stays there, the others rise on. This is
 * what arbiters that take bursts of one size from everybody in turn come to,
 * and PCIe switches, HBM controllers and the engines' streams are such. Where
 * nothing begins or ends rates stay, so the model goes from event to event and
 * is exact, however seldom somebody looks. Transfers of one queue follow each
 * other.
 */
#pragma once

#include "hlthunk_emulator/ports/wiring.h"
#include "hlthunk_emulator/timing_figures.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gaudi::emu {

/** Nanoseconds of CLOCK_MONOTONIC, which all processes have in common. */
using model_time = int64_t;

inline model_time model_time_of(std::chrono::steady_clock::time_point when)
{
    return std::chrono::nanoseconds(when.time_since_epoch()).count();
}

/** Something that transfers share, of one card. */
enum class shared_part : uint16_t {
    to_card,
    from_card,
    hbm,
    pdma_all,
    edma_all,
    peer_reads, /**< of other cards' memory, by this one */
    to_cards,   /**< the link of a switch, under the number of the first card
                     below it */
    from_cards,
    first_pdma,                      /**< the engines: two */
    first_edma     = first_pdma + 2, /**< eight */
    first_port_out = first_edma + 8, /**< what leaves by each port, */
    first_port_in  = first_port_out + ports_of_card, /**< and what arrives */
    count          = first_port_in + ports_of_card
};

/** What a transfer needs. The same part twice is twice its bytes. */
class route {
public:
    void add(unsigned card, shared_part part)
    {
        parts_[count_++] = static_cast<uint16_t>(
            card * static_cast<unsigned>(shared_part::count) +
            static_cast<unsigned>(part));
    }
    [[nodiscard]] std::span<const uint16_t> parts() const
    {
        return std::span(parts_).first(count_);
    }
    bool operator==(const route &) const = default;

private:
    std::array<uint16_t, 14> parts_{};
    uint16_t count_ = 0;
};

/** Bytes of one job that follow each other in one queue. */
struct flow {
    uint64_t job;     /**< its sequence number */
    model_time start; /**< not before */
    model_time end;   /**< 0 while it is under way */
    double left;      /**< bytes */
    uint16_t owner;   /**< process */
    uint16_t card;    /**< whose queue it is */
    uint16_t queue;
    route needs;
};

class traffic {
public:
    /** Go on to a time. Earlier times than the last one change nothing. */
    void advance(const timing_figures &speed, model_time to);

    /** Add one behind what its queue has. @return false without room. */
    [[nodiscard]] bool add(const flow &added);

    /**
     * When the flows of a job have ended, or will at the earliest: if from now
     * on nothing else was under way. Who waits until then and asks again is
     * never late, and is soon there, whatever begins or ends meanwhile.
     */
    [[nodiscard]] model_time earliest_end(const timing_figures &speed,
                                          unsigned card, uint64_t job) const;

    /** Forget flows, ended or not; what they shared is for the others. */
    template <typename Condition>
    void erase_if(Condition &&condition)
    {
        uint32_t kept = 0;
        for (uint32_t i = 0; i < count_; ++i) {
            if (!condition(flows_[i])) {
                flows_[kept++] = flows_[i];
            }
        }
        count_ = kept;
    }

    [[nodiscard]] std::span<const flow> flows() const
    {
        return {flows_.data(), count_};
    }

private:
    static constexpr size_t max_flows = 1024;

    using indices = std::array<uint16_t, max_flows>;
    using rates   = std::array<double, max_flows>;

    size_t find_moving(indices &moving, model_time &next_start) const;
    void share(const timing_figures &speed, std::span<const uint16_t> moving,
               rates &by_flow) const;

    model_time now_ = 0;
    uint32_t count_ = 0;
    std::array<flow, max_flows> flows_; /* by time of arrival */
};

} // namespace gaudi::emu
