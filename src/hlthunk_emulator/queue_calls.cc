/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs of the queues of a card: beginning them, and waiting for them. */
#include "hlthunk_emulator/queue_manager.h"

#include <algorithm>
#include <cerrno>

namespace gaudi::emu {

namespace {

/* Longest time for which the kernel's timeout argument is honoured: the driver
 * keeps 32 bits of microseconds. */
constexpr uint64_t max_timeout_us = UINT32_MAX;

/* What the driver answers of a job that has ended. */
int answer_for(uint32_t status)
{
    switch (status) {
    case shim::cs_timed_out:
        return -ETIMEDOUT;
    case shim::cs_aborted:
        return -EIO;
    default:
        return 0;
    }
}

} // namespace

int queue_manager::wait_for_room(card_lock &lock)
{
    jobs_.end_holds();
    for (; jobs_.is_full() && !is_over(); jobs_.end_holds()) {
        /* Looking for work may itself have ended the job in the way. */
        if (!run_piece(lock) && jobs_.is_full() && !is_over()) {
            jobs_.sleep(lock, clock::time_point::max());
        }
    }
    if (is_over()) {
        return jobs_.waiting().are_stopped() ? -ENODEV : -EBUSY;
    }
    return 0;
}

/* Put the only part of a job into its queue, or run it right away. */
void queue_manager::run_or_enter(part &only)
{
    if (!queues_[only.queue].empty() || !run_unqueued(only)) {
        enter(only);
        run_inline();
    }
}

void queue_manager::enter(const part &added)
{
    auto &queue = queues_[added.queue];
    if (queue.empty()) {
        active_.push_back(added.queue);
    }
    queue.push_back(added);
    queue.back().commands.queued = true;
}

int queue_manager::copy(const copy_request &wanted, unsigned engine,
                        uint64_t &seq_p, const fault_effect *fate)
{
    if (engine >= internal_queue_count) {
        return -EINVAL;
    }
    if (is_full()) {
        return -EAGAIN;
    }
    seq_p = take_number();
    part only{.seq = seq_p, .queue = internal_queue + engine, .copy = wanted};
    jobs_.begin(seq_p, only.queue, 1, fate);
    run_or_enter(only);
    return 0;
}

void queue_manager::begin(uint64_t seq, const hl_cs_chunk *chunks,
                          uint32_t count, const fault_effect *fate)
{
    const auto part_of = [seq](const hl_cs_chunk &chunk) {
        return part{.seq      = seq,
                    .queue    = chunk.queue_index,
                    .commands = {.upper = {chunk.cb_handle, chunk.cb_size}}};
    };
    jobs_.begin(seq, chunks->queue_index, count, fate);
    if (count == 1) {
        part only = part_of(*chunks);
        run_or_enter(only);
        return;
    }
    for (uint32_t i = 0; i < count; ++i) {
        enter(part_of(chunks[i]));
    }
    run_inline();
}

int queue_manager::wait(card_lock &lock, uint64_t seq, uint64_t timeout_us,
                        driver::wait_out &out)
{
    out.status = shim::cs_completed;
    if (jobs_.is_future(seq)) {
        return -EINVAL;
    }
    if (seq == 0) {
        return 0;
    }

    clock::time_point deadline;
    clock::time_point awake{};
    for (bool first = true;; first = false) {
        jobs_.end_holds();
        const job &asked = jobs_.slot_of(seq);
        if (asked.seq != seq) {
            out.flags = driver::wait_out_gone;
            return 0; /* how it ended is not known any more */
        }
        if (asked.status == shim::cs_timed_out) {
            out.status = asked.status;
            return answer_for(out.status);
        }
        if (asked.parts == 0) {
            out.status = asked.status;
            while ((clock::time_point{} < awake) &&
                   !jobs_.waiting().are_stopped() && (clock::now() < awake)) {
                jobs_.sleep(lock, awake);
            }
            return answer_for(out.status);
        }
        if (is_over()) {
            out.status = shim::cs_aborted;
            return -EIO;
        }
        if (first) {
            deadline = (timeout_us == 0)
                           ? clock::time_point::min()
                           : clock::now() + std::chrono::microseconds(std::min(
                                                timeout_us, max_timeout_us));
        } else if ((timeout_us == 0) || (clock::now() >= deadline)) {
            out.status = shim::cs_busy;
            return 0;
        }
        /* Looking for work may itself have ended the job. */
        if (!run_piece(lock) && (timeout_us != 0) && !is_over() &&
            jobs_.is_under_way(seq)) {
            awake = jobs_.awake_after(seq);
            jobs_.sleep(lock, deadline);
        }
    }
}

} // namespace gaudi::emu
