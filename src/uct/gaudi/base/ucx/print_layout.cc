/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints the layout of UCX by its headers, for the loader: see layout.def and
 * loader/module_choice.c. */
#include "uct/gaudi/base/ucx/ucx.h"

extern "C" {
#include <ucs/async/async.h>
#include <ucs/config/global_opts.h>
#include <ucs/memory/rcache_int.h>
}

#include <cstdio>

namespace {

template <typename Table>
struct table {};

/* Whether a table has a slot. */
#define HAS_SLOT(_table, _slot)                                                \
    []<typename Table>(table<Table>) {                                         \
        return requires(Table one)                                             \
        {                                                                      \
            one._slot;                                                         \
        };                                                                     \
    }(table<_table>{})

} // namespace

int main()
{
#define UCX_SIZE(_kind, _symbol, _type)                                        \
    std::printf(#_kind " " #_symbol " %zu\n", sizeof(_type));
#define UCX_SLOT(_function, _table, _slot)                                     \
    std::printf("%s " #_function "\n",                                         \
                HAS_SLOT(_table, _slot) ? "has" : "lacks");
#include "uct/gaudi/base/ucx/layout.def"
    /* Assertions (ENABLE_ASSERT) lengthen what is before the mode; no symbol
     * tells. */
    std::printf("async %zu %d\n", offsetof(ucs_async_context_t, mode),
                static_cast<int>(UCS_ASYNC_MODE_POLL));
    return 0;
}
