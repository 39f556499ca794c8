/* SPDX-License-Identifier: BSD-3-Clause */
#include "launcher/info.h"

#include "launcher/trial.h"
#include "loader/running_ucx.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <memory>

#include <dlfcn.h>

namespace launcher {

namespace {

namespace fs   = std::filesystem;
namespace shim = gaudi::shim;

constexpr char try_emulator[] =
    "use the software Gaudi: ucx-gaudi info --emulate, ucx-gaudi run --emulate";

void fail(report &all, const std::string &what, const std::string &fix)
{
    all.missing.push_back({what, fix});
    all.usable = false;
}

/* --- the driver library and its cards --------------------------------------*/

/* driver  Shows none; nullptr: there is none to ask. */
void explain_no_card(const shim::driver *driver, const machine &where,
                     report &all)
{
    constexpr char not_shown[] = "the driver library shows no card";
    const unsigned count       = count_pci_cards(where);
    if ((driver != nullptr) && !driver->box_name().empty()) {
        fail(all, not_shown, "see to the HLTHUNK_EMU_* variables");
    } else if ((driver != nullptr) && has_nodes(where)) {
        fail(all, not_shown,
             std::string("see dmesg, and who may open the nodes in "
                         "/dev/accel; or ") +
                 try_emulator);
    } else if (count > 0) {
        fail(all,
             "the machine has " + std::to_string(count) + " Gaudi card" +
                 ((count == 1) ? "" : "s") + " and no device node",
             "load the kernel driver (modprobe habanalabs), see dmesg");
    } else {
        fail(all, "no Gaudi in this machine", try_emulator);
    }
}

} // namespace

std::unique_ptr<shim::driver> load_driver(const installation &files,
                                          const machine &where, report &all)
{
    using outcome              = shim::driver_choice::outcome;
    const char *value          = std::getenv("UCX_GAUDI_DRIVER");
    all.driver_setting         = (value != nullptr) ? value : "auto";
    const std::string &setting = all.driver_setting;
    const auto choice =
        shim::choose_driver(setting, files.directory.string(), where.dev);
    if (choice.result == outcome::invalid) {
        fail(all,
             "UCX_GAUDI_DRIVER='" + to_printable(setting) + "' is not " +
                 shim::driver_syntax,
             "set it to one of these, or unset it");
        return nullptr;
    }
    if (choice.result == outcome::no_card) {
        explain_no_card(nullptr, where, all);
        return nullptr;
    }
    /* As UCX reads it; the trial of the module finds what is none. */
    shim::driver_options options;
    if (variable_is("UCX_GAUDI_ENGINE", {"cs"})) {
        options.used = shim::engine::cs;
    } else if (variable_is("UCX_GAUDI_ENGINE", {"synapse"})) {
        options.used = shim::engine::synapse;
    }
    if (variable_is("UCX_GAUDI_CARD_KIND", {"gaudi2"})) {
        options.unknown_card = HLTHUNK_DEVICE_GAUDI2;
    } else if (variable_is("UCX_GAUDI_CARD_KIND", {"gaudi3"})) {
        options.unknown_card = HLTHUNK_DEVICE_GAUDI3;
    }
    auto driver = std::make_unique<shim::driver>(choice.path, options);
    if (driver->reason().empty()) {
        all.driver_file = driver->file();
        return driver;
    }
    fail(all,
         "the driver library cannot be used: " + to_printable(driver->reason()),
         (setting == "emulator") ? install_emulator
         : (setting.find('/') != setting.npos)
             ? "set UCX_GAUDI_DRIVER to the path of a libhl-thunk.so"
             : "install the vendor's libhl-thunk.so, put its directory "
               "(usually /usr/lib/habanalabs) into LD_LIBRARY_PATH, or set "
               "UCX_GAUDI_DRIVER to its path");
    return nullptr;
}

namespace {

/* Unless a card is left. What is wrong with others was told. */
void explain_taken(report &all)
{
    std::string who;
    size_t named = 0;
    size_t taken = 0;
    for (const card &one : all.cards) {
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
        fail(all,
             ((taken == named) ? count + " cards are"
              : (taken == 1)   ? "the other card is"
                               : count + " other cards are") +
                 " taken: " + who,
             all.cards.front().software
                 ? "wait for these programs, or set HLTHUNK_EMU_NODE for "
                   "another box of software cards"
                 : "wait for these programs or end them");
    }
}

void report_cards(const shim::driver &driver, const machine &where, report &all)
{
    add_cards(driver, where, all);
    if (all.cards.empty() && all.missing.empty()) {
        explain_no_card(&driver, where, all);
    }
    all.sys = driver.sysfs(where.sys);
    add_links(driver, all);
    add_pairs(all);
    if (std::ranges::none_of(all.cards, &card::is_free)) {
        explain_taken(all);
        all.usable = false;
    }
}

/* --- UCX and the ways into it ----------------------------------------------*/

/* Variables of UCX that are read here. */
constexpr const char *read_settings[] = {
    "UCX_GAUDI_CARD_KIND", "UCX_GAUDI_DRIVER", "UCX_GAUDI_ENGINE",
    "UCX_GAUDI_IPC_ROUTES", "UCX_PROTO_ENABLE"};

/* Open a module with a UCX that was loaded, and print UCX's settings. Returns
 * why it cannot be used: it cannot be opened, or registers nothing. */
std::string open_module(const std::string &file, const found_ucx &ucx)
{
    using function = int (*)();
    using printer  = void (*)();

    char why[PATH_MAX + 100];
    if (gaudi_open_ucx(ucx.handle, why, sizeof(why)) == nullptr) {
        return why;
    }
    void *module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
        return dlerror();
    }
    auto is_registered =
        reinterpret_cast<function>(dlsym(module, "uct_gaudi_is_registered"));
    auto print_settings =
        reinterpret_cast<printer>(dlsym(module, "uct_gaudi_print_settings"));
    if ((is_registered == nullptr) || (print_settings == nullptr)) {
        return std::string("it is no module: ") + dlerror();
    }
    print_settings();
    return (is_registered() != 0) ? "" : "it registers nothing";
}

} // namespace

