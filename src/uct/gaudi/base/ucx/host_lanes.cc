#include "uct/gaudi/base/ucx/host_lanes.h"

#include "uct/gaudi/base/ucx/config.h"

namespace gaudi::base {

namespace {

/* As UCP's table has it. */
struct transport_variables {
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

} // namespace

allowed_transports find_allowed_transports()
{
    auto entry = make_config_entry<transport_variables>();
    transport_variables::config values;
    std::string setting = "all";
    if (fill_config(&values, entry, true) == UCS_OK) {
        setting = values.transports;
        ucs_config_parser_release_opts(&values,
                                       transport_variables::config_table);
    }
    return {gaudi_read_transports(setting.c_str()), setting};
}

} // namespace gaudi::base
