#include "hlthunk_emulator/job_trace.h"

#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/box.h"
#include "hlthunk_emulator/settings.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace gaudi::emu {

namespace {

constexpr uint32_t queues_of_card = 512;
static_assert(queues_of_card > queue_count + internal_queue_count);

/* Numbers of "processes", which are cards, and of "threads", their queues:
 * Perfetto names threads by their number alone, whose process so ever they are.
 * Boxes that write the same file differ in them. */
uint32_t number_of_card(unsigned card)
{
    static const uint32_t box = [] {
        const std::string &node = get_settings().node;
        uint32_t hash           = 0x811c9dc5; /* FNV-1a */
        for (const char letter : node) {
            hash = (hash ^ static_cast<unsigned char>(letter)) * 0x01000193;
        }
        return (node == "0") ? 0 : 1 + hash % 16383;
    }();
    return box * max_cards + card + 1;
}

uint32_t number_of_queue(unsigned card, uint32_t queue)
{
    return number_of_card(card) * queues_of_card + queue;
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

/* What may be in a string of JSON. */
std::string quoted(const char *text)
{
    std::string result(text);
    for (char &letter : result) {
        if ((letter < ' ') || (letter > '~') || (letter == '\\')) {
            letter = '?';
        } else if (letter == '"') {
            letter = '\'';
        }
    }
    return result;
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

void job_trace::add_event(const char *format, ...)
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

void job_trace::name_card(unsigned card)
{
    if (!named_cards_.insert(card).second) {
        return;
    }
    const std::string &node = get_settings().node;
    const std::string box =
        (node == "0") ? "" : " of box " + quoted(node.c_str());
    const uint32_t number = number_of_card(card);
    add_event(R"({"ph":"M","pid":%u,"name":"process_name",)"
              R"("args":{"name":"gaudi%u %s%s"}})",
              number, card, bus_id_of(card).c_str(), box.c_str());
    add_event(R"({"ph":"M","pid":%u,"name":"process_sort_index",)"
              R"("args":{"sort_index":%u}})",
              number, number);
}

void job_trace::name_queue(uint32_t queue)
{
    if (!named_queues_.insert(queue).second) {
        return;
    }
    name_card(card_);
    add_event(R"({"ph":"M","pid":%u,"tid":%u,"name":"thread_name",)"
              R"("args":{"name":"%s"}})",
              number_of_card(card_), number_of_queue(card_, queue),
              name_of_queue(queue).c_str());
    add_event(R"({"ph":"M","pid":%u,"tid":%u,"name":"thread_sort_index",)"
              R"("args":{"sort_index":%u}})",
              number_of_card(card_), number_of_queue(card_, queue), queue);
}

void job_trace::begin(uint64_t seq, const engine_copy &begun, model_time now)
{
    of(seq).push_back({begun, now, 0, 0, false});
}

void job_trace::end(uint64_t seq, uint32_t queue, uint64_t left, model_time now)
{
    auto &copies = of(seq);
    const auto last =
        std::find_if(copies.rbegin(), copies.rend(), [=](const auto &told) {
            return told.what.queue == queue;
        });
    if (last == copies.rend()) {
        return;
    }
    last->left = left;
    last->end  = last->modelled ? last->end : now;
}

/* The copies of a flow have its time by their bytes. */
void job_trace::set_times(uint64_t seq, std::span<const flow> flows)
{
    std::vector<told_copy *> members;
    for (const flow &moved : flows) {
        double bytes = 0;
        members.clear();
        for (told_copy &told : of(seq)) {
            if ((told.what.queue == moved.queue) && !told.modelled &&
                (members.size() < moved.copies)) {
                members.push_back(&told);
                bytes += static_cast<double>(told.what.bytes);
            }
        }
        /* Of one that was cut off before it began, nothing. */
        const model_time began = (moved.began != 0) ? moved.began : moved.end;
        const auto length      = static_cast<double>(moved.end - began);
        double done            = 0;
        for (told_copy *told : members) {
            told->begin =
                began + static_cast<model_time>(length * done / bytes);
            done += static_cast<double>(told->what.bytes);
            told->end = began + static_cast<model_time>(length * done / bytes);
            told->modelled = true;
        }
    }
}

void job_trace::add_link(const told_copy &told, uint64_t seq, unsigned card,
                         bool to_card)
{
    const char *direction = to_card ? "to" : "from";
    const uint64_t id     = file_.next_id();
    name_card(card);
    add_event(
        R"({"ph":"b","cat":"link","id":"0x%lx","pid":%u,"tid":%u,"ts":%s,)"
        R"("name":"PCIe %s gaudi%u","args":{"bytes":%lu,"engine":"gaudi%u %s",)"
        R"("job":%lu,"process":"%s"}})",
        id, number_of_card(card), number_of_card(card),
        time_text(told.begin).text, direction, card,
        told.what.bytes - told.left, card_,
        name_of_queue(told.what.queue).c_str(), seq, file_.process().c_str());
    add_event(
        R"({"ph":"e","cat":"link","id":"0x%lx","pid":%u,"tid":%u,"ts":%s,)"
        R"("name":"PCIe %s gaudi%u"})",
        id, number_of_card(card), number_of_card(card),
        time_text(told.end).text, direction, card);
}

/* As the timing model: what is imported goes through both cards' links. */
void job_trace::add_links(const told_copy &told, uint64_t seq)
{
    const auto add_side = [&](const memory_side &side, bool to_card) {
        if (side.kind != memory_kind::device) {
            add_link(told, seq, card_, to_card);
        }
        if (side.kind == memory_kind::imported) {
            add_link(told, seq, side.card, !to_card);
        }
    };
    add_side(told.what.from, true);
    add_side(told.what.to, false);
}

void job_trace::add_slice(const told_copy &told, uint64_t seq,
                          const char *status, model_time submitted)
{
    const engine_copy &what = told.what;
    const std::string sides =
        name_of_side(what.from, card_) + " to " + name_of_side(what.to, card_);
    name_queue(what.queue);
    add_event(R"({"ph":"X","cat":"copy","pid":%u,"tid":%u,"ts":%s,"dur":%s,)"
              R"("name":"%s","args":{"bytes":%lu,"source":"0x%lx",)"
              R"("destination":"0x%lx","job":%lu,"status":"%s","waited_us":%s,)"
              R"("process":"%s"}})",
              number_of_card(card_), number_of_queue(card_, what.queue),
              time_text(told.begin).text, time_text(told.end - told.begin).text,
              sides.c_str(), what.bytes - told.left, what.src, what.dst, seq,
              status,
              time_text(std::max<model_time>(0, told.begin - submitted)).text,
              file_.process().c_str());
}

void job_trace::end_job(uint64_t seq, const char *status, model_time submitted)
{
    for (told_copy &told : of(seq)) {
        told.end = std::max(told.end, told.begin);
        add_slice(told, seq, status, submitted);
        add_links(told, seq);
    }
    of(seq).clear();
    file_.add(lines_);
    lines_.clear();
}

void job_trace::tell_fault(uint64_t seq, uint32_t queue, const char *why,
                           model_time now)
{
    name_queue(queue);
    add_event(R"({"ph":"i","s":"t","cat":"fault","pid":%u,"tid":%u,"ts":%s,)"
              R"("name":"job aborted","args":{"job":%lu,"why":"%s",)"
              R"("process":"%s"}})",
              number_of_card(card_), number_of_queue(card_, queue),
              time_text(now).text, seq, quoted(why).c_str(),
              file_.process().c_str());
}

} // namespace gaudi::emu
