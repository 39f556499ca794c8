/**
 * Names that some releases of UCX do not have, with what their absence means.
 * With :: before it a name is UCX's own where there is one, else that of here.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

#include <cstdint>

namespace gaudi_absent {

/* Fields that nobody asks for. */
inline constexpr uint64_t UCT_EP_IS_CONNECTED_FIELD_IFACE_ADDR            = 0;
inline constexpr uint64_t UCT_IFACE_IS_REACHABLE_FIELD_DEVICE_ADDR        = 0;
inline constexpr uint64_t UCT_IFACE_IS_REACHABLE_FIELD_IFACE_ADDR         = 0;
inline constexpr uint64_t UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING        = 0;
inline constexpr uint64_t UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING_LENGTH = 0;
inline constexpr uint64_t UCT_MD_MEM_ATTR_FIELD_DMABUF_FD                 = 0;
inline constexpr uint64_t UCT_MD_MEM_ATTR_FIELD_DMABUF_OFFSET             = 0;
inline constexpr uint64_t UCT_MD_MEM_REG_FIELD_FLAGS                      = 0;
inline constexpr uint64_t UCT_PERF_ATTR_FIELD_FLAGS                       = 0;
inline constexpr uint64_t UCT_PERF_ATTR_FIELD_PATH_BANDWIDTH              = 0;

/* Wishes that nobody has to say. But UCX 1.20.1 looks at this one, whose module
 * may have been built with the headers of 1.20.0; releases before do not look
 * at the bit. */
inline constexpr int UCS_RCACHE_FLAG_NEED_LRU_LOCK =
    (UCT_API == UCT_VERSION(1, 20)) ? 1 << 3 : 0;

/* Abilities that nobody asks about. */
inline constexpr uint64_t UCT_MD_FLAG_INVALIDATE_AMO = 0;
inline constexpr uint64_t UCT_MD_FLAG_INVALIDATE_RMA = 0;
inline constexpr uint64_t UCT_MD_FLAG_MEMTYPE_COPY   = 0;

} // namespace gaudi_absent

/* At the place where :: looks second. */
using namespace gaudi_absent; /* NOLINT(google-build-using-namespace,
                                 google-global-names-in-headers) */
