/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/config.h"

#include "uct/gaudi/base/ucx/status.h"
#include "util/made_once.h"
#include "util/text.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <vector>

namespace gaudi::base {

namespace {

/* As the environment was when the module was loaded, then when the first
 * caller asked. */
global_config parsed{};
bool is_good = false;

/* As engine_choice. */
const char *engines[] = {"auto", "cs", "synapse", nullptr};

/* As kind_choice. */
const char *kinds[] = {"auto", "gaudi2", "gaudi3", nullptr};

ucs_config_field_t table[] = {
    {"DRIVER", "auto",
     "Which hl-thunk library to use:\n"
     " auto      - the vendor's, if this machine has a Gaudi card\n"
     " hlthunk   - the vendor's (libhl-thunk.so)\n"
     " emulator  - the software Gaudi that came with this module\n"
     " <path>    - this library",
     offsetof(global_config, driver), UCS_CONFIG_TYPE_STRING},

    {"DEVICES", "auto",
     "Which of the visible cards a process opens; GAUDI_MAPPING_TABLE,\n"
     "HABANA_VISIBLE_DEVICES, HABANA_VISIBLE_MODULES and HLS_MODULE_ID choose\n"
     "what is visible:\n"
     " auto      - all, if one of these chose them, else the first free one\n"
     " all       - every card that is free\n"
     " <list>    - these, by name, index or bus id, separated by commas",
     offsetof(global_config, devices), UCS_CONFIG_TYPE_STRING},

    {"MEMORY_TYPE", "auto",
     "UCX memory type that stands for Gaudi memory, in UCX versions that have\n"
     "none for it, which are those before 1.21: cuda-managed, rocm before "
     "1.17\n"
     "and ze-device from then on, or auto for one whose own module is not\n"
     "installed. From 1.21 on gaudi, or auto.",
     offsetof(global_config, memory_type), UCS_CONFIG_TYPE_STRING},

    {"RESET_TIMEOUT", "10s",
     "How long the opening of cards waits for those that are in reset, all of\n"
     "them together. A Gaudi2 resets itself whenever a program lets go of it,\n"
     "which takes seconds. Cards that are in use are not waited for. At most\n"
     "an hour; 0: it does not wait.",
     offsetof(global_config, reset_timeout), UCS_CONFIG_TYPE_TIME},

    {"ENGINE", "auto",
     "What copies are given to:\n"
     " auto      - SynapseAI, if it has acquired the card in this process, as\n"
     "             frameworks have it do, else command submissions\n"
     " cs        - command submissions, by hl-thunk; Gaudi3 takes none\n"
     " synapse   - SynapseAI, which is loaded and given the card, if the\n"
     "             process has not done so. It has one card per process",
     offsetof(global_config, engine), UCS_CONFIG_TYPE_ENUM(engines)},

    {"IPC_ROUTES", "ports,host",
     "What bytes go over between device memory of two processes, best first;\n"
     "what is left out is not used:\n"
     " ports     - the cards' own network ports, by the vendor's libhbl.so\n"
     " host      - host memory that both processes have: the card of one\n"
     "             writes there, that of the other one reads",
     offsetof(global_config, routes), UCS_CONFIG_TYPE_STRING},

    {"IPC_DIR", "",
     "A folder that processes share which have PID, user or network "
     "namespaces\n"
     "of their own, as pods: by it gaudi_ipc reaches one from the other. In "
     "it\n"
     "each user has a folder that nobody else uses. Without it they use other\n"
     "transports.",
     offsetof(global_config, ipc_folder), UCS_CONFIG_TYPE_STRING},

    {"CARD_KIND", "auto",
     "What a card is taken for whose PCI device id and name are not known, as\n"
     "a newer one's may be. Only a try shows whether it works:\n"
     " auto      - it is refused\n"
     " gaudi2    - a Gaudi2: it is given command submissions\n"
     " gaudi3    - a Gaudi3: it is left to SynapseAI",
     offsetof(global_config, card_kind), UCS_CONFIG_TYPE_ENUM(kinds)},

    {"SYNAPSE_HOST_MAP", "n",
     "Have SynapseAI map host memory that is registered, so that it is copied\n"
     "from and to directly; else it passes through staging memory. Never for\n"
     "memory that the framework maps, too: SynapseAI does not count, and the\n"
     "end of one mapping is the end of the other one.",
     offsetof(global_config, synapse_host_map), UCS_CONFIG_TYPE_BOOL},

    {nullptr, nullptr, nullptr, 0, {}}};

struct variables {
    static constexpr char title[]       = "Gaudi (process-wide)";
    static constexpr char prefix[]      = "GAUDI_";
    static constexpr auto &config_table = table;
    using config                        = global_config;
};

ucs_config_global_list_entry_t entry = make_config_entry<variables>();

/* Invalid values so far, of the thread that parses. */
thread_local unsigned *invalid = nullptr;

/* The parser's own complaint names no whole variable. */
ucs_log_func_rc_t name_invalid_value(const char *, unsigned, const char *,
                                     ucs_log_level_t,
                                     const ucs_log_component_config_t *,
                                     const char *message, va_list arguments)
{
    if ((invalid == nullptr) ||
        (std::strcmp(message, "Invalid value for %s: '%s'. Expected: %s") !=
         0)) {
        return UCS_LOG_FUNC_RC_CONTINUE;
    }
    const char *name     = va_arg(arguments, const char *);
    const char *value    = va_arg(arguments, const char *);
    const char *expected = va_arg(arguments, const char *);
    ++*invalid;
    (void)guarded([&] {
        ucs_error("%s%s%s=%s is not valid (expected: %s); the Gaudi "
                  "transports are not available",
                  UCS_DEFAULT_ENV_PREFIX, variables::prefix, name,
                  util::to_printable(value).c_str(), expected);
        return UCS_OK;
    });
    return UCS_LOG_FUNC_RC_STOP;
}

} // namespace

/* @return Whether all values are valid; else those that are not have been
 *         logged, and have their defaults. */
static bool parse(global_config &values)
{
    unsigned count = 0;
    invalid        = &count;
    ucs_log_push_handler(name_invalid_value);
    if (fill_config(&values, entry, true) != UCS_OK) {
        ucs_fatal("gaudi: the UCX_GAUDI_* variables have no defaults");
    }
    ucs_log_pop_handler();
    invalid = nullptr;
    return count == 0;
}

/* What the program has set since the module was loaded counts, too: UCX reads
 * its own variables in ucp_init. The memory type alone has been taken. */
static const global_config &parse_again()
{
    global_config now{};
    if (!is_good) {
        return parsed; /* logged when the module was loaded */
    }
    is_good = parse(now);
    if (std::strcmp(now.memory_type, parsed.memory_type) != 0) {
        ucs_warn("UCX_GAUDI_MEMORY_TYPE=%s comes too late and is not used (set "
                 "it before the program starts)",
                 util::to_printable(now.memory_type).c_str());
    }
    ucs_config_parser_release_opts(&parsed, table);
    parsed = now;
    return parsed;
}

bool init_config()
{
    ucs_list_add_tail(&ucs_config_global_list, &entry.list);
    is_good = parse(parsed);
    return is_good;
}

const char *memory_type_at_load()
{
    return parsed.memory_type;
}

void mark_variables_used(ucs_config_global_list_entry_t &table)
{
    std::vector<char> values(table.size);
    if (fill_config(values.data(), table, true) == UCS_OK) {
        ucs_config_parser_release_opts(values.data(), table.table);
    }
}

const char *name_of_engine()
{
    return engines[config().engine];
}

const char *name_of_card_kind()
{
    return kinds[config().card_kind];
}

const global_config &config()
{
    /* No static with a guard: a child that is forked meanwhile would wait for
     * it for ever. */
    static constinit util::made_once<const global_config *> now;
    return *now.get([] { return &parse_again(); });
}

bool is_config_valid()
{
    (void)config();
    return is_good;
}

bool is_auto_bandwidth(double bandwidth)
{
#ifdef UCS_CONFIG_DBL_IS_AUTO
    return UCS_CONFIG_DBL_IS_AUTO(bandwidth);
#else
    return UCS_CONFIG_BW_IS_AUTO(bandwidth);
#endif
}

} // namespace gaudi::base
