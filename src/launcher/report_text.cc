#include "launcher/report.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace launcher {

namespace {

std::string to_line(const char *label, const std::string &value)
{
    char padded[16];
    std::snprintf(padded, sizeof(padded), "%-9s ", label);
    return padded + to_printable(value) + "\n";
}

std::string or_none(const std::string &text)
{
    return text.empty() ? "none" : text;
}

std::string to_size(const std::optional<uint64_t> &bytes)
{
    if (!bytes.has_value()) {
        return "-";
    }
    constexpr double mebibyte = 1ul << 20;
    constexpr double gibibyte = 1ul << 30;
    const auto value          = static_cast<double>(*bytes);
    const bool large          = (value >= gibibyte);
    char text[32];
    std::snprintf(text, sizeof(text), "%.1f%s",
                  value / (large ? gibibyte : mebibyte), large ? "GiB" : "MiB");
    return text;
}

std::string to_text(const std::optional<unsigned> &number)
{
    return number.has_value() ? std::to_string(*number) : "-";
}

std::string to_table(const std::vector<card> &cards)
{
    std::string text;
    using row = std::array<std::string, 9>;

    std::vector<row> rows = {{"index", "module", "bus id", "numa", "HBM",
                              "free", "state", "kind", "held by"}};
    for (const card &one : cards) {
        rows.push_back({to_text(one.index), to_text(one.module_id), one.bus_id,
                        to_text(one.numa_node), to_size(one.memory),
                        to_size(one.free_memory), to_string(one.state),
                        to_kind(one),
                        one.held_by.empty() ? "-" : describe(one.held_by)});
    }
    std::array<size_t, 9> widths{};
    for (const row &cells : rows) {
        for (size_t i = 0; i < cells.size(); ++i) {
            widths[i] = std::max(widths[i], cells[i].size());
        }
    }
    for (const row &cells : rows) {
        std::string line;
        for (size_t i = 0; i < cells.size(); ++i) {
            line += cells[i];
            if (i + 1 < cells.size()) {
                line.append(widths[i] - cells[i].size() + 2, ' ');
            }
        }
        text += gaudi::util::to_printable(line) + "\n";
    }
    return text;
}

std::string describe(const loading_way &way, const found_ucx &ucx)
{
    if (way.now == loading_way::state::absent) {
        return "none in UCX " + ucx.version;
    }
    char padded[16];
    std::snprintf(padded, sizeof(padded), "%-10s ", to_string(way.now));
    return padded + way.place.string();
}

} // namespace

const char *to_string(loading_way::state state)
{
    switch (state) {
    case loading_way::state::active:
        return "active";
    case loading_way::state::inactive:
        return "not active";
    case loading_way::state::broken:
        return "broken";
    case loading_way::state::absent:
        break;
    }
    return "none";
}

std::string to_text(const report &found)
{
    std::string text =
        to_line("driver", or_none(found.driver_file) + " (UCX_GAUDI_DRIVER=" +
                              found.driver_setting + ")");
    if (!found.cards.empty()) {
        text += "\n" + to_table(found.cards) + "\n";
    }
    text += to_line("ucx", found.ucx.release.has_value()
                               ? found.ucx.version + " at " + found.ucx.libucp
                               : "none");
    std::string installed;
    for (const ucx_release &one : found.installed) {
        installed += (installed.empty() ? "" : ", ") + to_string(one);
    }
    text += to_line("module", or_none(found.module) +
                                  " (installed: " + or_none(installed) + ")");
    for (const loading_way &way : found.ways) {
        text += to_line(way.name, describe(way, found.ucx));
    }
    for (const problem &one : found.missing) {
        text += "\nmissing   " + one.what + "\nto mend   " + one.mend + "\n";
    }
    return text;
}

} // namespace launcher
