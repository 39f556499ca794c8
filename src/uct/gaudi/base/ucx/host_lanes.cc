#include "uct/gaudi/base/ucx/host_lanes.h"

#include "uct/gaudi/base/ucx/config.h"

#include <algorithm>
#include <iterator>
#include <string_view>

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
        {"TLS", "", "", offsetof(config, transports), UCS_CONFIG_TYPE_STRING},
        {nullptr, nullptr, nullptr, 0, {}}};
};

std::string_view without_backslash(std::string_view name)
{
    name.remove_prefix(std::min(name.find_first_not_of('\\'), name.size()));
    return name;
}

/* UCX's names of transports, and of several at once, that reach host memory of
 * another process at once or through a network card; not `tcp`, which is slower
 * than this one. */
bool reaches_host(std::string_view transport)
{
    constexpr std::string_view names[] = {
        "all",  "shm",   "sm",        "mm",        "posix",
        "sysv", "xpmem", "cma",       "knem",      "ib",
        "rc",   "rc_v",  "rc_x",      "rc_verbs",  "rc_mlx5",
        "ud",   "ud_v",  "ud_x",      "ud_verbs",  "ud_mlx5",
        "dc",   "dc_x",  "dc_mlx5",   "gga",       "gga_mlx5",
        "srd",  "ugni",  "ugni_rdma", "ugni_smsg", "ugni_udt"};
    return std::find(std::begin(names), std::end(names), transport) !=
           std::end(names);
}

/* A caret before the list turns it round; `all` is a name for all. */
allowed_transports parse(std::string_view list)
{
    const bool all_but = list.starts_with('^');
    list.remove_prefix(all_but ? 1 : 0);
    bool reach_host = false;
    bool copy       = false;
    bool ipc        = false;
    bool others     = false;
    while (!list.empty()) {
        const size_t length         = std::min(list.find(','), list.size());
        const std::string_view name = without_backslash(list.substr(0, length));
        const bool both             = (name == "all") || (name == "gaudi");
        reach_host |= reaches_host(name);
        copy |= both || (name == "gaudi_cpy");
        ipc |= both || (name == "gaudi_ipc");
        others |= (name != "self") && !name.starts_with("gaudi");
        list.remove_prefix(std::min(length + 1, list.size()));
    }
    return all_but ? allowed_transports{.reach_host = true,
                                        .copy       = !copy,
                                        .gaudi      = !copy || !ipc,
                                        .others     = true}
                   : allowed_transports{.reach_host = reach_host,
                                        .copy       = copy,
                                        .gaudi      = copy || ipc,
                                        .others     = others};
}

} // namespace

allowed_transports find_allowed_transports()
{
    auto entry = make_config_entry<transport_variables>();
    transport_variables::config values;
    std::string setting;
    if (fill_config(&values, entry, true) == UCS_OK) {
        setting = values.transports;
        ucs_config_parser_release_opts(&values,
                                       transport_variables::config_table);
    }
    allowed_transports allowed = parse(setting.empty() ? "all" : setting);
    allowed.setting            = std::move(setting);
    return allowed;
}

} // namespace gaudi::base
