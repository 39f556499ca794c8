/**
 * UCM's ways to have other functions called in place of a library's. At load,
 * and when a driver library is loaded; one thread at a time.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

extern "C" {
#include <ucm/bistro/bistro.h>
#include <ucm/util/reloc.h>
}

namespace gaudi::base {

/** Let a function begin with a jump. @return Whether it does. */
inline bool patch_function(void *function, void *replacement, const char *name)
{
    return ucm_bistro_patch(function, replacement, name, nullptr, nullptr) ==
           UCS_OK;
}

/** Redirection of a name: UCX keeps it, so it lives to the end. */
using redirection = ucm_reloc_patch_t;

/** Redirect a name wherever it is called. @return Whether that was done. */
inline bool redirect_calls(redirection &kept, const char *name,
                           void *replacement)
{
    kept.symbol = name;
    kept.value  = replacement;
    return ucm_reloc_modify(&kept) == UCS_OK;
}

} // namespace gaudi::base
