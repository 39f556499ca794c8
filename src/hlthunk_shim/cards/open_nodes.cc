#include "hlthunk_shim/cards/open_nodes.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include <sys/stat.h>

namespace gaudi::shim {

namespace {

/* accel<N> or hl<N> in the directory of device nodes, or in one of the
 * emulator's boxes, whose files have no directory entry. */
bool looks_like_compute_node(std::string_view path)
{
    constexpr std::string_view deleted  = " (deleted)";
    constexpr std::string_view emulated = "/memfd:hlthunk-emu/";
    if (path.starts_with(emulated) && path.ends_with(deleted)) {
        path.remove_suffix(deleted.size());
    } else if (!path.starts_with("/dev/")) {
        return false;
    }
    path.remove_prefix(path.rfind('/') + 1);
    for (std::string_view prefix : {"accel", "hl"}) {
        if (path.starts_with(prefix) && (path.size() > prefix.size()) &&
            (path.find_first_not_of("0123456789", prefix.size()) ==
             std::string_view::npos)) {
            return true;
        }
    }
    return false;
}

} // namespace

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

std::vector<open_node> find_open_nodes()
{
    namespace fs = std::filesystem;
    std::vector<open_node> found;
    std::error_code error;
    fs::directory_iterator entry("/proc/self/fd", error);
    for (; !error && (entry != fs::directory_iterator());
         entry.increment(error)) {
        std::error_code gone; /* the directory itself, or another thread's */
        const fs::path target = fs::read_symlink(entry->path(), gone);
        if (gone || !looks_like_compute_node(target.native())) {
            continue;
        }
        open_node node{std::atoi(entry->path().filename().c_str()), {}};
        if (identify(node.fd, node.node)) {
            found.push_back(node);
        }
    }
    std::sort(found.begin(), found.end(),
              [](const open_node &a, const open_node &b) {
                  return (a.node != b.node) ? (a.node < b.node) : (a.fd < b.fd);
              });
    found.erase(std::unique(found.begin(), found.end(),
                            [](const open_node &a, const open_node &b) {
                                return a.node == b.node;
                            }),
                found.end());
    std::sort(
        found.begin(), found.end(),
        [](const open_node &a, const open_node &b) { return a.fd < b.fd; });
    return found;
}

} // namespace gaudi::shim
