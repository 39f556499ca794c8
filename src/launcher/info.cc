#include "launcher/info.h"

#include "hlthunk_shim/driver_choice.h"
#include "launcher/cached_links.h"
#include "launcher/kernel_driver.h"
#include "launcher/trial.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include <dlfcn.h>
#include <strings.h>

namespace launcher {

namespace {

namespace fs   = std::filesystem;
namespace shim = gaudi::shim;

void fail(report &all, const std::string &what, const std::string &mend)
{
    all.missing.push_back({what, mend});
    all.usable = false;
}

constexpr char try_emulator[] =
    "use the software Gaudi: ucx-gaudi info --emulate, ucx-gaudi run --emulate";

/* --- the driver library and its cards --------------------------------------*/

std::string driver_setting()
{
    const char *value = std::getenv("UCX_GAUDI_DRIVER");
    return (value != nullptr) ? value : "auto";
}

/* As UCX reads it; the trial of the module finds what is none. */
shim::engine engine_setting()
{
    const char *value = std::getenv("UCX_GAUDI_ENGINE");
    const auto is     = [&](const char *name) {
        return (value != nullptr) && (strcasecmp(value, name) == 0);
    };
    return is("cs")        ? shim::engine::cs
           : is("synapse") ? shim::engine::synapse
                           : shim::engine::automatic;
}

std::string how_to_mend_driver(const std::string &setting)
{
    if (setting == "emulator") {
        return install_emulator;
    }
    if (setting.find('/') != std::string::npos) {
        return "set UCX_GAUDI_DRIVER to the path of a libhl-thunk.so";
    }
    return "install the vendor's libhl-thunk.so, put its directory (usually "
           "/usr/lib/habanalabs) into LD_LIBRARY_PATH, or set "
           "UCX_GAUDI_DRIVER to its path";
}

void explain_no_card(const machine &where, report &all)
{
    const unsigned count = count_pci_cards(where);
    if (count > 0) {
        fail(all,
             "the machine has " + std::to_string(count) +
                 ((count == 1) ? " Gaudi card" : " Gaudi cards") +
                 " and no device node",
             "load the kernel driver (modprobe habanalabs), see dmesg");
    } else {
        fail(all, "no Gaudi in this machine", try_emulator);
    }
}

/* The library as the module would load it; none when it would not. */
std::unique_ptr<shim::driver> load_driver(const installation &files,
                                          const machine &where, report &all)
{
    using outcome             = shim::driver_choice::outcome;
    const std::string setting = driver_setting();
    const auto choice =
        shim::choose_driver(setting, files.directory.string(), where.dev);
    all.driver_setting = setting;
    if (choice.result == outcome::invalid) {
        fail(all,
             "UCX_GAUDI_DRIVER='" + gaudi::util::to_printable(setting) +
                 "' is not " + shim::driver_syntax,
             "set it to one of these, or unset it");
        return nullptr;
    }
    if (choice.result == outcome::no_card) {
        explain_no_card(where, all);
        return nullptr;
    }
    auto driver = std::make_unique<shim::driver>(
        choice.path, shim::driver_options{.used = engine_setting()});
    if (!driver->reason().empty()) {
        fail(all,
             "the driver library cannot be used: " +
                 gaudi::util::to_printable(driver->reason()),
             how_to_mend_driver(setting));
        return nullptr;
    }
    all.driver_file = driver->file();
    return driver;
}

bool is_taken(const card &one)
{
    return one.usable &&
           ((one.state == card_state::ours) || (one.state == card_state::busy));
}

/* Cards of which none is left. What else is wrong with some was told. */
void explain_taken(const std::vector<card> &cards, report &all)
{
    std::string who;
    size_t named = 0;
    size_t taken = 0;
    for (const card &one : cards) {
        named += one.index.has_value() ? 1 : 0;
        if (is_taken(one)) {
            ++taken;
            who += who.empty() ? "" : "; ";
            who += std::to_string(*one.index) + " by " + describe(one.held_by);
        }
    }
    const std::string those =
        (taken == named) ? "all " + std::to_string(taken) + " cards are"
        : (taken == 1)   ? "the other card is"
                         : "all " + std::to_string(taken) + " other cards are";
    fail(all, those + " taken: " + who,
         cards.front().software
             ? "wait for these programs, or set HLTHUNK_EMU_NODE for "
               "another box of software cards"
             : "wait for these programs or end them");
}

/* A library that shows no card. */
void explain_no_shown_card(bool software, const machine &where, report &all)
{
    if (software) {
        fail(all, "the driver library shows no card",
             "see to the HLTHUNK_EMU_* variables");
    } else if (has_nodes(where)) {
        fail(all, "the driver library shows no card",
             std::string("see dmesg, and who may open the nodes in "
                         "/dev/accel; or ") +
                 try_emulator);
    } else {
        explain_no_card(where, all);
    }
}

/* What is no obstacle, but makes transfers slower. */
void note_missing_import(const machine &where, report &all)
{
    const kernel_driver kernel = find_kernel_driver(where);
    if (kernel.is_loaded && !kernel.can_import) {
        all.missing.push_back(
            {"the kernel's driver cannot import dma-bufs: copies between cards "
             "go through host memory",
             "install the vendor's kernel driver (habanalabs-dkms)"});
    }
}

void report_cards(const shim::driver &driver, const machine &where, report &all)
{
    const bool software = !driver.box_name().empty();
    card_list list      = list_cards(driver, where);
    all.missing.insert(all.missing.end(), list.complaints.begin(),
                       list.complaints.end());
    all.cards = std::move(list.cards);
    if (all.cards.empty()) {
        if (list.complaints.empty()) {
            explain_no_shown_card(software, where, all);
        }
        all.usable = false;
        return;
    }
    if (!software) {
        note_missing_import(where, all);
    }

    const auto can_serve = [](const card &one) {
        return one.usable && ((one.state == card_state::free) ||
                              (one.state == card_state::unknown));
    };
    if (std::any_of(all.cards.begin(), all.cards.end(), can_serve)) {
        return;
    }
    if (std::any_of(all.cards.begin(), all.cards.end(), is_taken)) {
        explain_taken(all.cards, all);
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

void report_ucx(const installation &files, report &all)
{
    /* Before UCX is here: what its log says of the module is to be read. */
    for (const char *name : {"UCX_LOG_LEVEL", "UCX_LOG_FILE"}) {
        unsetenv(name);
    }
    all.ucx              = find_ucx();
    all.installed        = installed_releases(files);
    const found_ucx &ucx = all.ucx;
    problems obstacles   = find_module_obstacles(files, ucx);
    const bool fits      = ucx.release.has_value() && obstacles.empty();
    if (fits) {
        all.module = module_for(files, *ucx.release).string();
    }
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
        fail(all, one.what, one.mend);
    }
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
    return dlopen(files.loader.c_str(), RTLD_LAZY | RTLD_NOLOAD) != nullptr;
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

void report_way(const char *name, const fs::path &place, bool active,
                const problems &obstacles, report &all)
{
    auto state =
        active ? loading_way::state::active : loading_way::state::inactive;
    if (!obstacles.empty()) {
        state = loading_way::state::broken;
        add_new(obstacles, all.missing);
    }
    all.ways.push_back({name, state, place});
}

void report_loading(installation files, report &all)
{
    const found_ucx &ucx = all.ucx;
    choose_preload(files);
    choose_slot(files, ucx);
    const problems preload = find_obstacles(files, loading::preload, ucx);
    report_way("preload", files.preload, is_preloaded(files), preload, all);

    problems slot = find_obstacles(files, loading::slot, ucx);
    if (files.slot_module.empty()) {
        all.ways.push_back({.name = "slot", .place = {}});
    } else {
        report_way("slot", files.slot, is_in_slot(files, ucx), slot, all);
    }

    problems plugin = find_obstacles(files, loading::plugin, ucx);
    if (ucx.release.has_value() && (*ucx.release < first_with_plugins)) {
        all.ways.push_back({.name = "plugin", .place = {}});
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
    report all;
    const auto driver = load_driver(files, where, all);
    if (driver != nullptr) {
        report_cards(*driver, where, all);
    }
    if (driver_setting() != "emulator") {
        add_new(find_closed_nodes(where), all.missing);
    }
    report_ucx(files, all);
    report_loading(files, all);
    return all;
}

} // namespace launcher
