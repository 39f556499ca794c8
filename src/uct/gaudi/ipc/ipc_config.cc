/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/ipc_config.h"

#include "uct/gaudi/base/ucx/transport_properties.h"
#include "uct/gaudi/ipc/messages/connection.h"

namespace gaudi::ipc {

namespace {

/* UCP ends the process when a packed key, with those of all other transports,
 * does not fit in a message, bytes. */
constexpr size_t least_seg_size = 1024;

} // namespace

ucs_status_t check_message_size(const uct_iface_params_t &params,
                                const interface_config &config)
{
    const ucs_status_t status = base::check_alignment(params, config.seg_size);
    if (status != UCS_OK) {
        return status;
    }
    if ((config.seg_size < least_seg_size) ||
        (config.seg_size > connection::max_payload)) {
        ucs_error("gaudi_ipc: SEG_SIZE=%zu is not between %zu and %zu",
                  config.seg_size, least_seg_size, connection::max_payload);
        return UCS_ERR_INVALID_PARAM;
    }
    return UCS_OK;
}

} // namespace gaudi::ipc
