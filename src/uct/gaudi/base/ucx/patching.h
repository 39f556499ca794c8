/**
 * UCM's way to have other functions called in place of a library's: by changing
 * the tables of those that call them. One thread at a time.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

extern "C" {
#include <ucm/util/reloc.h>
}

namespace gaudi::base {

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
