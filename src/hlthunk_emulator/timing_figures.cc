/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/timing_figures.h"

#include "hlthunk_emulator/asic.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

namespace gaudi::emu {

namespace {

enum class unit { microseconds, bandwidth, cards };

struct key {
    std::string_view name;
    double timing_figures::*figure;
    unit in;
};

constexpr key keys[] = {
    {"doorbell", &timing_figures::doorbell, unit::microseconds},
    {"completion", &timing_figures::completion, unit::microseconds},
    {"wakeup", &timing_figures::wakeup, unit::microseconds},
    {"to_card", &timing_figures::to_card, unit::bandwidth},
    {"from_card", &timing_figures::from_card, unit::bandwidth},
    {"pdma_engine", &timing_figures::pdma_engine, unit::bandwidth},
    {"pdma_all", &timing_figures::pdma_all, unit::bandwidth},
    {"edma_engine", &timing_figures::edma_engine, unit::bandwidth},
    {"edma_all", &timing_figures::edma_all, unit::bandwidth},
    {"hbm", &timing_figures::hbm, unit::bandwidth},
    {"peer_read", &timing_figures::peer_read, unit::bandwidth},
    {"cards_per_uplink", &timing_figures::cards_per_uplink, unit::cards},
    {"uplink", &timing_figures::uplink, unit::bandwidth},
    {"port", &timing_figures::port, unit::bandwidth},
    {"port_latency", &timing_figures::port_latency, unit::microseconds},
};

/* Less than a kilobyte in a second, or longer than a day, is a slip; the
 * model's nanoseconds do not overflow with these. */
constexpr double least_bandwidth = 1e-6;
constexpr double longest_time    = 86400e6;

/* Nothing moves at a bandwidth of 0. */
bool is_sensible(double value, unit in)
{
    switch (in) {
    case unit::microseconds:
        return (value >= 0) && (value <= longest_time);
    case unit::bandwidth:
        return (value >= least_bandwidth) && (value <= longest_time);
    default:
        return (value >= 1) && (value <= max_cards) &&
               (value == std::floor(value));
    }
}

const char *description_of(unit in)
{
    switch (in) {
    case unit::microseconds:
        return "of microseconds";
    case unit::bandwidth:
        return "of GB/s from 1e-6 on";
    default:
        return "of cards, 1 to 64";
    }
}

std::string read_figure(std::string_view text, timing_figures &figures)
{
    const size_t at               = std::min(text.find('='), text.size());
    const std::string_view name   = text.substr(0, at);
    const std::string_view number = text.substr(std::min(at + 1, text.size()));
    const auto *known =
        std::find_if(std::begin(keys), std::end(keys),
                     [&](const key &each) { return each.name == name; });
    if (known == std::end(keys)) {
        return "unknown figure '" + std::string(name) + '\'';
    }
    const char *const end    = number.data() + number.size();
    double value             = 0;
    const auto [rest, error] = std::from_chars(number.data(), end, value);
    if ((error != std::errc()) || (rest != end) ||
        !is_sensible(value, known->in)) {
        return '\'' + std::string(name) + "' is not a number " +
               description_of(known->in);
    }
    figures.*known->figure = value;
    return {};
}

} // namespace

std::string read_figures(std::string_view list, timing_figures &figures)
{
    std::string wrong;
    for (size_t end = 0; wrong.empty() && (end != std::string_view::npos);) {
        end   = list.find(',');
        wrong = read_figure(list.substr(0, end), figures);
        list.remove_prefix(std::min(list.size(), end + 1));
    }
    return wrong;
}

namespace {

std::string list_of(const timing_figures &figures)
{
    std::string list;
    for (const key &each : keys) {
        char number[32];
        const char *const end =
            std::to_chars(number, std::end(number), figures.*each.figure).ptr;
        list += (list.empty() ? "" : ",") + std::string(each.name) + '=' +
                std::string(static_cast<const char *>(number), end);
    }
    return list;
}

} // namespace

std::string to_text(const timing_figures &figures)
{
    const std::string list = list_of(figures);
    return (list == list_of(hls2_figures))   ? "hls2"
           : (list == list_of(hls3_figures)) ? "hls3"
                                             : list;
}

} // namespace gaudi::emu
