/* How jobs get into the queues of a card, and what the driver refuses. */
#include "hlthunk_emulator/queue_manager.h"
#include "hlthunk_emulator/settings.h"

#include <cerrno>

namespace gaudi::emu {

int queue_manager::validate(const hlthunk_cs_in &in) const
{
    const auto *chunks = static_cast<const hl_cs_chunk *>(in.chunks_execute);

    if (!get_settings().kind->user_queues) {
        log("%s: %s has no queues for programs", name_,
            get_settings().kind->device_type);
        return -EINVAL;
    }
    for (uint32_t i = 0; i < in.num_chunks_execute; ++i) {
        const hl_cs_chunk &chunk = chunks[i];
        if (!is_user_queue(chunk.queue_index, get_settings().edma_mask)) {
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
        if (!mmu::may_hold_commands(chunk.cb_handle, chunk.cb_size)) {
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

/* Wait until the slot of the next job is free. */
int queue_manager::take_number(card_lock &lock)
{
    /* The library retries the driver's "again" without end. */
    for (end_holds(); (slot_of(next_seq_).parts > 0) && !is_over();
         end_holds()) {
        /* Looking for work may itself have ended the job in the way. */
        if (!run_slice(lock) && (slot_of(next_seq_).parts > 0) && !is_over()) {
            sleep(lock, clock::time_point::max());
        }
    }
    if (is_over()) {
        return stopped_ ? -ENODEV : -EBUSY;
    }
    slot_of(next_seq_) = {.seq = next_seq_};
    if ((timing_.model != nullptr) || (trace_ != nullptr)) {
        slot_of(next_seq_).submitted = clock::now();
    }
    ++next_seq_;
    return 0;
}

/* Put a part into its queue. `alone`: its job has no other; true when that has
 * ended right away. */
bool queue_manager::enter(part added, bool alone)
{
    auto &queue = queues_[added.queue];
    if (queue.empty()) {
        if (alone && run_unqueued(added)) {
            return true;
        }
        active_.push_back(added.queue);
    }
    queue.push_back(added);
    return false;
}

void queue_manager::begin_job(uint64_t seq, uint32_t parts,
                              const fault_effect &fate)
{
    job &begun  = slot_of(seq);
    begun.parts = parts;
    begun.fate  = fate;
    ++counters_.jobs;
    if (fate.kind == fault_kind::delay) {
        hold(seq, clock::now() + fate.time);
    } else if (fate.kind == fault_kind::lose) {
        begun.lost_until = clock::now() + fate.time;
        hold(seq, begun.lost_until);
    }
}

int queue_manager::copy(card_lock &lock, uint64_t dst, uint64_t src,
                        uint64_t size, unsigned engine, uint64_t &seq_p,
                        const fault_effect &fate)
{
    if (engine >= internal_queue_count) {
        return -EINVAL;
    }
    const int ret = take_number(lock);
    if (ret != 0) {
        return ret;
    }
    part added{};
    added.seq   = next_seq_ - 1;
    added.queue = internal_queue + engine;
    begin_copy(added, dst, src, size);
    begin_job(added.seq, 1, fate);
    seq_p = added.seq;
    if (!enter(added, true)) {
        run_inline();
    }
    return 0;
}

int queue_manager::submit(card_lock &lock, const hlthunk_cs_in &in,
                          uint64_t &seq_p, const fault_effect &fate)
{
    const int refusal = look_at_flags(in.flags);
    if (refusal != 0) {
        return refusal;
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

    int ret = take_number(lock);
    if (ret != 0) {
        return ret;
    }
    /* A rejected submission has its number all the same. */
    const uint64_t seq = next_seq_ - 1;
    ret                = validate(in);
    if (ret != 0) {
        return ret;
    }

    const auto *chunks = static_cast<const hl_cs_chunk *>(in.chunks_execute);
    begin_job(seq, in.num_chunks_execute, fate);
    seq_p = seq;
    for (uint32_t i = 0; i < in.num_chunks_execute; ++i) {
        part added{};
        added.seq   = seq;
        added.queue = chunks[i].queue_index;
        added.upper = {chunks[i].cb_handle, chunks[i].cb_size, 0};
        if (enter(added, in.num_chunks_execute == 1)) {
            return 0;
        }
    }
    run_inline();
    return 0;
}

} // namespace gaudi::emu
