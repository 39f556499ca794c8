/**
 * One object per process: a forked child gets another than its parent.
 *
 * The first call makes it, without a lock: a child that is forked while a
 * thread of its parent makes one does not wait for that thread, as it would for
 * the initialisation of a static inside a function. So
 *   - several threads may make one each at the same time, of which one stays:
 *     constructors register nothing, start nothing and open nothing that the
 *     destructor does not undo;
 *   - what the parent had stays as it is in the child, reachable and untouched:
 *     it may be half changed, and its locks taken. What the child is to lose of
 *     it, such as a descriptor, is closed_in_children (util/fork_handlers.h).
 *
 * Never destroyed: UCX's own clean-up order is not ours to know. Any thread.
 */
#pragma once

#include "util/process.h"

#include <atomic>
#include <memory>

namespace gaudi::util {

/** Costs two loads once it is there. Counts forks from the first call on.
 *  @throws what the constructor throws, and bad_alloc. */
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
        count_forks();
        std::unique_ptr<holder> fresh(
            new holder{process_generation(), known, {}});
        if (current.compare_exchange_strong(known, fresh.get())) {
            known = fresh.release();
        }
    }
    return known->object;
}

} // namespace gaudi::util
