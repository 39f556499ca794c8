/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Where UCX shows numbers of an interface: in its statistics, which a UCX has
 * that was configured with --enable-stats, and in its virtual file system.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"

extern "C" {
#include <ucs/stats/stats.h>
}

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace gaudi::base {

/** A kind of node with its numbers, laid out as ucs_stats_class_t, whose array
 *  has no length. Lives as long as the process. */
template <size_t count>
struct statistics_class {
    const char *name;
    unsigned number_count = count;
    unsigned id           = UCS_STATS_CLASS_ID_INVALID;
    std::array<const char *, count> names;
};

/** A node of UCX's statistics below that of an interface; nothing where UCX has
 *  none, or has them off. One thread at a time. */
class statistics_node {
public:
    statistics_node() { UCS_STATS_NODE_RESET(&node_); }
    ~statistics_node() { UCS_STATS_NODE_FREE(node_); }
    statistics_node(const statistics_node &)            = delete;
    statistics_node &operator=(const statistics_node &) = delete;

    /** Make it, once. Without memory it stays away; UCX logs that. */
    template <size_t count>
    void create([[maybe_unused]] uct_iface_h iface,
                [[maybe_unused]] statistics_class<count> &kind,
                [[maybe_unused]] const std::string &name)
    {
#ifdef ENABLE_STATS
        using own = statistics_class<count>;
        static_assert(
            (offsetof(own, name) == offsetof(ucs_stats_class_t, name)) &&
            (offsetof(own, number_count) ==
             offsetof(ucs_stats_class_t, num_counters)) &&
            (offsetof(own, id) == offsetof(ucs_stats_class_t, class_id)) &&
            (offsetof(own, names) ==
             offsetof(ucs_stats_class_t, counter_names)));
        (void)UCS_STATS_NODE_ALLOC(
            &node_, reinterpret_cast<ucs_stats_class_t *>(&kind),
            reinterpret_cast<uct_base_iface_t *>(iface)->stats, "-%s",
            name.c_str());
#endif
    }

    void add([[maybe_unused]] size_t number, [[maybe_unused]] uint64_t more)
    {
        UCS_STATS_UPDATE_COUNTER(node_, number, more);
    }

private:
    UCS_STATS_NODE_DECLARE(node_)
};

/** Have UCX's virtual file system show a number below an object that it knows;
 *  of another one, or when it does already, nothing happens.
 *  @param number  Lives as long as the object is shown. */
inline void add_vfs_number(void *object, const std::atomic<uint64_t> &number,
                           const std::string &path)
{
    const auto show = [](void *, ucs_string_buffer_t *text, void *shown,
                         uint64_t) {
        ucs_string_buffer_appendf(
            text, "%lu\n",
            static_cast<const std::atomic<uint64_t> *>(shown)->load(
                std::memory_order_relaxed));
    };
    (void)ucs_vfs_obj_add_ro_file(object, show,
                                  const_cast<std::atomic<uint64_t> *>(&number),
                                  0, "%s", path.c_str());
}

} // namespace gaudi::base
