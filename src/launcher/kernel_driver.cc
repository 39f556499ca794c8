#include "launcher/kernel_driver.h"

#include "hlthunk_shim/cards/card_info.h"

#include <algorithm>
#include <cstdio>
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

bool has_attribute(const fs::path &directory, const char *name)
{
    return !gaudi::util::first_line(directory / name).empty();
}

} // namespace

kernel_driver find_kernel_driver(const machine &where)
{
    kernel_driver found;
    for (const char *directory : {"/class/accel", "/class/habanalabs"}) {
        for (const fs::path &node :
             gaudi::util::list_folder(where.sys + directory)) {
            const fs::path function = node / "device";
            if (gaudi::util::first_line(function / "vendor") !=
                gaudi::shim::gaudi_vendor) {
                continue;
            }
            found.is_loaded     = true;
            found.has_drm_calls = !has_attribute(node, "pci_addr") &&
                                  has_attribute(function, "pci_addr");
            found.can_import = has_attribute(node, "driver_ver") ||
                               has_attribute(function, "driver_ver");
            return found;
        }
    }
    return found;
}

bool has_nodes(const machine &where)
{
    return !find_nodes(where).empty();
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
