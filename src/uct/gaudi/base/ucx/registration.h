/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * How UCX is told of a component and its transport.
 */
#pragma once

#include "uct/gaudi/base/ucx/transport.h"

namespace gaudi::base {

/**
 * Whether every slot of a table is set.
 *
 * An initializer that names its slots still compiles with a UCX release that
 * has one more, and leaves NULL in it, which UCX calls. So this is asked before
 * UCX is told of a table; an error in the log names the slots that are missing.
 *
 * @param owner  Whose table it is, and
 * @param table  which one, for the log.
 * @param slots  Pointers, nothing else.
 */
bool is_complete(const char *owner, const char *table, const void *slots,
                 size_t bytes);

/** The same of a table that has nothing but functions. */
template <typename Table>
bool is_complete(const char *owner, const char *table, const Table &functions)
{
    static_assert(sizeof(Table) % sizeof(void *) == 0);
    return is_complete(owner, table, &functions, sizeof(Table));
}

/** Whether UCX has a module of its own for Gaudi memory. */
inline constexpr bool ucx_has_own_module = UCT_API >= UCT_VERSION(1, 21);

/** Tell UCX of a component with its transport. Called once, at load. Does
 *  nothing but log when a function is missing, which UCX would call. */
template <typename Domain, typename Transport>
void register_component()
{
    using domain    = component_functions<Domain>;
    using functions = transport_functions<Transport>;

    uct_component_t &own = component<Domain>;
    uct_tl_t &tl         = transport<Transport>;
    const auto between   = [](const void *first, const void *end) {
        return static_cast<size_t>(static_cast<const char *>(end) -
                                   static_cast<const char *>(first));
    };
    if (is_complete(own.name, "uct_component_t", &own.query_md_resources,
                    between(&own.query_md_resources, &own.md_config)) &&
        is_complete(own.name, "uct_component_t", own.md_vfs_init) &&
        is_complete(own.name, "uct_md_ops_t", domain::md_ops) &&
        is_complete(tl.name, "uct_tl_t", &tl.query_devices,
                    between(&tl.query_devices, &tl.config)) &&
        is_complete(tl.name, "uct_iface_ops_t", functions::operations) &&
        is_complete(tl.name, "uct_iface_internal_ops_t",
                    functions::internal_operations)) {
        uct_component_register(&own);
        if constexpr (Domain::comes_first && ucx_has_own_module) {
            ucs_list_del(&own.list);
            ucs_list_add_head(&uct_components_list, &own.list);
        }
        uct_tl_register(&own, &tl);
    }
}

} // namespace gaudi::base
