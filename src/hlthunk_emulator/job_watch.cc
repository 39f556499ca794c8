/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/job_watch.h"

#include "hlthunk_emulator/settings.h"

#include <algorithm>

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

std::string name_of_stream(const char *engine, uint32_t number, uint32_t stream)
{
    std::string name = engine + std::to_string(number);
    return (stream == 0) ? name : name + " stream " + std::to_string(stream);
}

std::string name_of_queue(uint32_t queue)
{
    if (queue >= internal_queue) {
        return "scheduler " + std::to_string(queue - internal_queue);
    }
    if (queue < shim::gaudi2_queue_edma[0]) {
        return name_of_stream("PDMA", queue / shim::streams_per_engine,
                              queue % shim::streams_per_engine);
    }
    const uint32_t edma = edma_of(queue);
    if (edma < edma_count) {
        return name_of_stream("EDMA", edma,
                              queue - shim::gaudi2_queue_edma[edma]);
    }
    return "queue " + std::to_string(queue);
}

std::string name_of_side(const memory_side &side, unsigned own)
{
    return (side.kind == memory_kind::host)
               ? "host"
               : "gaudi" + std::to_string((side.kind == memory_kind::imported)
                                              ? side.card
                                              : own);
}

} // namespace

std::unique_ptr<job_watch> job_watch::create(unsigned card)
{
    box_traffic *const model = box_traffic::instance();
    trace_file *const trace  = find_trace();
    if ((model == nullptr) && (trace == nullptr)) {
        return nullptr;
    }
    return std::unique_ptr<job_watch>(new job_watch(model, trace, card));
}

/* --- jobs ----------------------------------------------------------------- */

std::optional<clock::time_point> job_watch::begin(uint64_t seq,
                                                  const engine_copy &copy)
{
    job &owner = of(seq);
    if (rows_.file() != nullptr) {
        owner.copies.push_back({copy, now(), 0, 0, false});
    }
    if (model_ == nullptr) {
        return std::nullopt;
    }
    model_->add({.job    = seq,
                 .copies = 1,
                 .start  = model_time_of(owner.submitted +
                                         microseconds(model_->speed().doorbell)),
                 .began  = 0,
                 .end    = 0,
                 .left   = static_cast<double>(copy.bytes),
                 .owner  = 0,
                 .card   = static_cast<uint16_t>(card_),
                 .queue  = static_cast<uint16_t>(copy.queue),
                 .needs  = route_of(model_->speed(), card_, copy)});
    return end_of(seq);
}

