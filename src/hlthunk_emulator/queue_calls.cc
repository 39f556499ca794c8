/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls that submit jobs to the queues of a card and wait for them: what
 * the driver checks, and answers. */
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

int queue_manager::validate(const hlthunk_cs_in &in) const
{
    const auto *chunks = static_cast<const hl_cs_chunk *>(in.chunks_execute);

    if (!settings_.kind->user_queues) {
        log("%s: %s has no queues for programs", name_,
            settings_.kind->device_type.c_str());
        return -EINVAL;
    }
    for (uint32_t i = 0; i < in.num_chunks_execute; ++i) {
        const hl_cs_chunk &chunk = chunks[i];
        if (!is_user_queue(chunk.queue_index, settings_.edma_mask)) {
            log("%s: chunk %u names queue %u, which programs may not use",
                name_, i, chunk.queue_index);
            return -EINVAL;
        }
        /* The other flags, and the padding, are not looked at. */
        if ((chunk.cs_chunk_flags & shim::chunk_flag_user_cb) == 0) {
            log("%s: chunk %u has flags %#x: the queues of Gaudi2 take "
                "command buffers by device address (flag 1) only",
                name_, i, chunk.cs_chunk_flags);
            return -EINVAL;
        }
        if (!table_.may_hold_commands(chunk.cb_handle, chunk.cb_size)) {
            log("%s: chunk %u: command buffer %#lx of %u bytes is in no range "
                "that may hold one",
                name_, i, chunk.cb_handle, chunk.cb_size);
            return -EFAULT;
        }
    }
    return 0;
}

/* What of the flags matters here: the driver ignores those that it does not
 * know, and restore chunks where nothing forces them. */
int queue_manager::look_at_flags(uint32_t flags) const
{
    constexpr uint32_t staged = 0x40 | 0x80 | 0x100;
    /* Restore chunks, signals and what waits for them, reserved signals, and
     * commands to engines. */
    constexpr uint32_t not_emulated = 0x1 | 0x2 | 0x4 | 0x8 | 0x800 | 0x1000 |
                                      0x2000 | 0x4000 | 0x8000 | 0x10000;
    if ((flags & staged) != 0) {
        log("%s: staged submissions are for Gaudi", name_);
        return -EPERM;
    }
    if ((flags & not_emulated) != 0) {
        log("%s: submission flags %#x are not emulated", name_,
            flags & not_emulated);
        return -EINVAL;
    }
    return 0;
}

int queue_manager::find_slot(card_lock &lock)
{
    jobs_.end_holds();
    return (jobs_.is_full() || is_over()) ? wait_for_slot(lock) : 0;
}

int queue_manager::wait_for_slot(card_lock &lock)
{
    /* The library retries the driver's "again" without end. */
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

int queue_manager::copy(card_lock &lock, const copy_request &wanted,
                        unsigned engine, uint64_t &seq_p,
                        const fault_effect *fate)
{
    if (engine >= internal_queue_count) {
        return -EINVAL;
    }
    const int ret = find_slot(lock);
    if (ret != 0) {
        return ret;
    }
    seq_p = jobs_.take_number();
    part only{.seq = seq_p, .queue = internal_queue + engine, .copy = wanted};
    jobs_.begin(seq_p, only.queue, 1, fate);
    run_or_enter(only);
    return 0;
}

int queue_manager::submit(card_lock &lock, const hlthunk_cs_in &in,
                          uint64_t &seq_p, const fault_effect *fate)
{
    int ret = (in.flags == 0) ? 0 : look_at_flags(in.flags);
    if (ret != 0) {
        return ret;
    }
    if ((in.num_chunks_execute == 0) ||
        (in.num_chunks_execute > shim::max_chunks_per_cs)) {
        log("%s: a submission has 1 to %u chunks, not %u", name_,
            shim::max_chunks_per_cs, in.num_chunks_execute);
        return -EINVAL;
    }
    if (in.chunks_execute == nullptr) {
        return -EFAULT;
    }
    ret = find_slot(lock);
    if (ret != 0) {
        return ret;
    }
    /* A rejected submission has its number all the same. */
    const uint64_t seq = jobs_.take_number();
    ret                = validate(in);
    if (ret != 0) {
        return ret;
    }

    const auto *chunks   = static_cast<const hl_cs_chunk *>(in.chunks_execute);
    const uint32_t count = in.num_chunks_execute;
    const auto part_of   = [seq](const hl_cs_chunk &chunk) {
        return part{.seq      = seq,
                      .queue    = chunk.queue_index,
                      .commands = {.upper = {chunk.cb_handle, chunk.cb_size}}};
    };
    jobs_.begin(seq, chunks->queue_index, count, fate);
    seq_p = seq;
    if (count == 1) {
        part only = part_of(*chunks);
        run_or_enter(only);
        return 0;
    }
    for (uint32_t i = 0; i < count; ++i) {
        enter(part_of(chunks[i]));
    }
    run_inline();
    return 0;
}

int queue_manager::wait(card_lock &lock, uint64_t seq, uint64_t timeout_us,
                        uint32_t &status_p)
{
    status_p = shim::cs_completed;
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
            return 0; /* how it ended is not known any more */
        }
        if (asked.status == shim::cs_timed_out) {
            status_p = asked.status;
            return answer_for(status_p);
        }
        if (asked.parts == 0) {
            status_p = asked.status;
            while ((clock::time_point{} < awake) &&
                   !jobs_.waiting().are_stopped() && (clock::now() < awake)) {
                jobs_.sleep(lock, awake);
            }
            return answer_for(status_p);
        }
        if (is_over()) {
            status_p = shim::cs_aborted;
            return -EIO;
        }
        if (first) {
            deadline = (timeout_us == 0)
                           ? clock::time_point::min()
                           : clock::now() + std::chrono::microseconds(std::min(
                                                timeout_us, max_timeout_us));
        } else if ((timeout_us == 0) || (clock::now() >= deadline)) {
            status_p = shim::cs_busy;
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
