#include "launcher/cards.h"

#include "hlthunk_shim/cards/card_info.h"
#include "hlthunk_shim/cards/open_nodes.h"
#include "hlthunk_shim/cards/visible_cards.h"
#include "launcher/card_complaints.h"
#include "launcher/kernel_driver.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace launcher {

namespace {

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

/* Why the library cannot use a control node. Old libraries know none of the
 * system calls of newer kernel drivers. */
problem explain_control_node(int error, const kernel_driver &kernel)
{
    if (((error == -ENOTTY) || (error == -EINVAL)) && kernel.has_drm_calls) {
        return {"the driver library is too old for this kernel: the habanalabs "
                "driver of Linux 6.7 and later has other system calls",
                "install a newer libhl-thunk.so, of the vendor's current "
                "release, or use a kernel up to 6.6"};
    }
    return {std::string("a control node cannot be used: ") +
                std::strerror(-error),
            "see to the permissions of the nodes, or look at dmesg"};
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
    case card_state::reset:
        return "reset";
    case card_state::broken:
        return "broken";
    case card_state::unknown:
        break;
    }
    return "unknown";
}

const char *to_kind(const card &of)
{
    return of.software ? "emulator" : "hardware";
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
    using gaudi::shim::device_condition;
    const auto all = gaudi::shim::find_holders(driver.own_dev(), where.proc);
    const bool software                     = !driver.box_name().empty();
    const gaudi::shim::system_places places = {where.sys, where.dev};
    std::vector<gaudi::shim::card_info> box;
    card_complaints complaints(driver.used());
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
            found.held_by     = gaudi::shim::holders_of(all, driver, number);
            found.state       = find_state(gaudi::shim::is_taken(driver, fd),
                                           found.held_by, geteuid());
            if (check.condition == device_condition::in_reset) {
                found.state = card_state::reset;
            } else if (check.condition == device_condition::disabled) {
                found.state = card_state::broken;
            }
            found.usable = complaints.judge(check, self);
            found.usable &= software || !is_closed(where.dev, number);
            list.cards.push_back(std::move(found));
            box.push_back(std::move(self));
        });
    if (!complaints.judge_engine()) {
        for (card &one : list.cards) {
            one.usable = false;
        }
    }
    list.complaints = complaints.list();
    if (failure != 0) {
        list.complaints.push_back(
            explain_control_node(failure, find_kernel_driver(where)));
    }
    add_names(box, list);
    return list;
}

} // namespace launcher