void job_watch::end(uint64_t seq, uint32_t queue, uint64_t left)
{
    auto &copies = of(seq).copies;
    const auto last =
        std::find_if(copies.rbegin(), copies.rend(), [=](const auto &copy) {
            return copy.what.queue == queue;
        });
    if (last != copies.rend()) {
        last->left = left;
        last->end  = last->modelled ? last->end : now();
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

/* When the model had copies of a job begin and end: those of a flow have its
 * time by their bytes. */
void job_watch::take_times(uint64_t seq)
{
    if ((rows_.file() == nullptr) || (model_ == nullptr)) {
        return;
    }
    std::vector<known_copy *> members;
    for (const flow &moved : model_->flows_of(card_, seq)) {
        double bytes = 0;
        members.clear();
        for (known_copy &copy : of(seq).copies) {
            if ((copy.what.queue == moved.queue) && !copy.modelled &&
                (members.size() < moved.copies)) {
                members.push_back(&copy);
                bytes += static_cast<double>(copy.what.bytes);
            }
        }
        /* Of one that was cut off before it began, nothing. */
        const model_time began = (moved.began != 0) ? moved.began : moved.end;
        const auto length      = static_cast<double>(moved.end - began);
        double done            = 0;
        const auto time_now    = [&] {
            return began + static_cast<model_time>(length * done / bytes);
        };
        for (known_copy *copy : members) {
            copy->begin = time_now();
            done += static_cast<double>(copy->what.bytes);
            copy->end      = time_now();
            copy->modelled = true;
        }
    }
}

void job_watch::leave_model(uint64_t seq)
{
    take_times(seq);
    if (model_ != nullptr) {
        model_->forget(card_, seq);
    }
}

void job_watch::end_job(uint64_t seq, uint32_t status)
{
    write(seq, text_of(status));
}

void job_watch::abandon_job(uint64_t seq, uint32_t status)
{
    take_times(seq);
    write(seq,
          (status == shim::cs_completed) ? "card closed" : text_of(status));
}

void job_watch::flush()
{
    if (rows_.file() != nullptr) {
        rows_.file()->flush();
    }
}

/* --- the trace ------------------------------------------------------------ */

std::string job_watch::row_of(uint32_t queue)
{
    return rows_.row_of(queue, name_of_queue(queue));
}

void job_watch::add_link(const known_copy &copy, uint64_t seq, unsigned card,
                         bool to_card)
{
    const char *direction   = to_card ? "to" : "from";
    const uint64_t id       = rows_.file()->next_id();
    const std::string place = rows_.place_of(card);
    const uint32_t row      = number_of_card(card);
    rows_.add_event(
        R"({"ph":"b","cat":"link","id":"0x%lx",%s,"tid":%u,"ts":%s,)"
        R"("name":"PCIe %s gaudi%u","args":{"bytes":%lu,"engine":"gaudi%u %s",)"
        R"("job":%lu,"process":"%s"}})",
        id, place.c_str(), row, time_text(copy.begin).text, direction, card,
        copy.what.bytes - copy.left, card_,
        name_of_queue(copy.what.queue).c_str(), seq,
        rows_.file()->process().c_str());
    rows_.add_event(
        R"({"ph":"e","cat":"link","id":"0x%lx",%s,"tid":%u,"ts":%s,)"
        R"("name":"PCIe %s gaudi%u"})",
        id, place.c_str(), row, time_text(copy.end).text, direction, card);
}

/* As the timing model: what is imported goes through both cards' links. */
void job_watch::add_links(const known_copy &copy, uint64_t seq)
{
    const auto add_side = [&](const memory_side &side, bool to_card) {
        if (side.kind != memory_kind::device) {
            add_link(copy, seq, card_, to_card);
        }
        if (side.kind == memory_kind::imported) {
            add_link(copy, seq, side.card, !to_card);
        }
    };
    add_side(copy.what.from, true);
    add_side(copy.what.to, false);
}

void job_watch::add_slice(const known_copy &copy, uint64_t seq,
                          const char *status)
{
    const engine_copy &what = copy.what;
    const std::string sides =
        name_of_side(what.from, card_) + " to " + name_of_side(what.to, card_);
    const model_time waited = copy.begin - model_time_of(of(seq).submitted);
    rows_.add_event(
        R"({"ph":"X","cat":"copy",%s,"ts":%s,"dur":%s,)"
        R"("name":"%s","args":{"bytes":%lu,"source":"0x%lx",)"
        R"("destination":"0x%lx","job":%lu,"status":"%s","waited_us":%s,)"
        R"("process":"%s"}})",
        row_of(what.queue).c_str(), time_text(copy.begin).text,
        time_text(copy.end - copy.begin).text, sides.c_str(),
        what.bytes - copy.left, what.src, what.dst, seq, status,
        time_text(std::max<model_time>(0, waited)).text,
        rows_.file()->process().c_str());
}

void job_watch::write(uint64_t seq, const char *status)
{
    if (rows_.file() == nullptr) {
        return;
    }
    for (known_copy &copy : of(seq).copies) {
        copy.end = std::max(copy.end, copy.begin);
        add_slice(copy, seq, status);
        add_links(copy, seq);
    }
    of(seq).copies.clear();
    rows_.hand_over();
}

void job_watch::tell_fault(uint64_t seq, uint32_t queue, const char *why)
{
    if (rows_.file() != nullptr) {
        rows_.add_event(R"({"ph":"i","s":"t","cat":"fault",%s,"ts":%s,)"
                        R"("name":"job aborted","args":{"job":%lu,"why":"%s",)"
                        R"("process":"%s"}})",
                        row_of(queue).c_str(), time_text(now()).text, seq,
                        json_text(why).c_str(),
                        rows_.file()->process().c_str());
    }
}

} // namespace gaudi::emu
