/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/report/holders.h"

#include "hlthunk_shim/discovery/open_nodes.h"
#include "util/text.h"

#include <algorithm>

#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::shim {

namespace fs = std::filesystem;

std::vector<std::string> compute_files(const std::string &dev, unsigned number)
{
    const std::string digits = std::to_string(number);
    return {dev + "/accel/accel" + digits, dev + "/hl" + digits};
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
        visit_open_nodes(process, own_dev, [&](int, const std::string &path) {
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
                                                     std::string(deleted_file)};
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
