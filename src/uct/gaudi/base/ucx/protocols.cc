#include "uct/gaudi/base/ucx/protocols.h"

#include "uct/gaudi/base/ucx/config.h"
#include "uct/gaudi/base/ucx/host_lanes.h"

#include <atomic>

namespace gaudi::base {

namespace {

constexpr bool new_is_default = UCT_API >= UCT_VERSION(1, 16);

/* As UCP's table has it, environment and configuration files alike. */
struct protocol_variables {
    struct config {
        int enable = new_is_default;
    };
    static constexpr char title[]                   = "UCP protocols";
    static constexpr char prefix[]                  = "";
    static inline ucs_config_field_t config_table[] = {
        {"PROTO_ENABLE", new_is_default ? "y" : "n", "",
         offsetof(config, enable), UCS_CONFIG_TYPE_BOOL},
        {nullptr, nullptr, nullptr, 0, {}}};
};

} // namespace

bool has_new_protocols()
{
    auto entry = make_config_entry<protocol_variables>();
    protocol_variables::config values;
    return (fill_config(&values, entry, true) != UCS_OK) ? new_is_default
                                                         : (values.enable != 0);
}

bool has_usable_protocols()
{
    static std::atomic<bool> told{false};

    if (!new_is_default || has_new_protocols()) {
        return true;
    }
    if (!told.exchange(true)) {
        const bool is_meant = find_allowed_transports().gaudi;
        ucs_log(is_meant ? UCS_LOG_LEVEL_ERROR : UCS_LOG_LEVEL_DIAG,
                "gaudi: UCX_PROTO_ENABLE=n chooses protocols that this UCX "
                "cannot use with device memory: there is no Gaudi memory; "
                "leave UCX_PROTO_ENABLE unset, or set it to y");
    }
    return false;
}

} // namespace gaudi::base
