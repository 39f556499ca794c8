#include "launcher/nodes.h"

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
    for (const char *prefix :
         {"accel", "accel_controlD", "hl", "hl_controlD"}) {
        const std::string text = prefix;
        if (name.starts_with(text) && (name.size() > text.size()) &&
            (name.find_first_not_of("0123456789", text.size()) == name.npos)) {
            return true;
        }
    }
    return false;
}

/* Other vendors' accelerators have nodes there, too. */
bool is_foreign(const machine &where, const std::string &name)
{
    const std::string vendor =
        read_word(where.sys + "/class/accel/" + name + "/device/vendor");
    return !vendor.empty() && (vendor != gaudi::shim::gaudi_vendor);
}

std::vector<std::string> find_nodes(const machine &where)
{
    std::vector<std::string> nodes;
    for (const std::string &directory : {where.dev + "/accel", where.dev}) {
        std::error_code error;
        for (fs::directory_iterator entry(directory, error), end;
             !error && (entry != end); entry.increment(error)) {
            const std::string name = entry->path().filename().string();
            if (is_node_name(name) && !entry->is_directory(error) &&
                !is_foreign(where, name)) {
                nodes.push_back(entry->path().string());
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

} // namespace

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
    unsigned count = 0;
    std::error_code error;
    for (fs::directory_iterator entry(where.sys + "/bus/pci/devices", error),
         end;
         !error && (entry != end); entry.increment(error)) {
        count += (read_word((entry->path() / "vendor").string()) ==
                  gaudi::shim::gaudi_vendor);
    }
    return count;
}

} // namespace launcher
