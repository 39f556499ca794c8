/**
 * Checks tables of functions that UCX calls.
 */
#pragma once

#include <cstddef>

namespace gaudi::base {

/**
 * Whether every slot of a table is set.
 *
 * An initializer that names its slots still compiles with a UCX release that
 * has one more, and leaves NULL in it, which UCX calls. So this is asked before
 * UCX is told of a table; an error in the log names the slots that are missing.
 *
 * @param owner  Whose table it is, and
 * @param table  which one, for the log.
 * @param slots  The table: pointers, nothing else.
 */
bool is_complete(const char *owner, const char *table, const void *slots,
                 size_t bytes);

/** The same of a table that has nothing but functions. */
template <typename Table>
bool is_complete(const char *owner, const char *table, const Table &functions)
{
    static_assert(sizeof(Table) % sizeof(void *) == 0);
    return is_complete(owner, table, &functions, sizeof(Table));
}

} // namespace gaudi::base
