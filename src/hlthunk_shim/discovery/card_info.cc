/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/discovery/card_info.h"

#include "hlthunk_shim/hlthunk/card_kinds.h"
#include "hlthunk_shim/hlthunk/library.h"
#include "util/text.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include <unistd.h>

namespace gaudi::shim {

namespace {

constexpr unsigned max_cpus = 4096;

/* Where kernels show the cards. Attributes of the driver are in the class
 * device or in its "device", which is the PCI function, depending on the
 * kernel; sysfs.c of drivers/accel/habanalabs has their names. */
struct card_class {
    const char *directory;
    const char *prefix;
    const char *control; /* of the file that need no more than looking */
};
constexpr card_class classes[] = {
    {"/class/accel", "accel", "/accel/accel_controlD"},
    {"/class/habanalabs", "hl", "/hl_controlD"},
};

/* The numbers N of the entries "<prefix>N", ascending. */
std::vector<unsigned> list_numbered(const std::string &directory,
                                    const std::string &prefix)
{
    std::vector<unsigned> numbers;
    for (const auto &entry : util::list_folder(directory)) {
        const auto number =
            util::number_behind(prefix, entry.filename().native());
        if (number.has_value()) {
            numbers.push_back(*number);
        }
    }
    std::sort(numbers.begin(), numbers.end());
    return numbers;
}

std::string read_attribute(const std::string &device, const char *name)
{
    const std::string text = util::first_line(device + "/device/" + name);
    return text.empty() ? util::first_line(device + "/" + name) : text;
}

constexpr std::pair<hlthunk_device_name, const char *> type_names[] = {
    {HLTHUNK_DEVICE_GOYA, "GOYA"},
    {HLTHUNK_DEVICE_GAUDI, "GAUDI"},
    {HLTHUNK_DEVICE_GAUDI2, "GAUDI2"},
    {HLTHUNK_DEVICE_GAUDI2B, "GAUDI2B"},
    {HLTHUNK_DEVICE_GAUDI2C, "GAUDI2C"},
    {HLTHUNK_DEVICE_GAUDI2D, "GAUDI2D"},
    {HLTHUNK_DEVICE_GAUDI3, "GAUDI3"},
    {HLTHUNK_DEVICE_GAUDI3D, "GAUDI3D"},
    {HLTHUNK_DEVICE_GAUDI_HL2000M, "GAUDI HL2000M"},
};

/* Empty: the library has no name for it. */
std::string type_of(const library &lib, int fd)
{
    const auto asked = lib.hlthunk_get_device_name_from_fd(fd);
    const auto *const know =
        std::ranges::find(type_names, asked,
                          &std::pair<hlthunk_device_name, const char *>::first);
    return (know != std::end(type_names)) ? know->second : "";
}

/* By which its vendor, and this project's, can tell what it is. */
std::string describe_kind(const library &lib, int fd,
                          const hlthunk_hw_ip_info &info)
{
    char id[16];
    std::snprintf(id, sizeof(id), "%#x", info.device_id);
    std::string name = type_of(lib, fd);
    if (name.empty()) {
        const auto *text = reinterpret_cast<const char *>(info.card_name);
        name.assign(text, strnlen(text, sizeof(info.card_name)));
    }
    return "PCI device " + std::string(id) +
           (name.empty() ? "" : " " + util::to_printable(name));
}

void add_from_driver(const library &lib, int fd, card_info &card)
{
    hlthunk_hw_ip_info info{};
    if (lib.hlthunk_get_hw_ip_info(fd, &info) == 0) {
        card.module_id = info.module_id;
        card.memory    = info.dram_size;
    }
    if (card.device_type.empty()) {
        card.device_type = type_of(lib, fd);
    }
}

device_condition find_condition(const library &lib, int fd)
{
    if (lib.hlthunk_get_device_status_info == nullptr) {
        return device_condition::unknown;
    }
    switch (lib.hlthunk_get_device_status_info(fd)) {
    case device_operational:
        return device_condition::working;
    case device_in_reset:
    case device_in_creation:
    case device_resets_after_release:
        return device_condition::in_reset;
    case device_malfunction:
    case device_needs_reset:
        return device_condition::disabled;
    default:
        return device_condition::unknown; /* an error, or a newer driver's */
    }
}

/* HLTHUNK_MAX_MINOR: more device files than that do not exist. */
constexpr int max_cards = 256;

bool is_absent(int error)
{
    return (error == -ENOENT) || (error == -ENODEV) || (error == -ENXIO);
}

} // namespace

int visit_cards(const driver &of,
                const std::function<void(unsigned number, int fd,
                                         const std::string &bus_id)> &visit)
{
    const library &lib = of.lib();
    int failure        = 0;
    for (int number = 0; number < max_cards; ++number) {
        const int fd = lib.hlthunk_open_control(number, nullptr);
        if (fd < 0) {
            if ((failure == 0) && !is_absent(fd)) {
                failure = fd;
            }
            continue;
        }
        char bus_id[bus_id_size] = {};
        if (lib.hlthunk_get_pci_bus_id_from_fd(fd, bus_id, sizeof(bus_id)) ==
            0) {
            visit(static_cast<unsigned>(number), fd, bus_id);
        } else if (failure == 0) {
            hlthunk_hw_ip_info info{};
            failure = lib.hlthunk_get_hw_ip_info(fd, &info);
        }
        lib.hlthunk_close(fd);
    }
    return failure;
}

bool parse_cpu_list(const std::string &text, std::vector<unsigned> &cpus_p)
{
    std::set<unsigned> cpus;
    for (const std::string &item :
         text.empty() ? std::vector<std::string>() : util::split(text)) {
        const auto ends  = util::split(item, '-');
        const auto first = util::parse_number(ends.front());
        const auto last  = util::parse_number(ends.back());
        if (!first.has_value() || !last.has_value() || (ends.size() > 2) ||
            (*last < *first) || (*last >= max_cpus)) {
            return false;
        }
        for (unsigned cpu = *first; cpu <= *last; ++cpu) {
            cpus.insert(cpu);
        }
    }
    cpus_p.assign(cpus.begin(), cpus.end());
    return true;
}

void add_from_sysfs(const std::string &sys, card_info &card)
{
    const std::string function = sys + "/bus/pci/devices/" + card.bus_id;
    if (util::first_line(function + "/vendor") != gaudi_vendor) {
        return; /* another device has that place, or none */
    }
    card.numa_node =
        util::parse_number(util::first_line(function + "/numa_node"));
    card.local_cpus = util::first_line(function + "/local_cpulist");
}

std::vector<card_info> list_sysfs_cards(const std::string &sys,
                                        const std::string &dev)
{
    std::vector<card_info> cards;
    for (const card_class &known : classes) {
        const std::string directory = sys + known.directory;
        for (unsigned number : list_numbered(directory, known.prefix)) {
            const std::string device =
                directory + "/" + known.prefix + std::to_string(number);
            const std::string control =
                dev + known.control + std::to_string(number);
            if ((util::first_line(device + "/device/vendor") != gaudi_vendor) ||
                (!dev.empty() && (access(control.c_str(), F_OK) != 0))) {
                continue; /* another vendor's, or not for this container */
            }
            card_info card;
            card.index       = static_cast<unsigned>(cards.size());
            card.number      = number;
            card.bus_id      = read_attribute(device, "pci_addr");
            card.device_type = read_attribute(device, "device_type");
            card.module_id =
                util::parse_number(read_attribute(device, "module_id"));
            if (card.bus_id.size() + 1 != bus_id_size) {
                return {};
            }
            add_from_sysfs(sys, card);
            cards.push_back(std::move(card));
        }
        if (!cards.empty()) {
            break; /* a kernel has one of the two */
        }
    }
    return cards;
}

card_info describe_card(const driver &of, unsigned number, int fd,
                        const std::string &bus_id, const system_places &places)
{
    card_info card;
    card.number = number;
    card.bus_id = bus_id;
    add_from_driver(of.lib(), fd, card);
    const std::string sys = of.sysfs(places.sys);
    if (!sys.empty()) {
        add_from_sysfs(sys, card);
    }
    return card;
}

card_check check_card(const driver &of, int fd)
{
    const library &lib = of.lib();
    card_check result;
    hlthunk_hw_ip_info info{};
    result.error           = lib.hlthunk_get_hw_ip_info(fd, &info);
    const card_kind &kind  = lib.kind_of(fd, info.device_id);
    result.supported       = is_supported(kind);
    result.takes_framework = is_for_frameworks(kind);
    result.known           = is_known(kind);
    if ((result.error == 0) && !result.supported && !result.takes_framework) {
        result.foreign =
            "no " + supported_kinds() + ", but " + describe_kind(lib, fd, info);
    }
    if ((result.error == 0) && result.foreign.empty() &&
        !may_be_device_memory(info.dram_base_address)) {
        result.supported       = false;
        result.takes_framework = false;
        result.foreign = "a card whose memory has addresses of host memory";
    }
    result.condition = find_condition(lib, fd);
    hlthunk_dram_usage_info usage{};
    if ((lib.hlthunk_get_dram_usage != nullptr) &&
        (lib.hlthunk_get_dram_usage(fd, &usage) == 0)) {
        result.free_memory = usage.dram_free_mem;
    }
    return result;
}

std::string why_refused(const driver &of, const std::string &bus_id)
{
    const library &lib = of.lib();
    const int fd       = lib.hlthunk_open_control(-1, bus_id.c_str());
    card_check found;
    if (fd >= 0) {
        found = check_card(of, fd);
        lib.hlthunk_close(fd);
    }
    return found.foreign.empty()
               ? of.why_not_supported()
               : "card " + bus_id + " is " + found.foreign +
                     (found.known ? "" : std::string("; ") + try_unknown);
}

std::optional<bool> is_taken(const driver &of, int fd)
{
    const library &lib = of.lib();
    hlthunk_open_stats_info stats{};
    if ((lib.hlthunk_get_open_stats == nullptr) ||
        (lib.hlthunk_get_open_stats(fd, &stats) != 0)) {
        return std::nullopt;
    }
    return (stats.is_compute_ctx_active != 0) ||
           (stats.compute_ctx_in_release != 0);
}

std::vector<card_info> list_cards(const driver &of, const system_places &places)
{
    const library &lib = of.lib();
    std::vector<card_info> cards;
    const std::string sys = of.sysfs(places.sys);
    if (!sys.empty()) {
        cards = list_sysfs_cards(sys, of.own_dev().empty() ? places.dev : "");
    }
    if (!cards.empty()) {
        for (card_info &card : cards) {
            if (card.module_id.has_value()) {
                continue; /* kernels before 6.8 do not show it */
            }
            const int fd = lib.hlthunk_open_control(
                static_cast<int>(card.number), nullptr);
            if (fd >= 0) {
                add_from_driver(lib, fd, card);
                lib.hlthunk_close(fd);
            }
        }
        return cards;
    }

    (void)visit_cards(
        of, [&](unsigned number, int fd, const std::string &bus_id) {
            card_info card = describe_card(of, number, fd, bus_id, places);
            card.index     = static_cast<unsigned>(cards.size());
            cards.push_back(std::move(card));
        });
    return cards;
}

} // namespace gaudi::shim