problems look_at_ucx(const installation &files, report &all,
                     const std::string &program)
{
    /* Before UCX is here: what its log says of the module is to be read. */
    setenv("UCX_LOG_LEVEL", "warn", 1);
    setenv("UCX_LOG_FILE", "", 1);
    all.ucx              = find_ucx(program);
    all.installed        = installed_releases(files);
    const found_ucx &ucx = all.ucx;
    const auto obstacle  = find_module_obstacle(files, ucx);
    if (obstacle.has_value()) {
        return {*obstacle};
    }
    std::string why;
    all.module = module_for(files, ucx, why).string();
    std::string printed;
    why = try_in_child([&] { return open_module(all.module, ucx); }, &printed);
    for (const std::string &line : split(printed, "\n")) {
        const std::string name = line.substr(0, line.find('='));
        if (std::ranges::count(read_settings, name) > 0) {
            setenv(name.c_str(), line.c_str() + name.size() + 1, 0);
        }
    }
    if (why.empty()) {
        return {};
    }
    return {{"the module for " + ucx.name() + " cannot be used: " + why,
             (why.find("memfd_create") != why.npos)
                 ? "let memfd_create pass the seccomp filter and "
                   "vm.memfd_noexec"
             : (why.find("UCX_GAUDI_") != why.npos)
                 ? "see to that setting"
                 : "install or build ucx-gaudi again, for this UCX and this "
                   "system (" +
                       all.module + ")"}};
}

namespace {

void report_ucx(const problems &found, report &all)
{
    const found_ucx &ucx = all.ucx;
    for (const problem &one : found) {
        fail(all, one.what, one.fix);
    }
    /* As UCX's parser takes "no". */
    if (ucx.release.has_value() &&
        (*ucx.release >= first_without_old_protocols) &&
        variable_is("UCX_PROTO_ENABLE", {"n", "no", "off", "0"})) {
        fail(all,
             "UCX_PROTO_ENABLE=n chooses protocols that UCX " + ucx.version +
                 " cannot use with device memory",
             "leave it unset, or set it to y");
    }
}

void report_loading(const installation &files, report &all)
{
    const loading how         = choose_loading(files, false, all.ucx);
    const bool plugin         = (how == loading::plugin);
    const std::string plugins = ":" + get_variable("UCX_PLUGIN_PATH") + ":";
    const bool is_active =
        plugin
            ? plugins.find(":" + files.plugin.string() + ":") != plugins.npos
            : dlopen(files.loader.c_str(), RTLD_LAZY | RTLD_NOLOAD) != nullptr;
    const problems obstacles = find_obstacles(files, how, all.ucx);
    for (const problem &one : obstacles) {
        fail(all, one.what, one.fix);
    }
    all.way       = plugin ? "plugin" : "preload";
    all.way_place = plugin ? files.plugin : files.preload;
    all.way_state = !obstacles.empty() ? "broken"
                    : is_active        ? "active"
                                       : "not active";
}

} // namespace

report make_report(const installation &files, const machine &where,
                   const std::string &program)
{
    report all;
    const problems of_ucx = look_at_ucx(files, all, program);
    const auto driver     = load_driver(files, where, all);
    if (driver != nullptr) {
        report_cards(*driver, where, all);
    }
    if (all.driver_setting != "emulator") {
        const problems closed = find_closed_nodes(where);
        all.missing.insert(all.missing.end(), closed.begin(), closed.end());
    }
    report_ucx(of_ucx, all);
    report_loading(files, all);
    return all;
}

} // namespace launcher
