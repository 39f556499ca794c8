/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/discovery/visible_cards.h"
#include "hlthunk_shim/hlthunk/library.h"
#include "hlthunk_shim/report/report.h"
#include "util/made_once.h"
#include "util/text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace gaudi::shim {

namespace {

using util::to_printable;

/* What is wrong with cards, in one line for all that have it. */
struct complaint {
    std::string what;
    std::string fix;
    std::string cards;
};

using complaints = std::vector<complaint>;

/* Once at most, as it takes a while. */
const std::string &why_no_synapse()
{
    static util::made_once<std::string> why;
    return why.get([] { return driver::why_no_synapse(); });
}

/* How the IOMMU treats what a card reads and writes: "identity" where it
 * translates nothing, "DMA", "DMA-FQ" where it does (iommu_group_show_type in
 * drivers/iommu/iommu.c); empty: there is none, or sysfs does not tell. */
std::string iommu_type(const std::string &sys, const std::string &bus_id)
{
    return util::first_line(sys + "/bus/pci/devices/" + bus_id +
                            "/iommu_group/type");
}

std::string advise_framework(engine used)
{
    const std::string advice = driver::how_to_use_synapse(used);
    return why_no_synapse().empty()
               ? advice
               : advice + "; libSynapse.so cannot be loaded now: put its "
                          "directory into LD_LIBRARY_PATH";
}

void add_complaint(const std::string &what, const std::string &fix,
                   const card_info &card, complaints &all)
{
    const std::string name =
        std::to_string(card.index) + " (" + card.bus_id + ")";
    const auto same = std::ranges::find(all, what, &complaint::what);
    if (same != all.end()) {
        same->cards += ", " + name;
    } else {
        all.push_back({what, fix, name});
    }
}

/* Add what is wrong with a card that does not work, or that the transports do
 * not know. Returns whether that is something. */
bool judge(const card_check &check, const card_info &card, engine used,
           complaints &all)
{
    bool wrong = true;
    if (check.condition == device_condition::in_reset) {
        add_complaint("in reset",
                      "wait some seconds: cards are reset after each program; "
                      "UCX_GAUDI_RESET_TIMEOUT is how long programs wait",
                      card, all);
    } else if (check.condition == device_condition::disabled) {
        add_complaint("disabled by its driver",
                      "look at dmesg, and load the kernel driver again "
                      "(modprobe -r habanalabs; modprobe habanalabs)",
                      card, all);
    } else if (check.error != 0) {
        add_complaint(std::string("no answer: ") + std::strerror(-check.error),
                      "wait for its reset to end, or look at dmesg", card, all);
    } else {
        wrong = false;
    }
    if (check.takes_framework && (used != engine::synapse)) {
        add_complaint("takes work through SynapseAI alone",
                      advise_framework(used), card, all);
    } else if (!check.foreign.empty()) {
        add_complaint(check.foreign,
                      std::string("use a release of ucx-gaudi that knows it") +
                          (check.known ? "" : std::string("; ") + try_unknown),
                      card, all);
    } else {
        return wrong;
    }
    return true;
}

/* The names that the transports give to cards; complains of variables that they
 * refuse. */
void add_names(report &all)
{
    const auto visible = find_visible_cards(
        visibility_variables::read(), {all.cards.begin(), all.cards.end()});
    if (!visible.error.empty()) {
        all.missing.push_back({to_printable(visible.error),
                               "correct this variable, or unset it"});
    } else if (visible.cards.empty() && !all.cards.empty()) {
        all.missing.push_back({"HABANA_VISIBLE_DEVICES hides all cards",
                               "unset it, or set it to all"});
    }
    for (const auto &named : visible.cards) {
        all.cards[named.info.index].name = named.index;
    }
    for (reported_card &one : all.cards) {
        one.usable &= one.name.has_value();
    }
}

} // namespace

bool is_closed(const std::string &node)
{
    return (faccessat(AT_FDCWD, node.c_str(), R_OK | W_OK, AT_EACCESS) != 0) &&
           (errno != ENOENT);
}

card_state find_state(std::optional<bool> taken,
                      const std::vector<holder> &seen, uid_t user)
{
    if (std::any_of(seen.begin(), seen.end(),
                    [&](const holder &one) { return one.user == user; })) {
        return card_state::ours;
    }
    if (!seen.empty() || taken.value_or(false)) {
        return card_state::busy;
    }
    return taken.has_value() ? card_state::free : card_state::unknown;
}

