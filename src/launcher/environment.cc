/* SPDX-License-Identifier: BSD-3-Clause */
#include "launcher/installation.h"

#include "util/transport_list.h"

#include <algorithm>
#include <cstdlib>
#include <span>

namespace launcher {

namespace {

namespace fs = std::filesystem;

using strings = std::vector<std::string>;

constexpr char emu_devices[] = "HLTHUNK_EMU_DEVICES";

/* Open MPI has UCX carry all, whatever its transports and devices. A shell has
 * other jobs, too: UCX is preferred there, and no component is left out. */
using settings                    = std::pair<const char *, const char *>;
constexpr char openmpi_messages[] = "OMPI_MCA_pml";
constexpr settings openmpi_both[] = {
    {"OMPI_MCA_opal_common_ucx_tls", "any"},
    {"OMPI_MCA_opal_common_ucx_devices", "any"},
};
constexpr settings openmpi_of_program[] = {
    {openmpi_messages, "ucx"},
    {"OMPI_MCA_osc", "ucx"},
    /* It takes one component for accelerators, and ends where two would do. */
    {"OMPI_MCA_accelerator", "^cuda,rocm"},
};
/* Debian's configuration leaves UCX out, which these override. */
constexpr char openmpi_any[]          = "^none";
constexpr char openmpi_any_window[]   = "^pt2pt";
constexpr settings openmpi_of_shell[] = {
    {openmpi_messages, openmpi_any},
    {"OMPI_MCA_osc", openmpi_any_window},
    {"OMPI_MCA_pml_ucx_priority", "200"},
    {"OMPI_MCA_osc_ucx_priority", "200"},
};

/* Where it finds components, instead of its own folders unless these are named,
 * too: mca_base_component_repository_add() of opal/mca/base. By its long name,
 * which Open MPI 5's mpiexec does not take for its own libraries' parameter. */
constexpr char openmpi_path[]       = "OMPI_MCA_opal_mca_base_component_path";
constexpr char openmpi_short_path[] = "OMPI_MCA_mca_base_component_path";
constexpr char openmpi_defaults[]   = "SYS_DEFAULT:USER_DEFAULT";

/* Cards of a box, as in the machines that have them. */
constexpr char default_cards[] = "8";

std::string join(const strings &entries)
{
    std::string list;
    for (const std::string &entry : entries) {
        list += (&entry == &entries.front()) ? entry : ":" + entry;
    }
    return list;
}

bool contains(const strings &entries, const std::string &wanted)
{
    return std::find(entries.begin(), entries.end(), wanted) != entries.end();
}

/* The loader is in the list, and no loader of another installation. Where it is
 * already it stays: a sanitizer's runtime has to remain the first. */
std::string preload_value(const fs::path &loader)
{
    strings entries = split(get_variable("LD_PRELOAD"), " :");
    std::erase_if(entries, [&](const std::string &entry) {
        return entry.empty() ||
               ((fs::path(entry).filename() == loader.filename()) &&
                (entry != loader.string()));
    });
    if (!contains(entries, loader.string())) {
        entries.insert(entries.begin(), loader.string());
    }
    return join(entries);
}

/* Directories come first in a variable that lists some, or that stands for a
 * list where it is unset; each once. */
std::pair<std::string, std::string> in_front(strings directories,
                                             const char *variable,
                                             const char *separators,
                                             const std::string &unset = "")
{
    const std::string set = get_variable(variable);
    for (std::string &entry : split(set.empty() ? unset : set, separators)) {
        if (!contains(directories, entry)) {
            directories.push_back(std::move(entry));
        }
    }
    return {variable, join(directories)};
}

} // namespace

variables make_emulator_variables(const request &wanted)
{
    std::string cards = get_variable(emu_devices);
    if (wanted.cards > 0) {
        cards = std::to_string(wanted.cards);
    } else if (cards.empty()) {
        cards = default_cards;
    }
    return {{"UCX_GAUDI_DRIVER", "emulator"}, {emu_devices, cards}};
}

variables make_variables(const installation &files, const request &wanted,
                         loading how)
{
    variables result;
    strings directories;
    if (how == loading::preload) {
        result.emplace_back("LD_PRELOAD", preload_value(files.preload));
    } else {
        if (how == loading::slot) {
            directories.push_back(files.slot.string());
        } else {
            result.push_back(
                in_front({files.plugin.string()}, "UCX_PLUGIN_PATH", ":"));
        }
        /* UCX reads its list before it loads the module. What is preloaded
         * comes earlier and does this itself. */
        char *tls = gaudi_rewrite_transports(get_variable("UCX_TLS").c_str());
        if (tls != nullptr) {
            result.emplace_back("UCX_TLS", tls);
            std::free(tls);
        }
    }
    if (wanted.emulate) {
        for (auto &entry : make_emulator_variables(wanted)) {
            result.push_back(std::move(entry));
        }
        /* For programs that call hl-thunk themselves. */
        directories.push_back(files.emulator.string());
    }
    if (!directories.empty()) {
        result.push_back(
            in_front(std::move(directories), "LD_LIBRARY_PATH", ":;"));
    }
    const auto add = [&](std::span<const settings> all) {
        for (const auto &[name, value] : all) {
            const std::string own = get_variable(name);
            const bool is_ours    = own.empty() || (own == openmpi_any) ||
                                 (own == openmpi_any_window);
            result.emplace_back(name, is_ours ? value : own);
        }
    };
    /* Left alone when messages are to go another way. */
    const std::string messages = get_variable(openmpi_messages);
    if (messages.empty() || (messages == "ucx") || (messages == openmpi_any)) {
        add(openmpi_both);
        add(wanted.for_shell ? std::span<const settings>(openmpi_of_shell)
                             : std::span<const settings>(openmpi_of_program));
    }
    /* Releases before 5.0 look there, too, and let lie what they find. */
    if (is_there(files.openmpi)) {
        const std::string others = get_variable(openmpi_short_path);
        result.push_back(in_front({files.openmpi.string()}, openmpi_path, ":",
                                  others.empty() ? openmpi_defaults : others));
    }
    return result;
}

void set_variables(const variables &values)
{
    for (const auto &[name, value] : values) {
        setenv(name.c_str(), value.c_str(), 1);
    }
}

std::string to_exports(const variables &values)
{
    std::string text;
    for (const auto &[name, value] : values) {
        text += "export " + name + "='";
        for (const char letter : value) {
            text += (letter == '\'') ? "'\\''" : std::string(1, letter);
        }
        text += "'\n";
    }
    return text;
}

} // namespace launcher
