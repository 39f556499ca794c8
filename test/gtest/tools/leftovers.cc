#include "gtest/tools/leftovers.h"

#include "common/process_state.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

namespace gaudi::test {

namespace {

std::set<std::string> list_files()
{
    std::set<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator("/dev/shm")) {
        names.insert(entry.path().string());
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

shared_memory_files::shared_memory_files() : before_(list_files())
{}

std::set<std::string> shared_memory_files::left_behind() const
{
    std::set<std::string> result;
    for (const std::string &file : list_files()) {
        if (!before_.contains(file) && !eventually([&] {
                return !std::filesystem::exists(file) || is_mapped(file);
            })) {
            result.insert(file);
        }
    }
    return result;
}

} // namespace gaudi::test
