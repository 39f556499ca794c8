#include "hlthunk_shim/cards/open_nodes.h"

#include "hlthunk_shim/cards/device_files.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include <sys/stat.h>

namespace gaudi::shim {

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
    std::vector<open_node> found;
    std::error_code error;
    fs::directory_iterator entry("/proc/self/fd", error);
    for (; !error && (entry != fs::directory_iterator());
         entry.increment(error)) {
        std::error_code gone; /* the directory itself, or another thread's */
        const fs::path target = fs::read_symlink(entry->path(), gone);
        if (gone || !is_compute_file(target.native(), own_dev)) {
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
