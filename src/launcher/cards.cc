#include "launcher/cards.h"

#include "hlthunk_shim/cards/card_info.h"
#include "hlthunk_shim/cards/open_nodes.h"
#include "hlthunk_shim/cards/visible_cards.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>

#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

namespace launcher {

namespace {

namespace fs = std::filesystem;

/* Compute and control nodes, of new and old kernels. */
bool is_node_name(const std::string &name)
{
    constexpr const char *prefixes[] = {"accel", "accel_controlD", "hl",
                                        "hl_controlD"};
    return std::any_of(
        std::begin(prefixes), std::end(prefixes), [&](const char *prefix) {
            return gaudi::util::number_behind(prefix, name).has_value();
        });
}

/* Other vendors' accelerators have nodes there, too. */
bool is_foreign(const machine &where, const std::string &name)
{
    const std::string vendor = gaudi::util::first_line(
        where.sys + "/class/accel/" + name + "/device/vendor");
    return !vendor.empty() && (vendor != gaudi::shim::gaudi_vendor);
}

std::vector<std::string> find_nodes(const machine &where)
{
    std::vector<std::string> nodes;
    for (const std::string &directory : {where.dev + "/accel", where.dev}) {
        for (const fs::path &entry : gaudi::util::list_folder(directory)) {
            const std::string name = entry.filename().string();
            std::error_code error;
            if (is_node_name(name) && !fs::is_directory(entry, error) &&
                !is_foreign(where, name)) {
                nodes.push_back(entry.string());
            }
        }
    }
    std::sort(nodes.begin(), nodes.end());
    return nodes;
}

std::string group_name(gid_t number)
{
    const group *entry = getgrgid(number);
    return (entry != nullptr) ? entry->gr_name : std::to_string(number);
}

/* Whether the compute node is there and does not let this user in. */
bool is_closed(const std::string &dev, unsigned number)
{
    for (const std::string &path : gaudi::shim::compute_files(dev, number)) {
        if ((faccessat(AT_FDCWD, path.c_str(), R_OK | W_OK, AT_EACCESS) != 0) &&
            (errno != ENOENT)) {
            return true;
        }
    }
    return false;
}

/* Cards that do not answer, and those that the transports do not know. */
void complain_of_kind(const gaudi::shim::card_check &check,
                      const gaudi::shim::card_info &self, card &found,
                      problems &complaints)
{
    const std::string which =
        "card " + std::to_string(self.index) + " (" + self.bus_id + ")";
    if (check.error != 0) {
        found.usable = false;
        complaints.push_back(
            {which + " does not answer: " + std::strerror(-check.error),
             "wait for its reset to end, or look at dmesg"});
    } else if (!check.supported) {
        found.usable = false;
        complaints.push_back(
            {which + " is no " + gaudi::shim::driver::supported_kinds(),
             "none yet: the transports know no other card"});
    }
}

/* The names that the transports give to cards; complains of variables that they
 * refuse.
 *
 * box  The cards of the list, in its order. */
void add_names(const std::vector<gaudi::shim::card_info> &box, card_list &list)
{
    const auto visible = gaudi::shim::find_visible_cards(
        gaudi::shim::visibility_variables::read(), box);
    if (!visible.error.empty()) {
        list.complaints.push_back({gaudi::util::to_printable(visible.error),
                                   "correct this variable, or unset it"});
    } else if (visible.cards.empty() && !box.empty()) {
        list.complaints.push_back({"HABANA_VISIBLE_DEVICES hides all cards",
                                   "unset it, or set it to all"});
    }
    for (const auto &named : visible.cards) {
        list.cards[named.info.index].index = named.index;
    }
    for (card &one : list.cards) {
        one.usable &= one.index.has_value();
    }
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
                      const std::vector<gaudi::shim::holder> &seen, uid_t user)
{
    for (const gaudi::shim::holder &one : seen) {
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

card_list list_cards(const gaudi::shim::driver &driver, const machine &where)
{
    const auto all = gaudi::shim::find_holders(driver.own_dev(), where.proc);
    const bool software                     = !driver.box_name().empty();
    const gaudi::shim::system_places places = {where.sys, where.dev};
    std::vector<gaudi::shim::card_info> box;
    card_list list;

    const int failure = gaudi::shim::visit_cards(
        driver, [&](unsigned number, int fd, const std::string &bus_id) {
            auto self =
                gaudi::shim::describe_card(driver, number, fd, bus_id, places);
            self.index       = static_cast<unsigned>(box.size());
            const auto check = gaudi::shim::check_card(driver, fd);
            card found{};
            found.bus_id      = bus_id;
            found.module_id   = self.module_id;
            found.memory      = self.memory;
            found.free_memory = check.free_memory;
            found.numa_node   = self.numa_node;
            found.software    = software;
            complain_of_kind(check, self, found, list.complaints);
            found.held_by = gaudi::shim::holders_of(all, driver, number);
            found.state   = find_state(gaudi::shim::is_taken(driver, fd),
                                       found.held_by, geteuid());
            found.usable &= software || !is_closed(where.dev, number);
            list.cards.push_back(std::move(found));
            box.push_back(std::move(self));
        });
    if (failure != 0) {
        list.complaints.push_back(
            {std::string("a control node cannot be opened: ") +
                 std::strerror(-failure),
             "see to the permissions of the nodes, or look at dmesg"});
    }
    add_names(box, list);
    return list;
}

problems find_closed_nodes(const machine &where)
{
    /* Usually all nodes have one owner and one reason. */
    std::map<std::pair<gid_t, mode_t>, std::vector<std::string>> closed;
    for (const std::string &node : find_nodes(where)) {
        struct stat info;
        if ((faccessat(AT_FDCWD, node.c_str(), R_OK | W_OK, AT_EACCESS) != 0) &&
            (stat(node.c_str(), &info) == 0)) {
            closed[{info.st_gid, info.st_mode & 0777u}].push_back(node);
        }
    }

    problems found;
    for (const auto &[owner, nodes] : closed) {
        const auto &[gid, mode] = owner;
        const std::string name  = group_name(gid);
        const std::string and_more =
            " and " + std::to_string(nodes.size() - 1) + " more";
        char bits[8];
        std::snprintf(bits, sizeof(bits), "%04o", mode);
        const bool for_group = (mode & 0060u) == 0060u;
        found.push_back(
            {"no permission to open " + nodes.front() +
                 ((nodes.size() > 1) ? and_more : "") + " (group " + name +
                 ", mode " + bits + ")",
             for_group ? "join the group (usermod -aG " + name +
                             " USER) and log in again"
                       : "let root give a group access to it (chgrp, chmod "
                         "0660, or a udev rule)"});
    }
    return found;
}

unsigned count_pci_cards(const machine &where)
{
    const auto devices =
        gaudi::util::list_folder(where.sys + "/bus/pci/devices");
    return static_cast<unsigned>(std::count_if(
        devices.begin(), devices.end(), [](const fs::path &device) {
            return gaudi::util::first_line(device / "vendor") ==
                   gaudi::shim::gaudi_vendor;
        }));
}

} // namespace launcher
