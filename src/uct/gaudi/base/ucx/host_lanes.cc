#include "uct/gaudi/base/ucx/host_lanes.h"

#include "uct/gaudi/base/ucx/config.h"

#include <string_view>

namespace gaudi::base {

namespace {

/* As UCP's table has it. */
struct variables {
    struct config {
        char *transports = nullptr;
    };
    static constexpr char title[]                   = "UCP transports";
    static constexpr char prefix[]                  = "";
    static inline ucs_config_field_t config_table[] = {
        {"TLS", "all", "", offsetof(config, transports),
         UCS_CONFIG_TYPE_STRING},
        {nullptr, nullptr, nullptr, 0, {}}};
};

bool reaches_host(std::string_view transport)
{
    transport.remove_prefix(
        std::min(transport.find_first_not_of('\\'), transport.size()));
    return !transport.empty() && !transport.starts_with("gaudi") &&
           (transport != "self") && (transport != "tcp");
}

bool any_reaches_host(std::string_view transports)
{
    while (!transports.empty()) {
        const size_t length = std::min(transports.find(','), transports.size());
        if (reaches_host(transports.substr(0, length))) {
            return true;
        }
        transports.remove_prefix(std::min(length + 1, transports.size()));
    }
    return false;
}

} // namespace

bool others_reach_host()
{
    auto entry = make_config_entry<variables>();
    variables::config values;
    if (fill_config(&values, entry, true) != UCS_OK) {
        return true;
    }
    const bool any = any_reaches_host(values.transports);
    ucs_config_parser_release_opts(&values, variables::config_table);
    return any;
}

} // namespace gaudi::base
