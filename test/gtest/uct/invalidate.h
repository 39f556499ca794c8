/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Ends the use of memory by others, as UCP does.
 */
#pragma once

extern "C" {
#include <uct/api/v2/uct_v2.h>
}

namespace gaudi::test {

/** Deregister memory; others must not use it any more.
 *  @param over  Called when nobody does. */
inline ucs_status_t invalidate(uct_md_h md, uct_mem_h memh,
                               uct_completion_t &over)
{
    uct_md_mem_dereg_params_t params{};
    params.field_mask = UCT_MD_MEM_DEREG_FIELD_MEMH |
                        UCT_MD_MEM_DEREG_FIELD_FLAGS |
                        UCT_MD_MEM_DEREG_FIELD_COMPLETION;
    params.memh  = memh;
    params.flags = UCT_MD_MEM_DEREG_FLAG_INVALIDATE;
    params.comp  = &over;
    return uct_md_mem_dereg_v2(md, &params);
}

} // namespace gaudi::test
