#include "hlthunk_emulator/job_watch.h"

#include "hlthunk_emulator/settings.h"

namespace gaudi::emu {

namespace {

using clock = job_watch::clock;

clock::duration microseconds(double count)
{
    return std::chrono::duration_cast<clock::duration>(
        std::chrono::duration<double, std::micro>(count));
}

model_time now()
{
    return model_time_of(clock::now());
}

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

void add_engine(route &needs, unsigned card, uint32_t queue)
{
    const auto part = [](shared_part first, uint32_t number) {
        return static_cast<shared_part>(static_cast<uint32_t>(first) + number);
    };
    switch (engine_of(queue)) {
    case engine_kind::pdma:
        needs.add(card, shared_part::pdma_all);
        needs.add(card, part(shared_part::first_pdma,
                             (queue >= internal_queue)
                                 ? (queue - internal_queue) % 2
                                 : queue / shim::streams_per_engine));
        break;
    case engine_kind::edma:
        needs.add(card, shared_part::edma_all);
        needs.add(card, part(shared_part::first_edma, edma_of(queue)));
        break;
    case engine_kind::none:
        break;
    }
}

/* One side of a copy. What is imported goes through both cards' links.
 * @param own,peer  The links of the card that copies, and of the other one, in
 *                  the direction of the bytes. */
void add_side(route &needs, unsigned card, const memory_side &side,
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

} // namespace

job_watch::job_watch(box_traffic *model, trace_file *trace, unsigned card)
    : model_(model), card_(card)
{
    if (trace != nullptr) {
        trace_.emplace(*trace, card);
    }
}

std::unique_ptr<job_watch> job_watch::create(unsigned card)
{
    box_traffic *const model = box_traffic::instance();
    trace_file *const trace  = trace_file::instance(get_settings().trace);
    if ((model == nullptr) && (trace == nullptr)) {
        return nullptr;
    }
    return std::unique_ptr<job_watch>(new job_watch(model, trace, card));
}

std::optional<clock::time_point> job_watch::begin(uint64_t seq,
                                                  const engine_copy &copy)
{
    std::optional<clock::time_point> end;
    if (model_ != nullptr) {
        flow added{};
        added.job    = seq;
        added.copies = 1;
        added.start  = model_time_of(submitted_of(seq) +
                                     microseconds(model_->speed().doorbell));
        added.left   = static_cast<double>(copy.bytes);
        added.card   = static_cast<uint16_t>(card_);
        added.queue  = static_cast<uint16_t>(copy.queue);
        add_side(added.needs, card_, copy.from, shared_part::to_card,
                 shared_part::from_card);
        add_side(added.needs, card_, copy.to, shared_part::from_card,
                 shared_part::to_card);
        add_engine(added.needs, card_, copy.queue);
        model_->add(added);
        end = end_of(seq);
    }
    if (trace_) {
        trace_->begin(seq, copy, now());
    }
    return end;
}

void job_watch::end(uint64_t seq, uint32_t queue, uint64_t left)
{
    if (trace_) {
        trace_->end(seq, queue, left, now());
    }
}

clock::time_point job_watch::end_of(uint64_t seq) const
{
    return (model_ == nullptr) ? clock::time_point{}
                               : clock::time_point(std::chrono::nanoseconds(
                                     model_->earliest_end(card_, seq)));
}

clock::time_point job_watch::awake_after(clock::time_point end) const
{
    return ((model_ == nullptr) || (end == clock::time_point::max()))
               ? clock::time_point{}
               : end + microseconds(model_->speed().wakeup);
}

void job_watch::trace_times(uint64_t seq)
{
    if (trace_ && (model_ != nullptr)) {
        trace_->set_times(seq, model_->flows_of(card_, seq));
    }
}

void job_watch::leave_model(uint64_t seq)
{
    trace_times(seq);
    if (model_ != nullptr) {
        model_->forget(card_, seq);
    }
}

void job_watch::trace_end(uint64_t seq, const char *how)
{
    if (trace_) {
        trace_->end_job(seq, how, model_time_of(submitted_of(seq)));
    }
}

void job_watch::end_job(uint64_t seq, uint32_t status)
{
    trace_end(seq, text_of(status));
}

void job_watch::abandon_job(uint64_t seq, uint32_t status)
{
    trace_times(seq);
    trace_end(seq,
              (status == shim::cs_completed) ? "card closed" : text_of(status));
}

void job_watch::tell_fault(uint64_t seq, uint32_t queue, const char *why)
{
    if (trace_) {
        trace_->tell_fault(seq, queue, why, now());
    }
}

void job_watch::flush()
{
    if (trace_) {
        trace_->flush();
    }
}

} // namespace gaudi::emu
