/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/settings.h"

#include "util/made_once.h"

#include <bit>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::emu {

namespace {

constexpr size_t max_node_name = 64;

/* An answer to a variable: what is wrong with it, empty when nothing is. */
std::string unless(bool good, const std::string &expected)
{
    return good ? std::string() : "is not " + expected;
}

/* A number with an optional K, M, G or T; the whole text must be it. */
bool parse_size(const char *text, uint64_t &value)
{
    char *end = nullptr;
    errno     = 0;
    value     = std::strtoull(text, &end, 10);
    if ((errno != 0) || (end == text) || (*text == '-')) {
        return false;
    }
    const char *units = "KMGT";
    const char *unit  = (*end != '\0') ? std::strchr(units, *end) : nullptr;
    if (unit != nullptr) {
        const unsigned shift = 10 * static_cast<unsigned>(unit - units + 1);
        if ((value << shift) >> shift != value) {
            return false;
        }
        value <<= shift;
        ++end;
        end += (*end == 'B');
    }
    return *end == '\0';
}

template <typename Number>
std::string read_number(const char *text, uint64_t min, uint64_t max,
                        const char *expected, Number &target)
{
    uint64_t value = 0;
    const bool good =
        parse_size(text, value) && (value >= min) && (value <= max);
    target = good ? static_cast<Number>(value) : target;
    return unless(good, expected);
}

std::string read_numa(const char *text, settings &result)
{
    constexpr long max_node = 1023; /* the kernel's MAX_NUMNODES - 1 */
    char *end               = nullptr;
    const long node         = std::strtol(text, &end, 10);
    const bool good = (*end == '\0') && (node >= -1) && (node <= max_node);
    result.numa     = static_cast<int>(node);
    return unless(good, "a NUMA node, -1 for an unknown one");
}

/* Gaudi2 has pages of 8 MiB, or sixteen times that, for each HBM that works. */
std::string read_page(const char *text, settings &result)
{
    const bool any_power = result.kind->user_page_size;
    uint64_t size        = 0;
    const bool good =
        parse_size(text, size) && (size <= 1ull << 30) &&
        (any_power ? (std::has_single_bit(size) && (size >= 2 << 20))
                   : ((size != 0) && (size % (8 << 20) == 0)));
    result.dram_page = good ? size : result.dram_page;
    return unless(good, any_power ? "a power of two from 2M to 1G"
                                  : "a multiple of 8M up to 1G");
}

std::string read_node(const char *value, settings &result)
{
    const std::string text = value;
    struct stat info;
    const bool is_folder = text.starts_with('/');
    if (!is_folder && (text.size() <= max_node_name)) {
        result.node = text;
    } else if (is_folder && (stat(value, &info) == 0) &&
               S_ISDIR(info.st_mode) && (info.st_uid == geteuid()) &&
               ((info.st_mode & 022) == 0)) {
        /* By whatever path. */
        result.node = "folder-" + std::to_string(info.st_dev) + "-" +
                      std::to_string(info.st_ino);
        result.folder = text;
    } else {
        return "is not a name of 1 to 64 characters, or the path of a folder "
               "that only you may write to";
    }
    return {};
}

/* How many opens of each card find it in reset, and what else goes wrong. */
std::string read_faults(const char *text, settings &result)
{
    std::vector<fault> wished;
    std::string wrong =
        parse_faults(text, result.valid ? result.devices : max_cards, wished);
    for (const fault &each : wished) {
        if (each.call == faulty_call::now) {
            wrong = "'now' is when a program says so";
        }
        if (each.call == faulty_call::port) {
            result.wires.push_back(each);
        } else if (each.call != faulty_call::reset) {
            result.faults.push_back(each);
        } else if (each.card.has_value()) {
            result.resets[*each.card] = each.effect.opens;
        } else {
            result.resets.fill(each.effect.opens);
        }
    }
    return unless(wrong.empty(), "a list of faults: " + wrong);
}

std::string read_timing(const char *text, settings &result)
{
    const std::string_view how = text;
    if (how == "off") {
        return {};
    }
    result.timing         = (how == "hls3") ? hls3_figures : hls2_figures;
    const std::string why = ((how == "hls2") || (how == "hls3"))
                                ? ""
                                : read_figures(how, *result.timing);
    return unless(why.empty(), "off, hls2, hls3 or a list of figures, as "
                               "to_card=25,hbm=2450: " +
                                   why);
}

/* A number of any base; the whole text must be it. */
bool parse_mask(const char *text, uint32_t all, uint32_t &mask)
{
    char *end                 = nullptr;
    const unsigned long value = std::strtoul(text, &end, 0);
    if ((*text < '0') || (*text > '9') || (*end != '\0') || (value > all)) {
        return false;
    }
    mask = static_cast<uint32_t>(value);
    /* The driver lets the last engine stand in for a faulty one, whichever it
     * is (edma_binning). */
    if (std::popcount(all & ~mask) == 1) {
        mask = all >> 1;
    }
    return true;
}

bool is_yes(const char *text, bool &value)
{
    value = (std::strcmp(text, "y") == 0);
    return value || (std::strcmp(text, "n") == 0);
}

/* What depends on the kind is as that has it, unless told otherwise. */
std::string read_kind(const char *text, settings &result)
{
    const std::optional<asic> found = parse_asic(text);
    if (found) {
        result.kind      = std::make_shared<const asic>(*found);
        result.dram_page = found->dram_page;
        result.hbm       = found->memory;
        result.edma_mask = found->edma_mask;
    }
    return unless(found.has_value(),
                  "a known card: gaudi2, gaudi2b to gaudi2e, or gaudi3, hl288 "
                  "or hl338, also with d or e");
}

std::string read_yes(const char *text, const char *expected, bool &target)
{
    return unless(is_yes(text, target), expected);
}

std::string yes(bool value)
{
    return value ? "y" : "n";
}

std::string size_text(uint64_t bytes)
{
    constexpr std::string_view units = "KMGT";
    size_t unit                      = 0;
    for (; (unit < units.size()) && (bytes % 1024 == 0); ++unit) {
        bytes /= 1024;
    }
    return std::to_string(bytes) +
           std::string((unit > 0) ? units.substr(unit - 1, 1) : "");
}

/* Those further down may depend on those above. */
constexpr struct {
    const char *name;
    bool is_text; /* an empty one is as good as none */
    std::string (*read)(const char *text, settings &result);
    /* Of what all processes of a box have in common; nullptr: no such. */
    std::string (*show)(const settings &is);
} variables[] = {
    {"HLTHUNK_EMU_ASIC", true, read_kind,
     [](const settings &is) { return is.kind->name; }},
    {"HLTHUNK_EMU_DEVICES", false,
     [](const char *text, settings &result) {
         return read_number(text, 1, max_cards,
                            "a number of cards from 1 to 64", result.devices);
     },
     [](const settings &is) { return std::to_string(is.devices); }},
    {"HLTHUNK_EMU_ENGINES", false,
     [](const char *text, settings &result) {
         return read_number(text, 0, 16, "a number of threads from 0 to 16",
                            result.engines);
     },
     nullptr},
    {"HLTHUNK_EMU_DRAM_PAGE", false, read_page,
     [](const settings &is) { return size_text(is.dram_page); }},
    {"HLTHUNK_EMU_HBM", false,
     [](const char *text, settings &result) {
         return read_number(text, 2 * result.dram_page, 1ull << 40,
                            "a size from two DRAM pages to 1T", result.hbm);
     },
     [](const settings &is) { return size_text(is.hbm); }},
    {"HLTHUNK_EMU_NODE", true, read_node, nullptr},
    {"HLTHUNK_EMU_IMPORT", true,
     [](const char *text, settings &result) {
         return read_yes(
             text, "y (as the vendor's driver) or n (as the mainline one)",
             result.import);
     },
     [](const settings &is) { return yes(is.import); }},
    {"HLTHUNK_EMU_PORTS", true,
     [](const char *text, settings &result) {
         return read_yes(text, "y (the cards' ports can be used) or n",
                         result.ports);
     },
     [](const settings &is) { return yes(is.ports); }},
    {"HLTHUNK_EMU_EDMA", false,
     [](const char *text, settings &result) {
         return unless(
             parse_mask(text, result.kind->edma_mask, result.edma_mask),
             "a mask of at most 8 engines, as 0xff");
     },
     [](const settings &is) { return std::to_string(is.edma_mask); }},
    {"HLTHUNK_EMU_NUMA", true, read_numa, nullptr},
    {"HLTHUNK_EMU_FAULTS", true, read_faults, nullptr},
    {"HLTHUNK_EMU_PORT_DRAIN", false,
     [](const char *text, settings &result) {
         return read_number(text, 0, 60000,
                            "a number of milliseconds from 0 to 60000",
                            result.port_drain);
     },
     nullptr},
    {"HLTHUNK_EMU_PORT_RETRIES", false,
     [](const char *text, settings &result) {
         return read_number(text, 0, 254, "a number of retries from 0 to 254",
                            result.port_retries);
     },
     nullptr},
    {"HLTHUNK_EMU_PORT_COMPLETION", true,
     [](const char *text, settings &result) {
         result.send_completes = (std::strcmp(text, "send") == 0);
         return unless(
             result.send_completes || (std::strcmp(text, "receive") == 0),
             "receive or send (the entry that asks for the sender's)");
     },
     [](const settings &is) {
         return std::string(is.send_completes ? "send" : "receive");
     }},
    {"HLTHUNK_EMU_SYSFS", true,
     [](const char *text, settings &result) {
         const bool good = (*text == '/');
         result.sysfs    = good ? text : "";
         return unless(good, "an absolute path");
     },
     nullptr},
    {"HLTHUNK_EMU_TIMING", true, read_timing,
     [](const settings &is) {
         return is.timing.has_value() ? to_text(*is.timing) : "off";
     }},
    {"HLTHUNK_EMU_LOG_JOBS", true,
     [](const char *text, settings &result) {
         result.job_log = text;
         return std::string();
     },
     nullptr},
    {"HLTHUNK_EMU_LOG", true,
     [](const char *text, settings &result) {
         result.log = (std::strcmp(text, "0") != 0);
         return std::string();
     },
     nullptr},
};

settings read_settings()
{
    settings result;
    (void)read_kind("gaudi2", result);
    for (const auto &[name, is_text, read, show] : variables) {
        const char *text = secure_getenv(name);
        if ((text == nullptr) || (is_text && (*text == '\0'))) {
            continue;
        }
        const std::string wrong = read(text, result);
        if (!wrong.empty()) {
            std::fprintf(
                stderr,
                "hlthunk-emu: %s='%s' %s; the emulated box has no cards\n",
                name, text, wrong.c_str());
            result.valid = false;
        }
    }
    result.hbm -= result.hbm % result.dram_page;
    result.devices = result.valid ? result.devices : 0;
    return result;
}

util::made_once<settings> known_settings;

} // namespace

const settings &get_settings()
{
    return known_settings.get(read_settings);
}

std::string settings_of_box()
{
    std::string text;
    for (const auto &[name, is_text, read, show] : variables) {
        if (show != nullptr) {
            text += std::string(name) + '=' + show(get_settings()) + '\n';
        }
    }
    return text;
}

void log(const char *format, ...)
{
    if (!get_settings().log) {
        return;
    }
    char text[512];
    va_list arguments;

    va_start(arguments, format);
    std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    std::fprintf(stderr, "hlthunk-emu[%d]: %s\n", getpid(), text);
}

} // namespace gaudi::emu
