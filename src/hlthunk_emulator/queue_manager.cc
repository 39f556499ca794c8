/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/queue_manager.h"

#include "hlthunk_emulator/copy_engine.h"
#include "hlthunk_emulator/settings.h"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>

namespace gaudi::emu {

namespace {

/* A job whose copies are this short runs inside its submission. */
constexpr uint64_t inline_bytes = 16384;
/* Copied at a time otherwise: long enough to hide the bookkeeping, short enough
 * that a poll stays a poll. */
constexpr uint64_t piece_bytes = 262144;

} // namespace

queue_manager::queue_manager(const mmu &table, hlthunk_emu_counters &counters,
                             completed_jobs &completed, const char *name,
                             unsigned card, std::unique_ptr<job_watch> watch)
    : table_(table), counters_(counters), name_(name), card_(card),
      jobs_(counters, completed, name, std::move(watch)), watch_(jobs_.watch()),
      packets_(table, counters), queues_(queue_count + internal_queue_count)
{}

/* --- copies ----------------------------------------------------------------*/

/* Get a part to where bytes can be copied. @return false at its end. */
bool queue_manager::advance(part &current)
{
    while (jobs_.slot_of(current.seq).status != shim::cs_aborted) {
        if (current.copy.size > 0) {
            return true;
        }
        if (current.commands.is_read()) {
            return false;
        }
        if (packets_.read_on(current.commands, current.queue, current.copy) ==
            packet_reader::found::bad_packet) {
            fault(current, "%s", packets_.complaint());
        }
    }
    return false;
}

/* Translate the next piece of the copy. */
bool queue_manager::prepare(part &current, uint64_t max_bytes, piece &work)
{
    translation from;
    translation to;
    copy_request &copy  = current.copy;
    const uint64_t size = std::min(copy.size, max_bytes);

    if (!table_.translate(mmu::port::source, copy.src, size, from)) {
        fault(current, "LIN_DMA source %#lx is not mapped", copy.src);
        return false;
    }
    if (!table_.translate(mmu::port::target, copy.dst, size, to)) {
        fault(current, "LIN_DMA destination %#lx is not mapped", copy.dst);
        return false;
    }
    if (((from.of.kind != memory_kind::device) ||
         (to.of.kind != memory_kind::device)) &&
        (engine_of(current.queue) == engine_kind::edma)) {
        fault(current, "an internal engine cannot reach host memory, nor what "
                       "is imported");
        return false;
    }
    if ((watch_ != nullptr) && !current.watched) {
        watch_copy(current, from, to);
    }
    const uint64_t bytes = std::min(from.size, to.size);
    work                 = {to.address, from.address, bytes, to.of, from.of};
    copy = {copy.dst + bytes, copy.src + bytes, copy.size - bytes};
    return true;
}

/* An engine begins with a packet. */
void queue_manager::watch_copy(part &current, const translation &from,
                               const translation &to)
{
    const auto until = watch_->begin(current.seq, {.queue = current.queue,
                                                   .dst   = current.copy.dst,
                                                   .src   = current.copy.src,
                                                   .bytes = current.copy.size,
                                                   .to    = to.of,
                                                   .from  = from.of});
    current.watched  = true;
    if (until.has_value()) {
        hold(current.seq, *until);
    }
}

/* A copy has ended, or its part has, which leaves it as it is. */
void queue_manager::end_watched_copy(part &current)
{
    if (current.watched) {
        watch_->end(current.seq, current.copy.size);
        current.watched = false;
    }
}

/* Bytes of a part are where they belong, or cannot be had. The latter is no
 * error of the card, which would have kept the pages. */
void queue_manager::count_copy(part &current, const piece &work, bool copied)
{
    if (!copied && (jobs_.slot_of(current.seq).status != shim::cs_aborted)) {
        log("%s: job %lu aborted: the program has unmapped host memory that "
            "it copies",
            name_, current.seq);
        jobs_.abort(jobs_.slot_of(current.seq));
        jobs_.waiting().wake();
    }
    const bool from_host = (work.from.kind == memory_kind::host);
    const bool to_host   = (work.to.kind == memory_kind::host);
    uint64_t &counter    = from_host
                               ? (to_host ? counters_.host_to_host_bytes
                                          : counters_.host_to_device_bytes)
                               : (to_host ? counters_.device_to_host_bytes
                                          : counters_.device_to_device_bytes);
    counter += work.size;
    if (current.copy.size == 0) {
        end_watched_copy(current);
    }
}

/* --- who makes them ------------------------------------------------------- */

/* Run a job of one command buffer that has its queue to itself, without ever
 * entering it there. False when it is not short: then it has to be queued as it
 * is now. */
bool queue_manager::run_unqueued(part &only)
{
    piece work;
    uint64_t budget = inline_bytes;

    if (paused_) {
        return false;
    }
    while (advance(only)) {
        if (only.copy.size > budget) {
            return false;
        }
        if (prepare(only, budget, work)) {
            budget -= work.size;
            count_copy(only, work,
                       copy_if_there(work.dst, work.src, work.size));
        }
    }
    end_part(only);
    return true;
}

/* Find a piece to copy. `whole`: only a copy that fits into max_bytes. */
queue_manager::part *queue_manager::find_piece(uint64_t max_bytes, bool whole,
                                               piece &work)
{
    for (size_t i = 0;
         !paused_ && !is_copying_ && !is_over() && (i < active_.size());) {
        const uint32_t queue = active_[i];
        part &front          = queues_[queue].front();
        if (!advance(front)) {
            end_first_part(queue); /* active_[i] may be another queue now */
        } else if (whole && (front.copy.size > max_bytes)) {
            ++i;
        } else if (prepare(front, max_bytes, work)) {
            /* The other queues' turn next. */
            const auto turn = active_.begin() + static_cast<ptrdiff_t>(i);
            std::rotate(turn, turn + 1, active_.end());
            return &front;
        } /* else aborted: ends in the next round */
    }
    return nullptr;
}

void queue_manager::finish(part &current, const piece &work, bool copied)
{
    count_copy(current, work, copied);
    if (!advance(current)) {
        end_first_part(current.queue);
    }
}

/* What is so short that it is part of its submission. */
void queue_manager::run_inline()
{
    piece work;
    uint64_t budget = inline_bytes;

    while (part *current = find_piece(budget, true, work)) {
        budget -= work.size;
        finish(*current, work, copy_if_there(work.dst, work.src, work.size));
    }
}

bool queue_manager::run_piece(card_lock &lock)
{
    piece work;
    part *const current = find_piece(piece_bytes, false, work);
    if (current == nullptr) {
        return false;
    }
    bool copied = false;
    if (work.size <= inline_bytes) {
        copied = copy_if_there(work.dst, work.src, work.size);
    } else {
        is_copying_ = true;
        lock.unlock();
        copied = copy_if_there(work.dst, work.src, work.size);
        lock.lock();
        is_copying_ = false;
        jobs_.waiting().wake();
    }
    finish(*current, work, copied);
    return true;
}

void queue_manager::pause(bool paused)
{
    paused_ = paused;
    jobs_.waiting().wake();
}

/* --- the end of parts and jobs -------------------------------------------- */

void queue_manager::end_part(part &ended)
{
    end_watched_copy(ended);
    if (ended.commands.unfenced &&
        (engine_of(ended.queue) == engine_kind::edma)) {
        ++counters_.unfenced_buffers;
    }
    jobs_.end_part(jobs_.slot_of(ended.seq));
}

void queue_manager::end_first_part(uint32_t queue)
{
    auto &parts = queues_[queue];
    part ended  = parts.front();

    parts.pop_front();
    if (parts.empty()) {
        active_.erase(std::find(active_.begin(), active_.end(), queue));
    }
    end_part(ended);
}

void queue_manager::fault(const part &current, const char *format, ...)
{
    const command_buffer_state &state = current.commands;
    const bool lower                  = state.lower.size > 0;
    const packet_stream &stream       = lower ? state.lower : state.upper;
    char text[256];
    va_list arguments;

    va_start(arguments, format);
    std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    log("%s: job %lu aborted: queue %u, %scommand buffer %#lx of %u bytes, "
        "before offset %u: %s",
        name_, current.seq, current.queue, lower ? "lower " : "", stream.va,
        stream.size, stream.next, text);
    jobs_.abort(jobs_.slot_of(current.seq));
    fault_effect met = faults::meet(faulty_call::packet, card_);
    if (met.kind == fault_kind::none) {
        met.kind = fault_kind::reset;
    }
    if (met.kind != fault_kind::abort) {
        break_down(met);
    } else {
        jobs_.waiting().wake(); /* it may be held, see end_holds() */
    }
}

void queue_manager::end_unfinished(card_lock &lock, uint64_t seq, int error)
{
    if (!is_over() && (error != -ETIMEDOUT) && (error != -EIO)) {
        return;
    }
    if (jobs_.is_under_way(seq)) {
        jobs_.abort(jobs_.slot_of(seq));
    }
    quiesce(lock);
}

void queue_manager::quiesce(card_lock &lock)
{
    while (is_copying_) {
        jobs_.sleep(lock, clock::time_point::max());
    }
}

void queue_manager::stop(card_lock &lock)
{
    jobs_.waiting().stop(lock, [this] { return !is_copying_; });
    if (watch_ == nullptr) {
        return;
    }
    for (auto &parts : queues_) {
        for (part &left : parts) {
            end_watched_copy(left);
        }
    }
    jobs_.abandon();
}

} // namespace gaudi::emu
