#include "uct/gaudi/base/device_list.h"

#include "hlthunk_shim/control_nodes.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>
#include <sstream>

namespace gaudi::base {

namespace {

/* Cards are called gaudi0, gaudi1, ... in every listing. */
constexpr char card_name[] = "gaudi";

bool parse_index(const std::string &text, unsigned &index)
{
    const char *end   = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, index);
    return (parsed.ec == std::errc()) && (parsed.ptr == end);
}

} // namespace

std::vector<std::string> list_cards(const shim::library &driver)
{
    std::vector<std::string> bus_ids;
    (void)shim::visit_cards(
        driver, [&](int /* node */, int /* fd */, const std::string &bus_id) {
            bus_ids.push_back(bus_id);
        });
    return bus_ids;
}

device_selection select_devices(const std::string &text,
                                const std::vector<std::string> &bus_ids)
{
    device_selection result;

    if ((text == "auto") || (text == "all")) {
        result.indices.resize(bus_ids.size());
        std::iota(result.indices.begin(), result.indices.end(), 0u);
        result.wanted = (text == "auto") ? std::min<size_t>(1, bus_ids.size())
                                         : bus_ids.size();
        return result;
    }

    std::istringstream list(text);
    std::string item;
    while (std::getline(list, item, ',')) {
        unsigned index    = 0;
        const auto by_bus = std::find(bus_ids.begin(), bus_ids.end(), item);
        if (by_bus != bus_ids.end()) {
            index = static_cast<unsigned>(by_bus - bus_ids.begin());
        } else if (!parse_index(item.starts_with(card_name)
                                    ? item.substr(std::strlen(card_name))
                                    : item,
                                index) ||
                   (index >= bus_ids.size())) {
            result.error = "'" + item + "' is none of the " +
                           std::to_string(bus_ids.size()) +
                           " cards of this machine";
            return result;
        }
        if (std::find(result.indices.begin(), result.indices.end(), index) !=
            result.indices.end()) {
            result.error = "'" + item + "' is listed twice";
            return result;
        }
        result.indices.push_back(index);
    }
    if (result.indices.empty()) {
        result.error = "no card is listed";
    }
    result.wanted = result.indices.size();
    result.named  = true;
    return result;
}

} // namespace gaudi::base
