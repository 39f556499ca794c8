#include "hlthunk_shim/cards/holders.h"

#include "hlthunk_shim/cards/open_nodes.h"
#include "hlthunk_shim/hlthunk/library.h"
#include "util/text.h"

#include <algorithm>

#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::shim {

namespace {

namespace fs = std::filesystem;

void add_process(const fs::path &directory, pid_t pid,
                 const std::string &own_dev, holders &found)
{
    for (const fs::path &entry : util::list_folder(directory / "fd")) {
        std::error_code gone;
        const std::string path = fs::read_symlink(entry, gone).string();
        if (gone || !is_compute_file(path, own_dev)) {
            continue;
        }
        std::vector<holder> &of_card = found[path];
        struct stat info;
        if ((!of_card.empty() && (of_card.back().pid == pid)) ||
            (stat(directory.c_str(), &info) != 0)) {
            continue;
        }
        of_card.push_back(
            {pid, info.st_uid, util::first_line(directory / "comm")});
    }
}

} // namespace

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
        add_process(fs::path(proc) / std::to_string(pid), pid, own_dev, found);
    }
    return found;
}

std::vector<holder> holders_of(const holders &all, const driver &of,
                               unsigned number)
{
    for (const std::string &name : open_compute_files(of.own_dev(), number)) {
        const auto found = all.find(name);
        if (found != all.end()) {
            return found->second;
        }
    }
    return {};
}

std::optional<bool> is_taken(const driver &of, int fd)
{
    const library &lib = of.lib();
    hlthunk_open_stats_info stats{};
    if ((lib.hlthunk_get_open_stats == nullptr) ||
        (lib.hlthunk_get_open_stats(fd, &stats) != 0)) {
        return std::nullopt;
    }
    return (stats.is_compute_ctx_active != 0) ||
           (stats.compute_ctx_in_release != 0);
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
