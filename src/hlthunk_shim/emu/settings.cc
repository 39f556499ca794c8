#include "hlthunk_shim/emu/settings.h"

#include "util/made_once.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

namespace gaudi::emu {

namespace {

constexpr size_t max_node_name = 64;

void refuse(settings &result)
{
    result.valid   = false;
    result.devices = 0;
}

void complain(settings &result, const char *name, const char *value,
              const char *expected)
{
    std::fprintf(stderr,
                 "hlthunk-emu: %s='%s' is not %s; the emulated box has no "
                 "cards\n",
                 name, value, expected);
    refuse(result);
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

/* Read a variable, if it is set. parse  Whether its value is as expected. */
template <typename Parse>
void read(settings &result, const char *name, const char *expected,
          Parse &&parse)
{
    const char *text = std::getenv(name);
    if ((text != nullptr) && !parse(text)) {
        complain(result, name, text, expected);
    }
}

void read_number(settings &result, const char *name, uint64_t min, uint64_t max,
                 const char *expected, uint64_t &target)
{
    read(result, name, expected, [&](const char *text) {
        uint64_t value = 0;
        const bool good =
            parse_size(text, value) && (value >= min) && (value <= max);
        target = good ? value : target;
        return good;
    });
}

/* One number per card, or one for all. */
bool parse_nodes(const char *text, unsigned cards, std::vector<int> &nodes)
{
    constexpr long max_node = 1023; /* the kernel's MAX_NUMNODES - 1 */
    for (const char *at = text;; ++at) {
        char *end       = nullptr;
        const long node = std::strtol(at, &end, 10);
        if ((end == at) || (node < -1) || (node > max_node) ||
            ((*end != ',') && (*end != '\0'))) {
            return false;
        }
        nodes.push_back(static_cast<int>(node));
        at = end;
        if (*end == '\0') {
            return (nodes.size() == 1) || (nodes.size() == cards);
        }
    }
}

/* "reset=OPENS" for all cards, or "reset=OPENS@CARD" for one; several of these,
 * separated by commas. */
bool parse_faults(const char *text, std::array<uint32_t, max_cards> &resets)
{
    constexpr char reset[] = "reset=";
    constexpr size_t name  = sizeof(reset) - 1;
    for (const char *at = text;; ++at) {
        char *end = nullptr;
        if ((std::strncmp(at, reset, name) != 0) || (at[name] < '0') ||
            (at[name] > '9')) {
            return false;
        }
        const unsigned long opens = std::strtoul(at + name, &end, 10);
        if (opens > UINT32_MAX) {
            return false;
        }
        if (*end != '@') {
            resets.fill(static_cast<uint32_t>(opens));
        } else {
            at                       = end + 1;
            const unsigned long card = std::strtoul(at, &end, 10);
            if ((*at < '0') || (*at > '9') || (card >= max_cards)) {
                return false;
            }
            resets[card] = static_cast<uint32_t>(opens);
        }
        at = end;
        if (*at != ',') {
            return *at == '\0';
        }
    }
}

void read_timing(settings &result)
{
    const char *name = std::getenv("HLTHUNK_EMU_TIMING");
    std::string why;
    if ((name == nullptr) || (*name == '\0') ||
        (std::strcmp(name, "off") == 0)) {
        return;
    }
    if (std::strcmp(name, "hls2") == 0) {
        result.timing = hls2_figures;
    } else if (std::strcmp(name, "hls3") == 0) {
        result.timing = hls3_figures;
    } else if (!read_figures(name, result.timing.emplace(), why)) {
        std::fprintf(stderr,
                     "hlthunk-emu: HLTHUNK_EMU_TIMING='%s' (off, hls2, hls3 or "
                     "a file): %s; the emulated box has no cards\n",
                     name, why.c_str());
        refuse(result);
    }
}

void read_kind(settings &result)
{
    const std::string expected = "a known card: one of " + asic_names();
    result.kind                = find_asic("gaudi2");
    read(result, "HLTHUNK_EMU_ASIC", expected.c_str(),
         [&](const std::string &text) {
             const asic *found = find_asic(text);
             result.kind       = (found != nullptr) ? found : result.kind;
             return found != nullptr;
         });
    result.hbm       = result.kind->memory;
    result.dram_page = result.kind->dram_page;
}

settings read_settings()
{
    settings result;
    read_kind(result);
    uint64_t devices = result.devices;
    uint64_t engines = result.engines;

    read_number(result, "HLTHUNK_EMU_DEVICES", 1, max_cards,
                "a number of cards from 1 to 64", devices);
    read_number(result, "HLTHUNK_EMU_ENGINES", 0, 16,
                "a number of threads from 0 to 16", engines);
    read_number(result, "HLTHUNK_EMU_HBM", result.dram_page, 1ull << 40,
                "a size from one device page to 1T", result.hbm);
    result.hbm -= result.hbm % result.dram_page;
    if (result.valid) {
        result.devices = static_cast<unsigned>(devices);
        result.engines = static_cast<unsigned>(engines);
    }
    read(result, "HLTHUNK_EMU_NODE", "a name of 1 to 64 characters",
         [&](const std::string &text) {
             const bool good = !text.empty() && (text.size() <= max_node_name);
             result.node     = good ? text : result.node;
             return good;
         });
    read(result, "HLTHUNK_EMU_IMPORT",
         "y (as the vendor's driver) or n (as the mainline one)",
         [&](const std::string &text) {
             result.import = (text == "y");
             return result.import || (text == "n");
         });
    read(result, "HLTHUNK_EMU_NUMA",
         "a list of NUMA nodes, one for each card or one for all, -1 for an "
         "unknown one",
         [&](const std::string &text) {
             return !result.valid ||
                    parse_nodes(text.c_str(), result.devices, result.numa);
         });
    read(result, "HLTHUNK_EMU_FAULTS",
         "a list of reset=OPENS or reset=OPENS@CARD",
         [&](const std::string &text) {
             return parse_faults(text.c_str(), result.resets);
         });
    read(result, "HLTHUNK_EMU_SYSFS", "an absolute path",
         [&](const std::string &text) {
             const bool good = text.empty() || text.starts_with('/');
             result.sysfs    = good ? text : "";
             return good;
         });

    read_timing(result);

    const char *text = std::getenv("HLTHUNK_EMU_LOG");
    result.log =
        (text != nullptr) && (*text != '\0') && (std::strcmp(text, "0") != 0);
    return result;
}

util::made_once<settings> known_settings;

} // namespace

const settings &get_settings()
{
    return known_settings.get(read_settings);
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