void tell_before_loading(void (*tell)(const char *path))
{
    library::before_loading = tell;
}

void add_cards(const driver &of, const machine &where, report &all)
{
    const auto all_holders = find_holders(of.own_dev(), where.proc);
    const bool software    = !of.box_name().empty();
    all.software           = software;
    bool takes_submission  = false; /* one of them does */
    complaints found;

    const auto visit = [&](unsigned number, int fd, const std::string &bus_id) {
        reported_card self{
            describe_card(of, number, fd, bus_id, {where.sys, where.dev})};
        const auto check     = check_card(of, fd);
        const auto nodes     = compute_files(where.dev, number);
        self.index           = static_cast<unsigned>(all.cards.size());
        self.free_memory     = check.free_memory;
        self.held_by         = holders_of(all_holders, of.own_dev(), number);
        self.takes_framework = check.takes_framework;
        self.state =
            (check.condition == device_condition::in_reset) ? card_state::reset
            : (check.condition == device_condition::disabled)
                ? card_state::broken
                : find_state(is_taken(of, fd), self.held_by, geteuid());
        self.usable =
            !judge(check, self, of.used(), found) &&
            (software || std::none_of(nodes.begin(), nodes.end(), is_closed));
        const std::string type = iommu_type(of.sysfs(where.sys), bus_id);
        if (type.starts_with("DMA")) {
            /* It works on most machines, so that the card counts. */
            add_complaint("behind an IOMMU that translates: " + type,
                          "boot with iommu=pt: without, machines have been "
                          "reported to crash when a card is acquired",
                          self, found);
        }
        takes_submission |= check.supported;
        all.cards.push_back(std::move(self));
    };
    const int failure = visit_cards(of, visit);

    if ((of.used() == engine::synapse) && !all.cards.empty() &&
        !why_no_synapse().empty()) {
        all.missing.push_back(
            {"UCX_GAUDI_ENGINE=synapse, and SynapseAI cannot be used: " +
                 why_no_synapse(),
             std::string("put the directory of libSynapse.so (usually "
                         "/usr/lib/habanalabs) into LD_LIBRARY_PATH") +
                 (takes_submission ? ", or unset UCX_GAUDI_ENGINE" : "")});
        for (reported_card &one : all.cards) {
            one.usable = false;
        }
    }
    for (const complaint &one : found) {
        all.missing.push_back({"card " + one.cards + ": " + one.what, one.fix});
    }
    if (failure != 0) {
        all.missing.push_back(
            {std::string("a control node cannot be used: ") +
                 std::strerror(-failure),
             "see to the permissions of the nodes, look at dmesg, or install "
             "the libhl-thunk.so of this kernel's driver"});
    }
    add_names(all);
}

namespace {

/* Unless a card is left. What is wrong with others was told. */
void explain_taken(report &all)
{
    std::string who;
    size_t named = 0;
    size_t taken = 0;
    for (const reported_card &one : all.cards) {
        named += one.name.has_value() ? 1 : 0;
        if (one.usable && ((one.state == card_state::ours) ||
                           (one.state == card_state::busy))) {
            ++taken;
            who += (who.empty() ? "" : "; ") + std::to_string(*one.name) +
                   " by " + describe(one.held_by);
        }
    }
    if (taken > 0) {
        const std::string count = "all " + std::to_string(taken);
        all.missing.push_back(
            {((taken == named) ? count + " cards are"
              : (taken == 1)   ? "the other card is"
                               : count + " other cards are") +
                 " taken: " + who,
             all.software
                 ? "wait for these programs, or set HLTHUNK_EMU_NODE for "
                   "another box of software cards"
                 : "wait for these programs or end them"});
    }
}

} // namespace

void add_box(const driver &of, const std::string &routes, report &all,
             const machine &where)
{
    all.driver_file = of.file();
    all.sys         = of.sysfs(where.sys);
    add_cards(of, where, all);
    add_links(of, all);
    all.usable = add_pairs(routes, all) &&
                 std::ranges::any_of(all.cards, &reported_card::is_free);
    if (std::ranges::none_of(all.cards, &reported_card::is_free)) {
        explain_taken(all);
    }
}

} // namespace gaudi::shim
