#include "util/loaded_files.h"

#include <algorithm>
#include <fstream>
#include <string_view>

namespace gaudi::util {

std::vector<std::string> loaded_files()
{
    /* Of a file that was removed meanwhile. */
    constexpr std::string_view removed = " (deleted)";
    std::vector<std::string> result;
    std::ifstream maps("/proc/thread-self/maps");
    for (std::string line; std::getline(maps, line);) {
        const size_t access = line.find(' ') + 1;
        const size_t path   = line.find('/');
        if ((path == std::string::npos) || (line[access + 2] != 'x')) {
            continue;
        }
        std::string name = line.substr(path);
        if (name.ends_with(removed)) {
            name.resize(name.size() - removed.size());
        }
        if (std::find(result.begin(), result.end(), name) == result.end()) {
            result.push_back(std::move(name));
        }
    }
    return result;
}

} // namespace gaudi::util
