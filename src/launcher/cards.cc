#include "launcher/cards.h"

#include "hlthunk_shim/cards/card_info.h"
#include "hlthunk_shim/cards/control_nodes.h"
#include "hlthunk_shim/cards/visible_cards.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace launcher {

namespace {

/* Whether the compute node is there and does not let this user in. */
bool is_closed(const std::string &dev, int node)
{
    for (const std::string &path : gaudi::shim::node_paths(dev, node)) {
        if ((faccessat(AT_FDCWD, path.c_str(), R_OK | W_OK, AT_EACCESS) != 0) &&
            (errno != ENOENT)) {
            return true;
        }
    }
    return false;
}

/* Cards that do not answer, and those that the transports do not know. */
void complain_of_kind(const gaudi::shim::library &driver, int fd,
                      const gaudi::shim::card_info &self, card &found,
                      problems &complaints)
{
    const std::string which =
        "card " + std::to_string(self.index) + " (" + self.bus_id + ")";
    hlthunk_hw_ip_info info{};
    const int result = driver.hlthunk_get_hw_ip_info(fd, &info);
    if (result != 0) {
        found.usable = false;
        complaints.push_back(
            {which + " does not answer: " + std::strerror(-result),
             "wait for its reset to end, or look at dmesg"});
    } else if (info.device_id != gaudi::shim::pci_id_gaudi2) {
        found.usable = false;
        complaints.push_back({which + " is no Gaudi2",
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

card_list list_cards(const gaudi::shim::library &driver, const machine &where)
{
    const auto all      = gaudi::shim::find_holders(where.proc);
    const bool emulated = !gaudi::shim::box_name(driver).empty();
    const gaudi::shim::system_places places = {where.sys, where.dev};
    std::vector<gaudi::shim::card_info> box;
    card_list list;

    const int failure = gaudi::shim::visit_cards(
        driver, [&](int node, int fd, const std::string &bus_id) {
            auto self = gaudi::shim::describe_card(
                driver, static_cast<unsigned>(node), fd, bus_id, places);
            self.index = static_cast<unsigned>(box.size());
            card found{};
            found.bus_id    = bus_id;
            found.module_id = self.module_id;
            found.memory    = self.memory;
            found.numa_node = self.numa_node;
            found.emulated  = emulated;
            complain_of_kind(driver, fd, self, found, list.complaints);
            hlthunk_dram_usage_info usage{};
            if ((driver.hlthunk_get_dram_usage != nullptr) &&
                (driver.hlthunk_get_dram_usage(fd, &usage) == 0)) {
                found.free_memory = usage.dram_free_mem;
            }
            found.held_by = gaudi::shim::holders_of(all, driver, node);
            found.state   = find_state(gaudi::shim::is_taken(driver, fd),
                                       found.held_by, geteuid());
            found.usable &= emulated || !is_closed(where.dev, node);
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

} // namespace launcher
