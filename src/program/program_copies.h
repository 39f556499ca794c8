/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Copies of ucx_gaudi.h, as its functions and its streams make them.
 *
 * Threads: any.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

#include <cstddef>

namespace gaudi {

/** Whether a copy can be tried.
 *  @param function  Who is asked for it.
 *  @return UCS_OK, or an error, which was logged. */
[[nodiscard]] ucs_status_t check_copy(const char *function, const void *dst,
                                      const void *src, size_t length);

/** Make one that was checked, as ucx_gaudi_mem_copy does. */
[[nodiscard]] ucs_status_t copy_memory(void *dst, const void *src,
                                       size_t length) noexcept;

} // namespace gaudi
