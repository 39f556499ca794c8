/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/timing_figures.h"

#include "hlthunk_emulator/asic.h"
#include "util/unique_fd.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <string_view>

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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
    {"import_page", &timing_figures::import_page, unit::microseconds},
    {"import_table", &timing_figures::import_table, unit::microseconds},
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

/* The same for a file that is none of ours, or never ends. */
constexpr size_t longest_file = 1 << 20;

bool read_file(const std::string &path, std::string &text)
{
    const util::unique_fd fd(
        open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info;
    if (!fd || (fstat(fd.get(), &info) != 0)) {
        return false;
    }
    if (!S_ISREG(info.st_mode) || (info.st_size > off_t{longest_file})) {
        errno = S_ISREG(info.st_mode) ? EFBIG : EINVAL;
        return false;
    }
    text.resize(longest_file);
    const ssize_t got = ::read(fd.get(), text.data(), text.size());
    text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    return got >= 0;
}

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

bool read_figure(const cJSON &entry, timing_figures &figures, std::string &why)
{
    for (const key &known : keys) {
        if (known.name != entry.string) {
            continue;
        }
        const double value = entry.valuedouble;
        if ((cJSON_IsNumber(&entry) == 0) || !is_sensible(value, known.in)) {
            why = '\'' + std::string(known.name) + "' is not a number " +
                  description_of(known.in);
            return false;
        }
        figures.*known.figure = value;
        return true;
    }
    why = std::string("unknown key '") + entry.string + '\'';
    return false;
}

} // namespace

bool read_figures(const std::string &path, timing_figures &figures,
                  std::string &why)
{
    std::string text;
    if (!read_file(path, text)) {
        why = std::string("cannot be read: ") + std::strerror(errno);
        return false;
    }
    const std::unique_ptr<cJSON, decltype(&cJSON_Delete)> root(
        cJSON_ParseWithOpts(text.c_str(), nullptr, 1), &cJSON_Delete);
    if ((root == nullptr) || (cJSON_IsObject(root.get()) == 0)) {
        why = "is not an object of JSON";
        return false;
    }
    figures = hls2_figures;
    for (const cJSON *entry = root->child; entry != nullptr;
         entry              = entry->next) {
        if (!read_figure(*entry, figures, why)) {
            return false;
        }
    }
    return true;
}

} // namespace gaudi::emu
