#include "hlthunk_shim/cards/device_files.h"

#include <string_view>

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
    for (const std::string_view prefix : {"accel", "hl"}) {
        if (path.starts_with(prefix) && (path.size() > prefix.size()) &&
            (path.find_first_not_of("0123456789", prefix.size()) ==
             std::string_view::npos)) {
            return true;
        }
    }
    return false;
}

} // namespace gaudi::shim
