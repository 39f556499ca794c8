/* SPDX-License-Identifier: BSD-3-Clause */
/* A component that is linked with UCX, as Open MPI's are, of a program that is
 * not: opens a UCP context and prints it. */
#include <stdio.h>
#include <ucp/api/ucp.h>

__attribute__((visibility("default"))) int late_ucx_show_context(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features   = UCP_FEATURE_TAG};
    ucp_config_t *config;
    ucp_context_h context;
    ucs_status_t status;

    if (ucp_config_read(NULL, NULL, &config) != UCS_OK) {
        return 1;
    }
    status = ucp_init(&params, config, &context);
    ucp_config_release(config);
    if (status != UCS_OK) {
        return 1;
    }
    ucp_context_print_info(context, stdout);
    ucp_cleanup(context);
    return 0;
}
