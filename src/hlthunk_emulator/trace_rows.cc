/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/trace_rows.h"

#include "hlthunk_emulator/box.h"
#include "hlthunk_emulator/settings.h"
#include "util/process.h"

#include <atomic>
#include <climits>
#include <cstdarg>
#include <functional>

namespace gaudi::emu {

namespace {

struct own_trace {
    trace_file file{get_settings().trace};
};

/* Generation of the process that has one; a child does not write what its
 * parent has gathered. */
std::atomic<unsigned> writer{UINT_MAX};

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

static_assert(first_port_row > queue_count + internal_queue_count);

} // namespace

trace_file *find_trace()
{
    if (get_settings().trace.empty()) {
        return nullptr;
    }
    trace_file &made = util::of_this_process<own_trace>().file;
    writer           = util::process_generation();
    return made.good() ? &made : nullptr;
}

uint32_t number_of_card(unsigned card)
{
    const std::string &node = get_settings().node;
    const auto box          = static_cast<uint32_t>(
        (node == "0") ? 0 : 1 + std::hash<std::string>()(node) % 16383);
    return box * max_cards + card + 1;
}

void trace_rows::add_event(const char *format, ...)
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

std::string trace_rows::place_of(unsigned card)
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

/* Perfetto names "threads" by their number alone, whose "process" so ever they
 * are. */
std::string trace_rows::row_of(uint32_t row, const std::string &name)
{
    std::string place =
        place_of(card_) + R"(,"tid":)" +
        std::to_string(number_of_card(card_) * rows_of_card + row);
    if (named_rows_.insert(row).second) {
        add_event(R"({"ph":"M",%s,"name":"thread_name",)"
                  R"("args":{"name":"%s"}})",
                  place.c_str(), name.c_str());
        add_event(R"({"ph":"M",%s,"name":"thread_sort_index",)"
                  R"("args":{"sort_index":%u}})",
                  place.c_str(), row);
    }
    return place;
}

void trace_rows::hand_over()
{
    trace_->add(lines_);
    lines_.clear();
}

} // namespace gaudi::emu
