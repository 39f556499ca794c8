/* What the queues of a card tell the trace. All of it does nothing without
 * one. */
#include "hlthunk_emulator/box_traffic.h"
#include "hlthunk_emulator/queue_manager.h"

namespace gaudi::emu {

namespace {

const char *text_of(uint32_t status)
{
    switch (status) {
    case shim::cs_completed:
        return "completed";
    case shim::cs_timed_out:
        return "timed out";
    default:
        return "aborted";
    }
}

} // namespace

void queue_manager::trace_begin(part &current, const translation &from,
                                const translation &to)
{
    trace_->begin(current.seq,
                  {.queue     = current.queue,
                   .dst       = current.dst,
                   .src       = current.src,
                   .bytes     = current.unclaimed,
                   .to        = to.kind,
                   .from      = from.kind,
                   .to_card   = to.card,
                   .from_card = from.card},
                  model_time_of(clock::now()));
    current.traced = true;
}

/* A copy has ended, or its part has, which leaves it as it is. */
void queue_manager::trace_end(part &current)
{
    if (current.traced) {
        trace_->end(current.seq, current.queue, current.unclaimed,
                    model_time_of(clock::now()));
        current.traced = false;
    }
}

void queue_manager::trace_times(uint64_t seq)
{
    if (trace_ != nullptr) {
        trace_->set_times(seq, timing_.model->flows_of(timing_.card, seq));
    }
}

void queue_manager::trace_end_of_job(const job &ended)
{
    if (trace_ != nullptr) {
        trace_->end_job(ended.seq, text_of(ended.status),
                        model_time_of(ended.submitted));
    }
}

void queue_manager::trace_fault(const part &current, const char *why)
{
    if (trace_ != nullptr) {
        trace_->tell_fault(current.seq, current.queue, why,
                           model_time_of(clock::now()));
    }
}

/* The card is closed. */
void queue_manager::trace_what_is_left()
{
    if (trace_ == nullptr) {
        return;
    }
    for (auto &parts : queues_) {
        for (part &left : parts) {
            trace_end(left);
        }
    }
    for (const job &left : jobs_) {
        if (left.parts == 0) {
            continue;
        }
        if (timing_.model != nullptr) {
            trace_times(left.seq);
        }
        trace_->end_job(left.seq,
                        (left.status == shim::cs_completed)
                            ? "card closed"
                            : text_of(left.status),
                        model_time_of(left.submitted));
    }
    trace_->flush();
}

} // namespace gaudi::emu
