/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/ucp_settings.h"

#include "uct/gaudi/base/ucx/config.h"

#include <atomic>
#include <sstream>

#include <fnmatch.h>

namespace gaudi::base {

namespace {

constexpr bool new_is_default = UCT_API >= UCT_VERSION(1, 16);

/* As UCP's table has them, environment and configuration files alike. */
struct ucp_variables {
    struct config {
        char *transports;
        char *shared_devices;
        int new_protocols;
    };
    static constexpr char title[]                   = "UCP";
    static constexpr char prefix[]                  = "";
    static inline ucs_config_field_t config_table[] = {
        {"TLS", "all", "", offsetof(config, transports),
         UCS_CONFIG_TYPE_STRING},
        {"SHM_DEVICES", "all", "", offsetof(config, shared_devices),
         UCS_CONFIG_TYPE_STRING},
        {"PROTO_ENABLE", new_is_default ? "y" : "n", "",
         offsetof(config, new_protocols), UCS_CONFIG_TYPE_BOOL},
        {nullptr, nullptr, nullptr, 0, {}}};
};

struct ucp_settings {
    std::string transports     = "all";
    std::string shared_devices = "all";
    bool new_protocols         = new_is_default;
};

ucp_settings read_settings()
{
    auto entry = make_config_entry<ucp_variables>();
    ucp_variables::config values;
    ucp_settings result;
    if (fill_config(&values, entry, true) == UCS_OK) {
        result = {values.transports, values.shared_devices,
                  values.new_protocols != 0};
        ucs_config_parser_release_opts(&values, ucp_variables::config_table);
    }
    return result;
}

} // namespace

bool has_new_protocols()
{
    return read_settings().new_protocols;
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

/* As ucp_context.c compares them (ucs_config_names_search). */
bool allows_ipc_device()
{
    std::istringstream devices(read_settings().shared_devices);
    for (std::string each; std::getline(devices, each, ',');) {
        if ((each == "all") || (fnmatch(each.c_str(), ipc_device, 0) == 0)) {
            return true;
        }
    }
    return false;
}

allowed_transports find_allowed_transports()
{
    const std::string setting = read_settings().transports;
    return {gaudi_read_transports(setting.c_str()), setting};
}

} // namespace gaudi::base
