/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/ucp_request.h"

#include <config.h>

#include <string.h>
#include <ucp/core/ucp_request.h>
#include <ucp/proto/proto.h>
#include <ucp/proto/proto_select.h>

/* The completions of "rndv/get/mtype", "rndv/put/mtype", "rndv/rtr/mtype" and
 * "rndv/rkey_ptr/mtype" pass over the status (src/ucp/rndv). What these
 * protocols send does not go by way of gaudi_copy. */
int gaudi_request_is_staged(const uct_completion_t *completion)
{
    const ucp_request_t *request =
        ucs_container_of(completion, ucp_request_t, send.state.uct_comp);
    const char *name = request->send.proto_config->proto->name;
    return (strncmp(name, "rndv/", 5) == 0) && (strstr(name, "mtype") != NULL);
}
