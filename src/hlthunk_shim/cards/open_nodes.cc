#include "hlthunk_shim/cards/open_nodes.h"

#include "util/text.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <string_view>

#include <sys/stat.h>

namespace gaudi::shim {

namespace {

/* Behind the name of a file that no folder has. */
constexpr std::string_view deleted = " (deleted)";

} // namespace

std::vector<std::string> compute_files(const std::string &dev, unsigned number)
{
    const std::string digits = std::to_string(number);
    return {dev + "/accel/accel" + digits, dev + "/hl" + digits};
}

std::vector<std::string> open_compute_files(const std::string &own_dev,
                                            unsigned number)
{
    if (own_dev.empty()) {
        return compute_files("/dev", number);
    }
    return {own_dev + "/accel" + std::to_string(number) + std::string(deleted)};
}

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
    namespace fs = std::filesystem;
    std::map<node_identity, int> lowest;
    for (const fs::path &entry : util::list_folder("/proc/self/fd")) {
        std::error_code gone; /* the directory itself, or another thread's */
        const fs::path target = fs::read_symlink(entry, gone);
        if (gone || !is_compute_file(target.native(), own_dev)) {
            continue;
        }
        const int fd = std::atoi(entry.filename().c_str());
        node_identity node;
        if (identify(fd, node)) {
            int &known = lowest.try_emplace(node, fd).first->second;
            known      = std::min(known, fd);
        }
    }
    std::vector<open_node> found;
    for (const auto &[node, fd] : lowest) {
        found.push_back({fd, node});
    }
    std::ranges::sort(found, {}, &open_node::fd);
    return found;
}

} // namespace gaudi::shim
