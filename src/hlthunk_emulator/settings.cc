#include "hlthunk_emulator/settings.h"

#include "hlthunk_emulator/trace_file.h"
#include "util/made_once.h"

#include <bit>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::emu {

namespace {

constexpr size_t max_node_name = 64;

/* @param wrong  What is, behind name and value. */
void refuse(settings &result, const char *name, const char *value,
            const std::string &wrong)
{
    std::fprintf(stderr,
                 "hlthunk-emu: %s='%s' %s; the emulated box has no cards\n",
                 name, value, wrong.c_str());
    result.valid   = false;
    result.devices = 0;
}

/* A variable whose empty value is as good as none. */
const char *text_of(const char *name)
{
    const char *text = secure_getenv(name);
    return ((text != nullptr) && (*text != '\0')) ? text : nullptr;
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

/* @param text   Of the variable, if it is set.
 * @param parse  Whether it is as expected. */
template <typename Parse>
void read(settings &result, const char *name, const char *text,
          const std::string &expected, Parse &&parse)
{
    if ((text != nullptr) && !parse(text)) {
        refuse(result, name, text, "is not " + expected);
    }
}

/* Read a number, if it is set. */
template <typename Parse>
void read(settings &result, const char *name, const std::string &expected,
          Parse &&parse)
{
    read(result, name, secure_getenv(name), expected, parse);
}

/* Read a variable that is no number: an empty one is not set. */
template <typename Parse>
void read_text(settings &result, const char *name, const std::string &expected,
               Parse &&parse)
{
    read(result, name, text_of(name), expected, parse);
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

/* How many opens of each card find it in reset, and what else goes wrong.
 * Empty, or what is wrong with the list. */
std::string add_faults(const char *text, settings &result)
{
    std::vector<fault> wished;
    std::string wrong =
        parse_faults(text, result.valid ? result.devices : max_cards, wished);
    for (const fault &each : wished) {
        if (each.call == faulty_call::now) {
            wrong = "'now' is when a program says so";
        }
        if (each.call != faulty_call::reset) {
            result.faults.push_back(each);
        } else if (each.card.has_value()) {
            result.resets[*each.card] = each.effect.opens;
        } else {
            result.resets.fill(each.effect.opens);
        }
    }
    return wrong;
}

void read_faults(settings &result)
{
    const char *name = "HLTHUNK_EMU_FAULTS";
    const char *text = text_of(name);
    const std::string wrong =
        (text != nullptr) ? add_faults(text, result) : std::string();
    if (!wrong.empty()) {
        refuse(result, name, text, "is not a list of faults: " + wrong);
    }
}

bool read_node(const std::string &text, settings &result)
{
    struct stat info;
    if (!text.starts_with('/')) {
        const bool good = (text.size() <= max_node_name);
        result.node     = good ? text : result.node;
        return good;
    }
    if ((stat(text.c_str(), &info) != 0) || !S_ISDIR(info.st_mode) ||
        (info.st_uid != geteuid()) || ((info.st_mode & 022) != 0)) {
        return false;
    }
    /* By whatever path. */
    result.node = "folder-" + std::to_string(info.st_dev) + "-" +
                  std::to_string(info.st_ino);
    result.folder = text;
    return true;
}

void read_timing(settings &result)
{
    const char *name      = "HLTHUNK_EMU_TIMING";
    const char *text      = text_of(name);
    const std::string how = (text != nullptr) ? text : "off";
    std::string why;
    if (how == "hls2") {
        result.timing = hls2_figures;
    } else if (how == "hls3") {
        result.timing = hls3_figures;
    } else if ((how != "off") &&
               !read_figures(how, result.timing.emplace(), why)) {
        refuse(result, name, text, "(off, hls2, hls3 or a file): " + why);
    }
}

void read_trace(settings &result)
{
    const char *name = "HLTHUNK_EMU_TRACE";
    const char *path = text_of(name);
    if (path == nullptr) {
        return;
    }
    result.trace    = path;
    const int error = why_no_trace(result.trace);
    if (error != 0) {
        refuse(result, name, path,
               std::string("(a file to write): ") + std::strerror(error));
    }
}

void read_kind(settings &result)
{
    result.kind = find_asic("gaudi2");
    read_text(result, "HLTHUNK_EMU_ASIC",
              "a known card: one of " + asic_names(),
              [&](const std::string &text) {
                  const asic *found = find_asic(text);
                  result.kind       = (found != nullptr) ? found : result.kind;
                  return found != nullptr;
              });
}

/* Gaudi2 has pages of 8 MiB, or sixteen times that, for each HBM that works. */
void read_page(settings &result)
{
    const bool any_power = result.kind->user_page_size;
    result.dram_page     = result.kind->dram_page;
    read(result, "HLTHUNK_EMU_DRAM_PAGE",
         any_power ? "a power of two from 2M to 1G"
                   : "a multiple of 8M up to 1G",
         [&](const char *text) {
             uint64_t size = 0;
             const bool good =
                 parse_size(text, size) && (size <= 1ull << 30) &&
                 (any_power ? (std::has_single_bit(size) && (size >= 2 << 20))
                            : ((size != 0) && (size % (8 << 20) == 0)));
             result.dram_page = good ? size : result.dram_page;
             return good;
         });
}

void read_memory(settings &result)
{
    read_page(result);
    result.hbm = result.kind->memory;
    read_number(result, "HLTHUNK_EMU_HBM", 2 * result.dram_page, 1ull << 40,
                "a size from two DRAM pages to 1T", result.hbm);
    result.hbm -= result.hbm % result.dram_page;
}

/* Whether a text begins with a decimal number; moves behind it. */
bool parse_count(const char *&text, unsigned long &value)
{
    if ((*text < '0') || (*text > '9')) {
        return false;
    }
    char *end = nullptr;
    value     = std::strtoul(text, &end, 10);
    text      = end;
    return true;
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

/* Groups of cards, "0-3,4-7". A card of none is by itself. */
bool parse_groups(const char *text, unsigned cards,
                  std::vector<unsigned> &groups)
{
    constexpr unsigned none = UINT32_MAX;
    std::vector<unsigned> found(cards, none);
    unsigned next = 0;
    for (const char *at = text;; ++at) {
        unsigned long first = 0;
        if (!parse_count(at, first)) {
            return false;
        }
        unsigned long last = first;
        if ((*at == '-') && !parse_count(++at, last)) {
            return false;
        }
        for (unsigned long i = first; i <= last; ++i) {
            if ((i >= cards) || (found[i] != none)) {
                return false;
            }
            found[i] = next;
        }
        ++next;
        if ((last < first) || ((*at != ',') && (*at != '\0'))) {
            return false;
        }
        if (*at == '\0') {
            break;
        }
    }
    for (unsigned &group : found) {
        group = (group == none) ? next++ : group;
    }
    groups = std::move(found);
    return true;
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
    read_memory(result);
    if (result.valid) {
        result.devices = static_cast<unsigned>(devices);
        result.engines = static_cast<unsigned>(engines);
    }
    read_text(result, "HLTHUNK_EMU_NODE",
              "a name of 1 to 64 characters, or the path of a folder that only "
              "you may write to",
              [&](const std::string &text) { return read_node(text, result); });
    read_text(result, "HLTHUNK_EMU_IMPORT",
              "y (as the vendor's driver) or n (as the mainline one)",
              [&](const std::string &text) {
                  result.import = (text == "y");
                  return result.import || (text == "n");
              });
    result.edma_mask = result.kind->edma_mask;
    read(result, "HLTHUNK_EMU_EDMA", "a mask of at most 8 engines, as 0xff",
         [&](const char *text) {
             return parse_mask(text, result.kind->edma_mask, result.edma_mask);
         });
    read_text(result, "HLTHUNK_EMU_P2P",
              "a list of groups of cards, as 0-3,4-7, each card in one at most",
              [&](const char *text) {
                  return !result.valid ||
                         parse_groups(text, result.devices, result.p2p);
              });
    read_text(
        result, "HLTHUNK_EMU_NUMA",
        "a list of NUMA nodes, one for each card or one for all, -1 for an "
        "unknown one",
        [&](const std::string &text) {
            return !result.valid ||
                   parse_nodes(text.c_str(), result.devices, result.numa);
        });
    read_faults(result);
    read_text(result, "HLTHUNK_EMU_SYSFS", "an absolute path",
              [&](const std::string &text) {
                  const bool good = text.starts_with('/');
                  result.sysfs    = good ? text : "";
                  return good;
              });

    read_timing(result);
    read_trace(result);

    const char *text = text_of("HLTHUNK_EMU_LOG");
    result.log       = (text != nullptr) && (std::strcmp(text, "0") != 0);
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
