/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/transfer/transfer_config.h"

#include "uct/gaudi/base/ucx/config.h"

namespace gaudi::base {

ucs_config_field_t transfer_config_table[] = {
    {"STAGING_CHUNK", "64k",
     "Bytes of a chunk of the staging memory through which host memory passes\n"
     "that is not registered. Also the longest bcopy operation.",
     offsetof(transfer_config, chunk_bytes), UCS_CONFIG_TYPE_MEMUNITS},

    {"STAGING_COUNT", "16",
     "Number of staging chunks per interface and card. Two of them are kept "
     "for\nshort operations.",
     offsetof(transfer_config, chunks), UCS_CONFIG_TYPE_UINT},

    {"BW", "auto",
     "Bandwidth of a card's PCIe link, each way, in bytes per second (as in\n"
     "25GBs). auto is 25000MBs, that of a x16 Gen4 slot, and twice that on\n"
     "Gaudi3.",
     offsetof(transfer_config, bandwidth), UCS_CONFIG_TYPE_BW},

    {nullptr, nullptr, nullptr, 0, {}}};

double transfer_config::bandwidth_or(double by_default) const
{
    return is_auto_bandwidth(bandwidth) ? by_default : bandwidth;
}

double link_bandwidth(const card *of)
{
    return ((of != nullptr) ? of->device().capabilities()
                            : shim::capabilities{})
        .link_bandwidth;
}

/* Short and bcopy operations touch the bytes once more on the CPU, and reads of
 * a PCIe device are slower than writes to it. */
double link_efficiency(std::optional<uct_ep_operation_t> operation)
{
    if (!operation.has_value()) {
        return 1;
    }
    switch (*operation) {
    case UCT_EP_OP_PUT_SHORT:
        return 0.40;
    case UCT_EP_OP_GET_SHORT:
        return 0.35;
    case UCT_EP_OP_PUT_BCOPY:
        return 0.45;
    case UCT_EP_OP_GET_BCOPY:
        return 0.40;
    case UCT_EP_OP_GET_ZCOPY:
        return 0.90;
    default: /* UCT_EP_OP_PUT_ZCOPY, and what this does not know */
        return 0.95;
    }
}

} // namespace gaudi::base
