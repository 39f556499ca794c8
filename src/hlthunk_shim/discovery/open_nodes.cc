/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/discovery/open_nodes.h"

#include "util/text.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>

#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::shim {

namespace {

namespace fs = std::filesystem;

/* Whether a name in /proc/PID/fd looks like a compute node's: those of other
 * accelerators do, too. */
bool is_compute_file(const std::string &name, const std::string &own_dev)
{
    std::string_view path = name;
    if (!path.starts_with(own_dev.empty() ? "/dev/" : own_dev + "/")) {
        return false;
    }
    if (!own_dev.empty() && path.ends_with(deleted_file)) {
        path.remove_suffix(deleted_file.size());
    }
    path.remove_prefix(path.rfind('/') + 1);
    return util::number_behind("accel", path).has_value() ||
           util::number_behind("hl", path).has_value();
}

} // namespace

void visit_open_nodes(
    const std::string &process, const std::string &own_dev,
    const std::function<void(int fd, const std::string &file)> &visit)
{
    for (const fs::path &entry : util::list_folder(process + "/fd")) {
        std::error_code gone; /* the directory itself, or another thread's */
        const std::string path = fs::read_symlink(entry, gone).string();
        if (!gone && is_compute_file(path, own_dev)) {
            visit(std::atoi(entry.filename().c_str()), path);
        }
    }
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
    visit_open_nodes("/proc/self", own_dev, [&](int fd, const std::string &) {
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

} // namespace gaudi::shim
