/* What copies of a card need of the box, and when the timing model has them
 * end. */
#include "hlthunk_emulator/box_traffic.h"
#include "hlthunk_emulator/queue_manager.h"

#include <algorithm>
#include <array>

namespace gaudi::emu {

namespace {

using clock_type = std::chrono::steady_clock;

constexpr unsigned streams_of_engine = 4;
/* The first queues of two EDMA engines each, see engine_of. */
constexpr std::array<uint32_t, 4> edma_pairs = {8, 48, 84, 120};

shared_part engine_part(shared_part first, uint32_t number)
{
    return static_cast<shared_part>(static_cast<unsigned>(first) + number);
}

void add_engine(route &needs, unsigned card, uint32_t queue)
{
    switch (engine_of(queue)) {
    case engine_kind::pdma:
        needs.add(card, shared_part::pdma_all);
        needs.add(card, engine_part(shared_part::first_pdma,
                                    (queue >= internal_queue)
                                        ? (queue - internal_queue) % 2
                                        : queue / streams_of_engine));
        break;
    case engine_kind::edma:
        needs.add(card, shared_part::edma_all);
        for (uint32_t pair = 0; pair < edma_pairs.size(); ++pair) {
            if (queue - edma_pairs[pair] < 2 * streams_of_engine) {
                needs.add(card,
                          engine_part(shared_part::first_edma,
                                      2 * pair + (queue - edma_pairs[pair]) /
                                                     streams_of_engine));
            }
        }
        break;
    case engine_kind::none:
        break;
    }
}

/* One side of a copy. What is imported goes through both cards' links.
 * @param own,peer  The links of the card that copies, and of the other one, in
 *                  the direction of the bytes. */
void add_side(route &needs, unsigned card, const translation &side,
              shared_part own, shared_part peer)
{
    switch (side.kind) {
    case memory_kind::device:
        needs.add(card, shared_part::hbm);
        break;
    case memory_kind::imported:
        needs.add(side.card, shared_part::hbm);
        needs.add(side.card, peer);
        [[fallthrough]];
    case memory_kind::host:
        needs.add(card, own);
        break;
    }
}

clock_type::duration microseconds(double count)
{
    return std::chrono::duration_cast<clock_type::duration>(
        std::chrono::duration<double, std::micro>(count));
}

} // namespace

/* The engine begins with a packet. */
void queue_manager::model_copy(part &current, const translation &from,
                               const translation &to)
{
    box_traffic &model = *timing_.model;
    flow added{};
    added.job    = current.seq;
    added.copies = 1;
    added.start  = model_time_of(slot_of(current.seq).submitted +
                                 microseconds(model.speed().doorbell));
    added.left   = static_cast<double>(current.unclaimed);
    added.card   = static_cast<uint16_t>(timing_.card);
    added.queue  = static_cast<uint16_t>(current.queue);
    add_side(added.needs, timing_.card, from, shared_part::to_card,
             shared_part::from_card);
    add_side(added.needs, timing_.card, to, shared_part::from_card,
             shared_part::to_card);
    add_engine(added.needs, timing_.card, current.queue);
    model.add(added);
    current.modelled = true;
    hold(current.seq, clock::time_point(std::chrono::nanoseconds(
                          model.earliest_end(timing_.card, current.seq))));
}

/* Whether the model has a job end, too; else it is held until it may. */
bool queue_manager::is_over_in_model(job &held, clock::time_point now)
{
    if (timing_.model == nullptr) {
        return true;
    }
    const clock::time_point end{std::chrono::nanoseconds(
        timing_.model->earliest_end(timing_.card, held.seq))};
    held.held_until = std::max(held.held_until, end);
    return end <= now;
}

/* When a thread runs again that sleeps until a job ends. */
queue_manager::clock::time_point
queue_manager::awake_after(const job &slept_for) const
{
    const clock::time_point end = slept_for.held_until;
    return ((timing_.model == nullptr) || (end == clock::time_point{}) ||
            (end == clock::time_point::max()))
               ? clock::time_point{}
               : end + microseconds(timing_.model->speed().wakeup);
}

} // namespace gaudi::emu
