/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/copy_route.h"

namespace gaudi::emu {

namespace {

/* Collects the parts that a copy passes. */
class passage {
public:
    passage(const timing_figures &speed, unsigned card)
        : cards_per_uplink_(static_cast<unsigned>(speed.cards_per_uplink)),
          card_(card)
    {}

    void add_source(const memory_side &side)
    {
        using enum shared_part;
        if (side.kind == memory_kind::imported) {
            needs_.add(card_, peer_reads);
        }
        add_side(side, to_card, from_card);
    }

    void add_target(const memory_side &side)
    {
        using enum shared_part;
        add_side(side, from_card, to_card);
    }

    void add_engine(uint32_t queue)
    {
        const auto engine = [&](shared_part first, uint32_t number) {
            needs_.add(card_, static_cast<shared_part>(
                                  static_cast<uint32_t>(first) + number));
        };
        switch (engine_of(queue)) {
        case engine_kind::pdma:
            needs_.add(card_, shared_part::pdma_all);
            engine(shared_part::first_pdma,
                   (queue >= internal_queue)
                       ? (queue - internal_queue) % 2
                       : queue / shim::streams_per_engine);
            break;
        case engine_kind::edma:
            needs_.add(card_, shared_part::edma_all);
            engine(shared_part::first_edma, edma_of(queue));
            break;
        case engine_kind::none:
            break;
        }
    }

    [[nodiscard]] const route &needs() const { return needs_; }

private:
    /* What is imported goes through both cards' links, below the switches.
     * @param here,there  Of the card that copies, and of the other one, in the
     *                    direction of the bytes. */
    void add_side(const memory_side &side, shared_part here, shared_part there)
    {
        const bool is_peer = (side.kind == memory_kind::imported);
        if (side.kind != memory_kind::host) {
            needs_.add(is_peer ? side.card : card_, shared_part::hbm);
        }
        if (side.kind == memory_kind::device) {
            return;
        }
        needs_.add(card_, here);
        if (is_peer) {
            needs_.add(side.card, there);
        } else if (cards_per_uplink_ > 1) {
            /* It has the number of the first card below. */
            needs_.add(card_ - card_ % cards_per_uplink_,
                       (here == shared_part::to_card)
                           ? shared_part::to_cards
                           : shared_part::from_cards);
        }
    }

    const unsigned cards_per_uplink_;
    const unsigned card_;
    route needs_;
};

} // namespace

route route_of(const timing_figures &speed, unsigned card,
               const engine_copy &copy)
{
    passage passed(speed, card);
    passed.add_source(copy.from);
    passed.add_target(copy.to);
    passed.add_engine(copy.queue);
    return passed.needs();
}

} // namespace gaudi::emu
