/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/cards/open_nodes.h"

#include "util/text.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::shim {

namespace {

namespace fs = std::filesystem;

/* Behind the name of a file that no folder has. */
constexpr std::string_view deleted = " (deleted)";

/* Whether a name in /proc/PID/fd looks like a compute node's: those of other
 * accelerators do, too. */
bool is_compute_file(const std::string &name, const std::string &own_dev)
{
    std::string_view path = name;
    if (!path.starts_with(own_dev.empty() ? "/dev/" : own_dev + "/")) {
        return false;
    }
    if (!own_dev.empty() && path.ends_with(deleted)) {
        path.remove_suffix(deleted.size());
    }
    path.remove_prefix(path.rfind('/') + 1);
    return util::number_behind("accel", path).has_value() ||
           util::number_behind("hl", path).has_value();
}

/* Visit the descriptors of a process that look like compute nodes.
 * @param visit  Called with the number of each, and the name of its file. */
template <typename Visit>
void visit_links(const fs::path &process, const std::string &own_dev,
                 Visit &&visit)
{
    for (const fs::path &entry : util::list_folder(process / "fd")) {
        std::error_code gone; /* the directory itself, or another thread's */
        const std::string path = fs::read_symlink(entry, gone).string();
        if (!gone && is_compute_file(path, own_dev)) {
            visit(std::atoi(entry.filename().c_str()), path);
        }
    }
}

} // namespace

std::vector<std::string> compute_files(const std::string &dev, unsigned number)
{
    const std::string digits = std::to_string(number);
    return {dev + "/accel/accel" + digits, dev + "/hl" + digits};
}

bool identify(int fd, node_identity &node_p)
{
    const int saved = errno;
    struct stat info;
    const bool open = (fstat(fd, &info) == 0);
    if (open) {
        node_p = {info.st_dev, info.st_ino, info.st_rdev};
    }
    errno = saved;
    return open;
}

bool is_node(int fd, const node_identity &node)
{
    node_identity now;
    return identify(fd, now) && (now == node);
}

std::vector<open_node> find_open_nodes(const std::string &own_dev)
{
    std::map<node_identity, int> lowest;
    visit_links("/proc/self", own_dev, [&](int fd, const std::string &) {
        node_identity node;
        if (identify(fd, node)) {
            int &known = lowest.try_emplace(node, fd).first->second;
            known      = std::min(known, fd);
        }
    });
    std::vector<open_node> found;
    found.reserve(lowest.size());
    for (const auto &[node, fd] : lowest) {
        found.push_back({fd, node});
    }
    std::ranges::sort(found, {}, &open_node::fd);
    return found;
}

holders find_holders(const std::string &own_dev, const std::string &proc)
{
    std::vector<pid_t> pids;
    for (const fs::path &entry : util::list_folder(proc)) {
        const auto number = util::parse_number(entry.filename().native());
        const auto pid    = static_cast<pid_t>(number.value_or(0));
        if (number.has_value() && (pid != getpid())) {
            pids.push_back(pid);
        }
    }
    std::sort(pids.begin(), pids.end());

    holders found;
    for (const pid_t pid : pids) {
        const fs::path process = fs::path(proc) / std::to_string(pid);
        visit_links(process, own_dev, [&](int, const std::string &path) {
            std::vector<holder> &of_card = found[path];
            struct stat info;
            if ((of_card.empty() || (of_card.back().pid != pid)) &&
                (stat(process.c_str(), &info) == 0)) {
                of_card.push_back(
                    {pid, info.st_uid, util::first_line(process / "comm")});
            }
        });
    }
    return found;
}

std::vector<holder> holders_of(const holders &all, const std::string &own_dev,
                               unsigned number)
{
    const auto names = own_dev.empty() ? compute_files("/dev", number)
                                       : std::vector{own_dev + "/accel" +
                                                     std::to_string(number) +
                                                     std::string(deleted)};
    for (const std::string &name : names) {
        const auto found = all.find(name);
        if (found != all.end()) {
            return found->second;
        }
    }
    return {};
}

std::string describe(const std::vector<holder> &all)
{
    if (all.empty()) {
        return "a process of another user or container";
    }
    std::string text;
    for (const holder &one : all) {
        text += text.empty() ? "pid " : ", pid ";
        text += std::to_string(one.pid) + " (" +
                util::to_printable(one.program) + ")";
    }
    return text;
}

} // namespace gaudi::shim
