/* SPDX-License-Identifier: BSD-3-Clause */
#include "launcher/info.h"

#include "launcher/trial.h"
#include "loader/running_ucx.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <memory>

#include <cjson/cJSON.h>
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

/* --- the module's answer ---------------------------------------------------*/

std::string text_of(const cJSON *object, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(object, name));
    return (text != nullptr) ? text : "";
}

bool is_true(const cJSON *object, const char *name)
{
    return cJSON_IsTrue(cJSON_GetObjectItem(object, name)) != 0;
}

std::optional<unsigned> number_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    return (cJSON_IsNumber(item) != 0)
               ? std::optional(static_cast<unsigned>(item->valuedouble))
               : std::nullopt;
}

card read_card(const cJSON *from)
{
    std::vector<shim::holder> holders;
    const cJSON *each = nullptr;
    cJSON_ArrayForEach(each, cJSON_GetObjectItem(from, "held_by"))
    {
        holders.push_back(
            {static_cast<pid_t>(number_of(each, "pid").value_or(0)), 0,
             text_of(each, "program")});
    }
    return {.name            = number_of(from, "index"),
            .number          = number_of(from, "number").value_or(0),
            .bus_id          = text_of(from, "bus_id"),
            .state           = text_of(from, "state"),
            .held_by         = holders.empty() ? "" : shim::describe(holders),
            .is_free         = is_true(from, "free"),
            .takes_framework = is_true(from, "takes_framework")};
}

/* The module has loaded no driver, or that shows no card, and nothing is wrong
 * with either. */
void explain_no_card(const machine &where, report &all)
{
    constexpr char not_shown[] = "the driver library shows no card";
    const unsigned count       = count_pci_cards(where);
    if (all.software) {
        fail(all, not_shown, "see to the HLTHUNK_EMU_* variables");
    } else if (!all.driver_file.empty() && has_nodes(where)) {
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

void read_answer(const std::string &printed, report &all)
{
    const size_t start = printed.rfind("\n{", printed.size()) + 1;
    all.answer.reset(cJSON_Parse(printed.c_str() + start), cJSON_Delete);
    const cJSON *root               = all.answer.get();
    const cJSON *driver             = cJSON_GetObjectItem(root, "driver");
    const cJSON *each               = nullptr;
    all.usable                      = is_true(root, "usable");
    all.driver_setting              = text_of(driver, "setting");
    all.driver_file                 = text_of(driver, "file");
    all.sys                         = text_of(driver, "sysfs");
    all.software                    = is_true(driver, "software");
    const std::string engine        = text_of(driver, "engine");
    const std::string kind          = text_of(driver, "card_kind");
    all.driver_options.used         = (engine == "cs")        ? shim::engine::cs
                                      : (engine == "synapse") ? shim::engine::synapse
                                                              : shim::engine::automatic;
    all.driver_options.unknown_card = (kind == "gaudi2") ? HLTHUNK_DEVICE_GAUDI2
                                      : (kind == "gaudi3")
                                          ? HLTHUNK_DEVICE_GAUDI3
                                          : HLTHUNK_DEVICE_INVALID;
    cJSON_ArrayForEach(each, cJSON_GetObjectItem(root, "cards"))
    {
        all.cards.push_back(read_card(each));
    }
    cJSON_ArrayForEach(each, cJSON_GetObjectItem(root, "problems"))
    {
        all.missing.push_back({text_of(each, "what"), text_of(each, "fix")});
    }
}

std::string ask_module(const report &of)
{
    using reporter = int (*)();

    char why[PATH_MAX + 100];
    if (gaudi_open_ucx(of.ucx.handle, why, sizeof(why)) == nullptr) {
        return why;
    }
    void *module = dlopen(of.module.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
        return dlerror();
    }
    auto print_report =
        reinterpret_cast<reporter>(dlsym(module, "uct_gaudi_report"));
    if (print_report == nullptr) {
        return std::string("it is no module: ") + dlerror();
    }
    return (print_report() != 0) ? "" : "it registers nothing";
}

problems find_module(const installation &files, const std::string &program,
                     report &all)
{
    /* Before UCX is here: what its log says of the module is to be read. */
    setenv("UCX_LOG_LEVEL", "warn", 1);
    setenv("UCX_LOG_FILE", "", 1);
    all.ucx             = find_ucx(program);
    all.installed       = installed_releases(files);
    const auto obstacle = find_module_obstacle(files, all.ucx);
    if (obstacle.has_value()) {
        return {*obstacle};
    }
    std::string why;
    all.module = module_for(files, all.ucx, why).string();
    return {};
}

namespace {

/* @return Why it does not answer. */
problems have_answer(const machine &where, report &all)
{
    std::string printed;
    const std::string why =
        try_in_child([&] { return ask_module(all); }, &printed);
    if (why.empty()) {
        read_answer(printed, all);
        if (all.answer == nullptr) {
            return {{"the module for " + all.ucx.name() + " gave no answer",
                     "install or build ucx-gaudi again (" + all.module + ")"}};
        }
        if (all.cards.empty() && all.missing.empty()) {
            explain_no_card(where, all);
        }
        return {};
    }
    return {{"the module for " + all.ucx.name() + " cannot be used: " + why,
             (why.find("memfd_create") != why.npos)
                 ? "let memfd_create pass the seccomp filter and "
                   "vm.memfd_noexec"
             : (why.find(" while loading") != why.npos)
                 ? "install that library again, in the release of the kernel "
                   "driver (see dmesg), or set UCX_GAUDI_DRIVER to another"
             : (why.find("UCX_GAUDI_") != why.npos)
                 ? "see to that setting"
                 : "install or build ucx-gaudi again, for this UCX and this "
                   "system (" +
                       all.module + ")"}};
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
    problems of_module = find_module(files, program, all);
    if (of_module.empty()) {
        of_module = have_answer(where, all);
    }
    if (all.driver_setting != "emulator") {
        const problems closed = find_closed_nodes(where);
        all.missing.insert(all.missing.end(), closed.begin(), closed.end());
    }
    for (const problem &one : of_module) {
        fail(all, one.what, one.fix);
    }
    report_loading(files, all);
    return all;
}

} // namespace launcher
