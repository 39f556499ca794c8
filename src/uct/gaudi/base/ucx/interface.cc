/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/interface.h"

namespace gaudi::base {

ucs_status_t ucx_interface::init(uct_iface_ops_t &operations,
                                 uct_iface_internal_ops_t &internal,
                                 uct_md_h md, uct_worker_h worker,
                                 const uct_iface_params_t &params,
                                 const uct_iface_config_t &config,
                                 [[maybe_unused]] const char *name)
{
    const ucs_status_t status = UCS_CLASS_INIT(
        uct_base_iface_t, &super_, &operations, &internal, md, worker, &params,
        &config UCS_STATS_ARG(params.stats_root) UCS_STATS_ARG(name));
    has_super_ = (status == UCS_OK);
    return status;
}

ucx_interface::~ucx_interface()
{
    if (has_super_) {
        UCS_CLASS_CLEANUP(uct_base_iface_t, &super_);
    }
}

unsigned ucx_interface::report_failures()
{
    unsigned count = 0;
    for (; has_failures(); ++count) {
        ucx_endpoint *ep;
        {
            const worker_block block(*this);
            ep = ucs_list_extract_head(&failed_, ucx_endpoint, in_failed_);
            ucs_list_head_init(&ep->in_failed_);
        }
        (void)uct_iface_handle_ep_err(handle(), ep->handle(), ep->status_);
    }
    return count;
}

ucs_status_t ucx_endpoint::init(uct_iface_h iface)
{
    const ucs_status_t status = UCS_CLASS_INIT(
        uct_base_ep_t, &super_, ucs_derived_of(iface, uct_base_iface_t));
    has_super_ = (status == UCS_OK);
    return status;
}

ucx_endpoint::~ucx_endpoint()
{
    if (has_super_) {
        {
            const worker_block block(owner());
            ucs_list_del(&in_failed_);
        }
        UCS_CLASS_CLEANUP(uct_base_ep_t, &super_);
    }
}

void ucx_endpoint::fail(ucs_status_t status)
{
    if (status_ == UCS_OK) {
        ucs_debug("ep %p failed: %s", handle(), ucs_status_string(status));
        status_ = status;
        ucs_list_add_tail(&owner().failed_, &in_failed_);
    }
}

} // namespace gaudi::base
