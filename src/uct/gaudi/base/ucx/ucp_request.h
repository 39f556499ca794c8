/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What UCP's record of a request tells. Its headers are for C alone.
 */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

#include <uct/api/uct.h>

/** Whether a completion is of a copy between device memory and a fragment by
 *  which UCP's new protocols stage a message: they ignore its status.
 *  @param completion  In a request of a new protocol. */
int gaudi_request_is_staged(const uct_completion_t *completion);

#ifdef __cplusplus
}
#endif
