/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Changes UCT's configurations in the way of every UCX release.
 */
#pragma once

#include <uct/api/uct.h>

#include <string>

namespace gaudi::test {

/** Whether caches of registrations have RCACHE_ADDR_ALIGN. */
inline constexpr bool rcache_has_alignment = UCT_API < UCT_VERSION(1, 17);

/** Set a variable of one of our tables by its name without prefix, which UCX
 *  1.14 and before want so, and later ones with the prefix. */
inline ucs_status_t modify_config(void *config, const std::string &variable,
                                  const std::string &value)
{
    ucs_status_t status = UCS_ERR_NO_ELEM;
    for (const char *prefix : {"", "GAUDI_COPY_", "GAUDI_IPC_"}) {
        if (status == UCS_ERR_NO_ELEM) {
            status = uct_config_modify(config, (prefix + variable).c_str(),
                                       value.c_str());
        }
    }
    return status;
}

} // namespace gaudi::test
