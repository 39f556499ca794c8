/**
 * One object per process: a forked child gets another than its parent.
 *
 * What the parent had stays as it is in the child, reachable and untouched.
 * Never destroyed: UCX's own clean-up order is not ours to know. Any thread.
 */
#pragma once

#include "util/process.h"

#include <atomic>
#include <memory>

namespace gaudi::util {

template <typename T>
T &of_this_process()
{
    struct holder {
        unsigned generation;
        holder *parents;
        T object;
    };
    static std::atomic<holder *> current{nullptr};

    holder *known = current.load(std::memory_order_acquire);
    while ((known == nullptr) || (known->generation != process_generation())) {
        std::unique_ptr<holder> fresh(
            new holder{process_generation(), known, {}});
        if (current.compare_exchange_strong(known, fresh.get())) {
            known = fresh.release();
        }
    }
    return known->object;
}

} // namespace gaudi::util
