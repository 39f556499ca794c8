/* SPDX-License-Identifier: BSD-3-Clause */
#include "launcher/machine.h"

#include "launcher/trial.h"
#include "loader/running_ucx.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <dlfcn.h>
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

std::string vendor_of(const fs::path &function)
{
    return gaudi::util::first_line(function / "vendor");
}

std::vector<std::string> find_nodes(const machine &where)
{
    std::vector<std::string> nodes;
    for (const std::string &directory : {where.dev + "/accel", where.dev}) {
        for (const fs::path &entry : gaudi::util::list_folder(directory)) {
            const std::string name = entry.filename().string();
            /* Other vendors' accelerators have nodes there, too. */
            const std::string vendor =
                vendor_of(where.sys + "/class/accel/" + name + "/device");
            std::error_code error;
            if (is_node_name(name) && !fs::is_directory(entry, error) &&
                (vendor.empty() || (vendor == gaudi::shim::gaudi_vendor))) {
                nodes.push_back(entry.string());
            }
        }
    }
    std::sort(nodes.begin(), nodes.end());
    return nodes;
}

} // namespace

bool has_nodes(const machine &where)
{
    return !find_nodes(where).empty();
}

problems find_closed_nodes(const machine &where)
{
    const std::vector<std::string> nodes = find_nodes(where);
    const auto closed = std::ranges::find_if(nodes, gaudi::shim::is_closed);
    struct stat info;
    if ((closed == nodes.end()) || (stat(closed->c_str(), &info) != 0)) {
        return {};
    }
    const group *entry = getgrgid(info.st_gid);
    const std::string name =
        (entry != nullptr) ? entry->gr_name : std::to_string(info.st_gid);
    const auto count = std::ranges::count_if(nodes, gaudi::shim::is_closed);
    return {{"no permission to open " + *closed +
                 ((count > 1) ? " and " + std::to_string(count - 1) + " more"
                              : std::string()),
             ((info.st_mode & 0060u) == 0060u)
                 ? "join the group " + name + " (usermod -aG " + name +
                       " USER) and log in again"
                 : "give a group access to it (chgrp, chmod 0660, or a udev "
                   "rule)"}};
}

unsigned count_pci_cards(const machine &where)
{
    const auto devices =
        gaudi::util::list_folder(where.sys + "/bus/pci/devices");
    return static_cast<unsigned>(
        std::count_if(devices.begin(), devices.end(), [](const fs::path &one) {
            return vendor_of(one) == gaudi::shim::gaudi_vendor;
        }));
}

std::string to_string(const ucx_release &release)
{
    return std::to_string(release.major) + '.' + std::to_string(release.minor);
}

std::optional<ucx_release> parse_release(const std::string &text)
{
    ucx_release release;
    char end = '\0';
    if (std::sscanf(text.c_str(), "%u.%u%c", &release.major, &release.minor,
                    &end) != 2) {
        return std::nullopt;
    }
    return release;
}

namespace {

/* What the dynamic linker would load for a program: its UCX, in the order in
 * which the files need each other. */
std::vector<std::string> ucx_of_program(const std::string &program)
{
    constexpr std::chrono::seconds limit{10};
    const trial listed = run_in_child(
        [&] {
            execlp("sh", "sh", "-c", "exec ldd \"$(command -v -- \"$0\")\"",
                   program.c_str(), nullptr);
            return 127;
        },
        limit);
    std::vector<std::string> found;
    for (const char *name : {"libucs", "libuct", "libucp"}) {
        for (const std::string &line : split(listed.output, "\n")) {
            const size_t start = line.find(" => /");
            if ((start != line.npos) &&
                (line.find(std::string("\t") + name) == 0)) {
                found.push_back(
                    line.substr(start + 4, line.rfind(" (") - start - 4));
            }
        }
    }
    return found;
}

} // namespace

found_ucx find_ucx(const std::string &program)
{
    using get_version = void (*)(unsigned *, unsigned *, unsigned *);

    found_ucx found;
    found.of = "programs without a run path";
    std::vector<std::string> files;
    if (!program.empty()) {
        files    = ucx_of_program(program);
        found.of = files.empty()
                       ? found.of + "; " + program + " is not linked with one"
                       : program;
    }
    if (files.empty()) {
        files.emplace_back("libucp.so.0");
    }
    /* Now: a module of UCX may bring another UCX into everybody's sight (that
     * of a distribution, beside a wheel), and what is bound later would be its.
     */
    void *handle = nullptr;
    for (const std::string &file : files) {
        handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) {
            found.error = dlerror();
            return found;
        }
    }
    std::error_code error;
    const fs::path file = gaudi_file_of(handle);
    found.handle        = handle;
    found.libucp        = fs::canonical(file, error).string();
    found.libucs        = gaudi_libucs_of(handle);

    auto ask = reinterpret_cast<get_version>(dlsym(handle, "ucp_get_version"));
    if (ask == nullptr) {
        found.error = file.string() + " has no ucp_get_version";
        return found;
    }
    ucx_release release;
    unsigned patch = 0;
    ask(&release.major, &release.minor, &patch);
    found.release = release;
    found.version = to_string(release) + '.' + std::to_string(patch);
    return found;
}

std::string get_variable(const char *name)
{
    const char *value = std::getenv(name);
    return (value != nullptr) ? value : "";
}

std::vector<std::string> split(const std::string &list, const char *separators)
{
    std::vector<std::string> entries;
    for (size_t start = 0, end = 0; !list.empty() && (end != list.npos);
         start = end + 1) {
        end = list.find_first_of(separators, start);
        entries.push_back(list.substr(start, end - start));
    }
    return entries;
}

} // namespace launcher
