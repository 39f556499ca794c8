/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The one place where the shim's negative errno becomes UCX's status, and its
 * warnings UCX's.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "util/process.h"

#include <new>

namespace gaudi::base {

/** Let warnings of the rooms below (util/warning.h) go to UCX's log. */
void warn_by_ucx();

/** Translate a result of the shim: 0 or -errno. */
ucs_status_t to_status(int result) noexcept;

/** The level of a failure: UCX tries things and says beforehand that they may
 *  fail. */
inline ucs_log_level_t failure_level(bool quiet)
{
    return quiet ? UCS_LOG_LEVEL_DIAG : UCS_LOG_LEVEL_ERROR;
}

/** Run control-path code that may allocate, behind a C callback.
 *  @return What the body returns, or UCS_ERR_NO_MEMORY. */
template <typename Body>
ucs_status_t guarded(Body &&body) noexcept
{
    try {
        return body();
    } catch (const std::bad_alloc &) {
        ucs_error("gaudi: out of host memory (raise its limit)");
        return UCS_ERR_NO_MEMORY;
    } catch (...) {
        ucs_error("gaudi: unexpected failure (report this bug)");
        return UCS_ERR_IO_ERROR;
    }
}

/** Log, once, that this process may only exec or exit.
 *  @return UCS_ERR_UNSUPPORTED */
ucs_status_t refuse_process() noexcept;

/** UCS_OK, or what every entry point answers in a process that is cut off
 *  (util::is_cut_off). */
inline ucs_status_t check_process() noexcept
{
    return ucs_likely(!util::is_cut_off()) ? UCS_OK : refuse_process();
}

/** The same as @ref guarded, of an entry point. */
template <typename Body>
ucs_status_t guarded_entry(Body &&body) noexcept
{
    const ucs_status_t status = check_process();
    return ucs_likely(status == UCS_OK) ? guarded(body) : status;
}

} // namespace gaudi::base
