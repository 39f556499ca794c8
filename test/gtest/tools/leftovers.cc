/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/tools/leftovers.h"

#include "common/process_state.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace gaudi::test {

namespace {

/* Segments that nobody has attached. */
std::set<std::string> list_unused_segments()
{
    std::set<std::string> result;
    std::istringstream segments(read_file("/proc/sysvipc/shm"));
    std::string line;
    std::getline(segments, line); /* the heading */
    while (std::getline(segments, line)) {
        std::istringstream fields(line);
        std::string key, id, permissions, size, creator, last, attached;
        fields >> key >> id >> permissions >> size >> creator >> last >>
            attached;
        if (attached == "0") {
            result.insert(id);
        }
    }
    return result;
}

/* Without those of Open MPI, with which Debian 13's ucx_perftest is linked, and
 * which leaves them when it is killed. */
std::set<std::string> list_all()
{
    std::set<std::string> names = list_unused_segments();
    for (const auto &entry : std::filesystem::directory_iterator("/dev/shm")) {
        const std::string name = entry.path().filename();
        if (!name.starts_with("sm_segment.")) {
            names.insert(entry.path().string());
        }
    }
    return names;
}

/* Whether a living process has a file mapped. */
bool is_mapped(const std::string &file)
{
    std::error_code ignored;
    const std::filesystem::directory_iterator processes("/proc", ignored);
    return std::any_of(
        begin(processes), end(processes), [&](const auto &entry) {
            return (isdigit(entry.path().filename().c_str()[0]) != 0) &&
                   (read_file(entry.path().string() + "/maps").find(file) !=
                    std::string::npos);
        });
}

} // namespace

shared_memory_files::shared_memory_files() : before_(list_all())
{}

std::set<std::string> shared_memory_files::left_behind() const
{
    std::set<std::string> result;
    for (const std::string &name : list_all()) {
        const bool is_file = name.starts_with("/");
        if (!before_.contains(name) && !eventually([&] {
                return is_file
                           ? !std::filesystem::exists(name) || is_mapped(name)
                           : !list_unused_segments().contains(name);
            })) {
            result.insert(name);
        }
    }
    return result;
}

} // namespace gaudi::test
