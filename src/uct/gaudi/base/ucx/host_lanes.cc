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

std::string_view without_backslash(std::string_view name)
{
    name.remove_prefix(std::min(name.find_first_not_of('\\'), name.size()));
    return name;
}

bool reaches_host(std::string_view transport)
{
    return !transport.empty() && !transport.starts_with("gaudi") &&
           (transport != "self") && (transport != "tcp");
}

bool is_copy(std::string_view transport)
{
    return (transport == "gaudi_cpy") || (transport == "gaudi");
}

/* A caret before the list turns it round; `all` is a name for all. */
allowed_transports parse(std::string_view list)
{
    const bool all_but = list.starts_with('^');
    list.remove_prefix(all_but ? 1 : 0);
    allowed_transports named;
    while (!list.empty()) {
        const size_t length         = std::min(list.find(','), list.size());
        const std::string_view name = without_backslash(list.substr(0, length));
        named.reach_host |= reaches_host(name);
        named.copy |= is_copy(name) || (name == "all");
        list.remove_prefix(std::min(length + 1, list.size()));
    }
    return all_but ? allowed_transports{.reach_host = true, .copy = !named.copy}
                   : named;
}

} // namespace

allowed_transports find_allowed_transports()
{
    auto entry = make_config_entry<variables>();
    variables::config values;
    if (fill_config(&values, entry, true) != UCS_OK) {
        return parse("all");
    }
    const allowed_transports allowed = parse(values.transports);
    ucs_config_parser_release_opts(&values, variables::config_table);
    return allowed;
}

} // namespace gaudi::base
