/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/registration.h"

#include <cstring>

namespace gaudi::base {

bool is_complete(const char *owner, const char *table, const void *slots,
                 size_t bytes)
{
    bool complete = true;
    for (size_t i = 0; i < bytes / sizeof(void *); ++i) {
        const void *slot;
        memcpy(&slot, static_cast<const char *>(slots) + (i * sizeof(slot)),
               sizeof(slot));
        if (slot == nullptr) {
            ucs_error("%s: slot %zu of its table %s has no function: this "
                      "module does not fit this UCX",
                      owner, i, table);
            complete = false;
        }
    }
    return complete;
}

} // namespace gaudi::base
