/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What users set of gaudi_ipc's interfaces, of either device.
 */
#pragma once

#include "uct/gaudi/base/transfer/transfer_config.h"
#include "uct/gaudi/base/ucx/ucx.h"

#include <cstddef>

namespace gaudi::ipc {

struct interface_config {
    uct_iface_config_t super;
    base::transfer_config transfers;
    size_t fifo_size;
    size_t seg_size;
    unsigned max_poll;
};

/** Whether active messages can be as an interface is to have them; an error is
 *  logged. */
ucs_status_t check_message_size(const uct_iface_params_t &params,
                                const interface_config &config);

} // namespace gaudi::ipc
