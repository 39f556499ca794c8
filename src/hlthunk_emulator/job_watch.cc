#include "hlthunk_emulator/job_watch.h"

#include "hlthunk_emulator/box.h"
#include "hlthunk_emulator/settings.h"
#include "util/process.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <functional>

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

/* --- the trace of this process ---------------------------------------------
 */

struct own_trace {
    trace_file file{get_settings().trace};
};

/* Generation of the process that has one; a child does not write what its
 * parent has gathered. */
std::atomic<unsigned> writer{UINT_MAX};

/* @return nullptr when it is off, or cannot be had. */
trace_file *find_trace()
{
    if (get_settings().trace.empty()) {
        return nullptr;
    }
    trace_file &made = util::of_this_process<own_trace>().file;
    writer           = util::process_generation();
    return made.good() ? &made : nullptr;
}

/* At the end of the process, which may have left its cards open. */
struct flush_at_exit {
    flush_at_exit()                                 = default;
    flush_at_exit(const flush_at_exit &)            = delete;
    flush_at_exit &operator=(const flush_at_exit &) = delete;
    ~flush_at_exit()
    {
        if (writer == util::process_generation()) {
            util::of_this_process<own_trace>().file.flush();
        }
    }
};
const flush_at_exit last_one;

/* --- names and numbers in the trace --------------------------------------- */

constexpr uint32_t queues_of_card = 512;
static_assert(queues_of_card > queue_count + internal_queue_count);

/* Numbers of "processes", which are cards, and of "threads", their queues:
 * Perfetto names threads by their number alone, whose process so ever they are.
 * Boxes that write the same file differ in them. */
uint32_t number_of_card(unsigned card)
{
    const std::string &node = get_settings().node;
    const auto box          = static_cast<uint32_t>(
        (node == "0") ? 0 : 1 + std::hash<std::string>()(node) % 16383);
    return box * max_cards + card + 1;
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

/* Microseconds. Readers make a double of it, and nanoseconds of that by cutting
 * off: with another fifth of one they get back what this was, and neighbours in
 * a row do not overlap. */
struct time_text {
    explicit time_text(model_time time)
    {
        std::snprintf(text, sizeof(text), "%ld.%03ld2", time / 1000,
                      time % 1000);
    }
    char text[32];
};

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
    if (trace_ != nullptr) {
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
    if ((trace_ == nullptr) || (model_ == nullptr)) {
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
    if (trace_ != nullptr) {
        trace_->flush();
    }
}

/* --- the trace ------------------------------------------------------------ */

void job_watch::add_event(const char *format, ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    const int length = std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if ((length > 0) && (static_cast<size_t>(length) < sizeof(text))) {
        lines_.append(text, static_cast<size_t>(length)).append(",\n");
    }
}

/* Where what a card does is shown; it gets its name first. */
std::string job_watch::place_of(unsigned card)
{
    const uint32_t number = number_of_card(card);
    std::string place     = R"("pid":)" + std::to_string(number);
    if (named_cards_.insert(card).second) {
        const std::string &node = get_settings().node;
        add_event(R"({"ph":"M",%s,"name":"process_name",)"
                  R"("args":{"name":"gaudi%u %s%s"}})",
                  place.c_str(), card, bus_id_of(card).c_str(),
                  (node == "0") ? "" : (" of box " + json_text(node)).c_str());
        add_event(R"({"ph":"M",%s,"name":"process_sort_index",)"
                  R"("args":{"sort_index":%u}})",
                  place.c_str(), number);
    }
    return place;
}

std::string job_watch::row_of(uint32_t queue)
{
    std::string row =
        place_of(card_) + R"(,"tid":)" +
        std::to_string(number_of_card(card_) * queues_of_card + queue);
    if (named_queues_.insert(queue).second) {
        add_event(R"({"ph":"M",%s,"name":"thread_name",)"
                  R"("args":{"name":"%s"}})",
                  row.c_str(), name_of_queue(queue).c_str());
        add_event(R"({"ph":"M",%s,"name":"thread_sort_index",)"
                  R"("args":{"sort_index":%u}})",
                  row.c_str(), queue);
    }
    return row;
}

void job_watch::add_link(const known_copy &copy, uint64_t seq, unsigned card,
                         bool to_card)
{
    const char *direction   = to_card ? "to" : "from";
    const uint64_t id       = trace_->next_id();
    const std::string place = place_of(card);
    const uint32_t row      = number_of_card(card);
    add_event(
        R"({"ph":"b","cat":"link","id":"0x%lx",%s,"tid":%u,"ts":%s,)"
        R"("name":"PCIe %s gaudi%u","args":{"bytes":%lu,"engine":"gaudi%u %s",)"
        R"("job":%lu,"process":"%s"}})",
        id, place.c_str(), row, time_text(copy.begin).text, direction, card,
        copy.what.bytes - copy.left, card_,
        name_of_queue(copy.what.queue).c_str(), seq, trace_->process().c_str());
    add_event(R"({"ph":"e","cat":"link","id":"0x%lx",%s,"tid":%u,"ts":%s,)"
              R"("name":"PCIe %s gaudi%u"})",
              id, place.c_str(), row, time_text(copy.end).text, direction,
              card);
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
    add_event(R"({"ph":"X","cat":"copy",%s,"ts":%s,"dur":%s,)"
              R"("name":"%s","args":{"bytes":%lu,"source":"0x%lx",)"
              R"("destination":"0x%lx","job":%lu,"status":"%s","waited_us":%s,)"
              R"("process":"%s"}})",
              row_of(what.queue).c_str(), time_text(copy.begin).text,
              time_text(copy.end - copy.begin).text, sides.c_str(),
              what.bytes - copy.left, what.src, what.dst, seq, status,
              time_text(std::max<model_time>(0, waited)).text,
              trace_->process().c_str());
}

void job_watch::write(uint64_t seq, const char *status)
{
    if (trace_ == nullptr) {
        return;
    }
    for (known_copy &copy : of(seq).copies) {
        copy.end = std::max(copy.end, copy.begin);
        add_slice(copy, seq, status);
        add_links(copy, seq);
    }
    of(seq).copies.clear();
    trace_->add(lines_);
    lines_.clear();
}

void job_watch::tell_fault(uint64_t seq, uint32_t queue, const char *why)
{
    if (trace_ != nullptr) {
        add_event(R"({"ph":"i","s":"t","cat":"fault",%s,"ts":%s,)"
                  R"("name":"job aborted","args":{"job":%lu,"why":"%s",)"
                  R"("process":"%s"}})",
                  row_of(queue).c_str(), time_text(now()).text, seq,
                  json_text(why).c_str(), trace_->process().c_str());
    }
}

} // namespace gaudi::emu
