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
        UCS_CLASS_CLEANUP(uct_base_ep_t, &super_);
    }
}

} // namespace gaudi::base
