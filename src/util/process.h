/**
 * Which process this is, for objects that outlive a fork.
 *
 * A forked child has a copy of every object of its parent, but the cards, their
 * queues and the threads are the parent's. Objects remember the generation in
 * which they were made, and do nothing in a later one. What there is one of per
 * process: util/per_process.h. What else happens at a fork:
 * util/fork_handlers.h.
 */
#pragma once

#include <atomic>
#include <cstdint>

namespace gaudi::util {

namespace detail {
extern std::atomic<unsigned> process_generation;
}

/** One more in every forked child, if forks are counted. Costs a load. */
inline unsigned process_generation()
{
    return detail::process_generation.load(std::memory_order_relaxed);
}

/** Names this process, and no other one, not even a parent or a later one with
 *  its pid. */
uint64_t process_identity();

/** Count forks from now on; further calls do nothing. Called by
 *  of_this_process, so by whatever the first object comes from that remembers a
 *  generation. */
void count_forks();

} // namespace gaudi::util
