#include "launcher/cards.h"

#include "hlthunk_shim/control_nodes.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace launcher {

namespace {

constexpr char hook_of_emulator[] = "hlthunk_emu_get_counters";
constexpr char default_box[]      = "0";

std::string box_name()
{
    const char *name = std::getenv("HLTHUNK_EMU_NODE");
    return (name != nullptr) ? name : default_box;
}

/* Whether somebody has the compute node open; none: the library is too old. */
std::optional<bool> is_taken(const gaudi::shim::library &driver, int fd)
{
    hlthunk_open_stats_info stats{};
    if ((driver.hlthunk_get_open_stats == nullptr) ||
        (driver.hlthunk_get_open_stats(fd, &stats) != 0)) {
        return std::nullopt;
    }
    return (stats.is_compute_ctx_active != 0) ||
           (stats.compute_ctx_in_release != 0);
}

std::vector<holder> holders_of(const holders &all, bool emulated, int node)
{
    const std::vector<std::string> paths =
        emulated
            ? std::vector<std::string>{emulated_node_path(box_name(), node)}
            : node_paths("/dev", node);
    for (const std::string &path : paths) {
        const auto found = all.find(path);
        if (found != all.end()) {
            return found->second;
        }
    }
    return {};
}

/* Whether the compute node is there and does not let this user in. */
bool is_closed(const std::string &dev, int node)
{
    for (const std::string &path : node_paths(dev, node)) {
        if ((faccessat(AT_FDCWD, path.c_str(), R_OK | W_OK, AT_EACCESS) != 0) &&
            (errno != ENOENT)) {
            return true;
        }
    }
    return false;
}

} // namespace

const char *to_string(card_state state)
{
    switch (state) {
    case card_state::free:
        return "free";
    case card_state::ours:
        return "ours";
    case card_state::busy:
        return "busy";
    case card_state::unknown:
        break;
    }
    return "unknown";
}

card_state find_state(std::optional<bool> taken,
                      const std::vector<holder> &seen, uid_t user)
{
    for (const holder &one : seen) {
        if (one.user == user) {
            return card_state::ours;
        }
    }
    if (!seen.empty()) {
        return card_state::busy;
    }
    if (!taken.has_value()) {
        return card_state::unknown;
    }
    return *taken ? card_state::busy : card_state::free;
}

std::optional<unsigned> numa_node_of(const std::string &sys,
                                     const std::string &bus_id)
{
    const std::string device = sys + "/bus/pci/devices/" + bus_id;
    if (read_word(device + "/vendor") != gaudi_vendor) {
        return std::nullopt; /* another device has that place, or none */
    }
    const std::string node = read_word(device + "/numa_node");
    /* -1 is the kernel's "unknown". */
    if (node.empty() || (node.find_first_not_of("0123456789") != node.npos)) {
        return std::nullopt;
    }
    return static_cast<unsigned>(std::strtoul(node.c_str(), nullptr, 10));
}

card_list list_cards(const gaudi::shim::library &driver, const machine &where)
{
    const holders all   = find_holders(where.proc);
    const bool emulated = (driver.find(hook_of_emulator) != nullptr);
    card_list list;

    const int failure = gaudi::shim::visit_cards(
        driver, [&](int node, int fd, const std::string &bus_id) {
            card found{};
            found.index    = static_cast<unsigned>(list.cards.size());
            found.bus_id   = bus_id;
            found.emulated = emulated;

            hlthunk_hw_ip_info info{};
            const int result = driver.hlthunk_get_hw_ip_info(fd, &info);
            if (result == 0) {
                found.module_id = info.module_id;
                found.memory    = info.dram_size;
                if (info.device_id != gaudi::shim::pci_id_gaudi2) {
                    found.usable = false;
                    list.complaints.push_back(
                        {"card " + std::to_string(found.index) + " (" + bus_id +
                             ") is no Gaudi2",
                         "none yet: the transports know no other card"});
                }
            } else {
                found.usable = false;
                list.complaints.push_back(
                    {"card " + std::to_string(found.index) + " (" + bus_id +
                         ") does not answer: " + std::strerror(-result),
                     "wait for its reset to end, or look at dmesg"});
            }
            hlthunk_dram_usage_info usage{};
            if ((driver.hlthunk_get_dram_usage != nullptr) &&
                (driver.hlthunk_get_dram_usage(fd, &usage) == 0)) {
                found.free_memory = usage.dram_free_mem;
            }
            found.numa_node = numa_node_of(where.sys, bus_id);
            found.held_by   = holders_of(all, emulated, node);
            found.state =
                find_state(is_taken(driver, fd), found.held_by, geteuid());
            found.usable &= emulated || !is_closed(where.dev, node);
            list.cards.push_back(std::move(found));
        });
    if (failure != 0) {
        list.complaints.push_back(
            {std::string("a control node cannot be opened: ") +
                 std::strerror(-failure),
             "see to the permissions of the nodes, or look at dmesg"});
    }
    return list;
}

} // namespace launcher
