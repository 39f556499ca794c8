#include "launcher/info.h"

#include "hlthunk_shim/driver_choice.h"
#include "launcher/cards.h"
#include "launcher/slot.h"
#include "launcher/trial.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include <dlfcn.h>
#include <strings.h>

namespace launcher {

namespace {

namespace fs   = std::filesystem;
namespace shim = gaudi::shim;

constexpr char try_emulator[] =
    "use the software Gaudi: ucx-gaudi info --emulate, ucx-gaudi run --emulate";

/* What the parts of the report add to. */
struct findings {
    std::string text;
    problems missing;
    bool usable = true;

    void fail(const std::string &what, const std::string &mend)
    {
        missing.push_back({what, mend});
        usable = false;
    }
};

void add_line(findings &all, const char *label, const std::string &value)
{
    char padded[16];
    std::snprintf(padded, sizeof(padded), "%-9s ", label);
    all.text += padded + gaudi::util::to_printable(value) + "\n";
}

/* --- the driver library and its cards --------------------------------------*/

std::string driver_setting()
{
    const char *value = std::getenv("UCX_GAUDI_DRIVER");
    return (value != nullptr) ? value : "auto";
}

std::string how_to_mend_driver(const std::string &setting)
{
    if (setting == "emulator") {
        return reinstall;
    }
    if (setting.find('/') != std::string::npos) {
        return "set UCX_GAUDI_DRIVER to the path of a libhl-thunk.so";
    }
    return "install the vendor's libhl-thunk.so, put its directory (usually "
           "/usr/lib/habanalabs) into LD_LIBRARY_PATH, or set "
           "UCX_GAUDI_DRIVER to its path";
}

void explain_no_card(const machine &where, findings &all)
{
    const unsigned count = count_pci_cards(where);
    if (count > 0) {
        all.fail("the machine has " + std::to_string(count) +
                     " Gaudi cards and no device node for them",
                 "load the kernel driver (modprobe habanalabs), see dmesg");
    } else {
        all.fail("no Gaudi in this machine", try_emulator);
    }
}

/* The library as the module would load it; none when it would not. */
std::unique_ptr<shim::driver> load_driver(const installation &files,
                                          const machine &where, findings &all)
{
    using outcome             = shim::driver_choice::outcome;
    const std::string setting = driver_setting();
    const auto choice =
        shim::choose_driver(setting, files.directory.string(), where.dev);
    const std::string chosen = " (UCX_GAUDI_DRIVER=" + setting + ")";

    if (choice.result == outcome::invalid) {
        add_line(all, "driver", "none" + chosen);
        all.fail("UCX_GAUDI_DRIVER='" + gaudi::util::to_printable(setting) +
                     "' is not " + shim::driver_syntax,
                 "set it to one of these, or unset it");
        return nullptr;
    }
    if (choice.result == outcome::no_card) {
        add_line(all, "driver", "none" + chosen);
        explain_no_card(where, all);
        return nullptr;
    }
    auto driver = std::make_unique<shim::driver>(choice.path);
    if (!driver->reason().empty()) {
        add_line(all, "driver", "none" + chosen);
        all.fail("the driver library cannot be used: " +
                     gaudi::util::to_printable(driver->reason()),
                 how_to_mend_driver(setting));
        return nullptr;
    }
    add_line(all, "driver", driver->file() + chosen);
    return driver;
}

std::string to_size(const std::optional<uint64_t> &bytes)
{
    if (!bytes.has_value()) {
        return "-";
    }
    constexpr double mebibyte = 1ul << 20;
    constexpr double gibibyte = 1ul << 30;
    const auto value          = static_cast<double>(*bytes);
    const bool large          = (value >= gibibyte);
    char text[32];
    std::snprintf(text, sizeof(text), "%.1f%s",
                  value / (large ? gibibyte : mebibyte), large ? "GiB" : "MiB");
    return text;
}

std::string to_text(const std::optional<unsigned> &number)
{
    return number.has_value() ? std::to_string(*number) : "-";
}

void add_table(const std::vector<card> &cards, findings &all)
{
    using row = std::array<std::string, 9>;

    std::vector<row> rows = {{"index", "module", "bus id", "numa", "HBM",
                              "free", "state", "kind", "held by"}};
    for (const card &one : cards) {
        rows.push_back({to_text(one.index), to_text(one.module_id), one.bus_id,
                        to_text(one.numa_node), to_size(one.memory),
                        to_size(one.free_memory), to_string(one.state),
                        one.software ? "emulator" : "hardware",
                        one.held_by.empty() ? "-" : describe(one.held_by)});
    }
    std::array<size_t, 9> widths{};
    for (const row &cells : rows) {
        for (size_t i = 0; i < cells.size(); ++i) {
            widths[i] = std::max(widths[i], cells[i].size());
        }
    }
    all.text += "\n";
    for (const row &cells : rows) {
        std::string line;
        for (size_t i = 0; i < cells.size(); ++i) {
            line += cells[i];
            if (i + 1 < cells.size()) {
                line.append(widths[i] - cells[i].size() + 2, ' ');
            }
        }
        all.text += gaudi::util::to_printable(line) + "\n";
    }
    all.text += "\n";
}

/* Cards of which none is left. */
void explain_taken(const std::vector<card> &cards, findings &all)
{
    std::string who;
    size_t count = 0;
    for (const card &one : cards) {
        if (!one.index.has_value()) {
            continue;
        }
        ++count;
        who += who.empty() ? "" : "; ";
        who += std::to_string(*one.index) + " by " + describe(one.held_by);
    }
    all.fail("all " + std::to_string(count) + " cards are taken: " + who,
             cards.front().software
                 ? "wait for these programs, or set HLTHUNK_EMU_NODE for "
                   "another box of software cards"
                 : "wait for these programs or end them");
}

void report_cards(const shim::driver &driver, const machine &where,
                  findings &all)
{
    const card_list list = list_cards(driver, where);
    all.missing.insert(all.missing.end(), list.complaints.begin(),
                       list.complaints.end());
    if (list.cards.empty()) {
        all.fail("the driver library shows no card",
                 (driver_setting() == "emulator")
                     ? "see to the HLTHUNK_EMU_* variables"
                     : std::string("see dmesg, and who may open the nodes in "
                                   "/dev/accel; or ") +
                           try_emulator);
        return;
    }
    add_table(list.cards, all);

    const auto can_serve = [](const card &one) {
        return one.usable && ((one.state == card_state::free) ||
                              (one.state == card_state::unknown));
    };
    const auto is_usable = [](const card &one) { return one.usable; };
    if (std::any_of(list.cards.begin(), list.cards.end(), can_serve)) {
        return;
    }
    if (std::any_of(list.cards.begin(), list.cards.end(), is_usable)) {
        explain_taken(list.cards, all);
    }
    all.usable = false;
}

/* --- UCX and the ways into it ----------------------------------------------*/

/* In one of the ways in which UCX's parser takes "no". */
bool chooses_old_protocols()
{
    const char *value = std::getenv("UCX_PROTO_ENABLE");
    if (value == nullptr) {
        return false;
    }
    constexpr const char *no[] = {"n", "no", "off", "0"};
    return std::any_of(std::begin(no), std::end(no), [&](const char *word) {
        return strcasecmp(value, word) == 0;
    });
}

found_ucx report_ucx(const installation &files, findings &all)
{
    /* Before UCX is here: what its log says of the module is to be read. */
    for (const char *name : {"UCX_LOG_LEVEL", "UCX_LOG_FILE"}) {
        unsetenv(name);
    }
    found_ucx ucx = find_ucx();
    add_line(all, "ucx",
             ucx.release.has_value() ? ucx.version + " at " + ucx.libucp
                                     : "none");

    std::string installed;
    for (const ucx_release &one : installed_releases(files)) {
        installed += (installed.empty() ? "" : ", ") + to_string(one);
    }
    problems obstacles = find_module_obstacles(files, ucx);
    const bool fits    = ucx.release.has_value() && obstacles.empty();
    add_line(all, "module",
             (fits ? module_for(files, *ucx.release).string() : "none") +
                 " (installed: " + (installed.empty() ? "none" : installed) +
                 ")");
    if (fits) {
        obstacles = try_module(files, ucx);
        if (chooses_old_protocols() &&
            (*ucx.release >= first_without_old_protocols)) {
            obstacles.push_back(
                {"UCX_PROTO_ENABLE=n chooses protocols that UCX " +
                     ucx.version + " cannot use with device memory",
                 "leave it unset, or set it to y"});
        }
    }
    for (const problem &one : obstacles) {
        all.fail(one.what, one.mend);
    }
    return ucx;
}

/* Problems that two ways share are told once. */
void add_new(const problems &found, problems &all)
{
    for (const problem &one : found) {
        if (std::none_of(all.begin(), all.end(), [&](const problem &other) {
                return other.what == one.what;
            })) {
            all.push_back(one);
        }
    }
}

/* Whether LD_PRELOAD has brought the loader into this process. */
bool is_preloaded(const installation &files)
{
    return dlopen(files.preload.c_str(), RTLD_LAZY | RTLD_NOLOAD) != nullptr;
}

bool is_in_slot(const installation &files, const found_ucx &ucx)
{
    std::error_code error;
    return !ucx.libucs.empty() &&
           fs::equivalent(ucx.libucs.parent_path(), files.slot, error);
}

bool is_in_plugin_path(const installation &files)
{
    const char *list = std::getenv("UCX_PLUGIN_PATH");
    return (list != nullptr) &&
           ((":" + std::string(list) + ":")
                .find(":" + files.plugin.string() + ":") != std::string::npos);
}

void report_way(const char *label, const fs::path &place, bool active,
                const problems &obstacles, findings &all)
{
    const char *state = active ? "active     " : "not active ";
    if (!obstacles.empty()) {
        state = "broken     ";
        add_new(obstacles, all.missing);
    }
    add_line(all, label, state + place.string());
}

void report_loading(installation files, const found_ucx &ucx, findings &all)
{
    choose_slot(files, ucx);
    const problems preload = find_obstacles(files, loading::preload, ucx);
    report_way("preload", files.preload, is_preloaded(files), preload, all);

    problems slot = find_obstacles(files, loading::slot, ucx);
    if (files.slot_module.empty()) {
        add_line(all, "slot", "none in UCX " + ucx.version);
    } else {
        report_way("slot", files.slot, is_in_slot(files, ucx), slot, all);
    }

    problems plugin = find_obstacles(files, loading::plugin, ucx);
    if (ucx.release.has_value() && (*ucx.release < first_with_plugins)) {
        add_line(all, "plugin", "none in UCX " + ucx.version);
    } else {
        report_way("plugin", files.plugin, is_in_plugin_path(files), plugin,
                   all);
    }
    if (!preload.empty() && !slot.empty() && !plugin.empty()) {
        all.usable = false;
    }
}

} // namespace

report make_report(const installation &files, const machine &where)
{
    findings all;
    const auto driver = load_driver(files, where, all);
    if (driver != nullptr) {
        report_cards(*driver, where, all);
    }
    if (driver_setting() != "emulator") {
        const problems closed = find_closed_nodes(where);
        all.missing.insert(all.missing.end(), closed.begin(), closed.end());
    }
    report_loading(files, report_ucx(files, all), all);

    std::string text = all.text;
    for (const problem &one : all.missing) {
        text += "\nmissing   " + one.what + "\nto mend   " + one.mend + "\n";
    }
    return {text, all.usable};
}

} // namespace launcher
