/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/dma_queue.h"

#include "util/warning.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>

namespace gaudi::shim {

namespace {

/* How long a queue that goes away waits for the card. */
constexpr uint64_t close_timeout_us = 60'000'000;

/* Longest wait of one driver call, so that a deadline is kept. */
constexpr uint32_t wait_slice_us = 10000;

/* More than anybody waits, and clear of the clock's end. */
constexpr uint64_t longest_wait_us = uint64_t{1} << 50;

/* Polls before a wait sleeps. */
constexpr unsigned wait_polls = 64;

constexpr unsigned max_depth = 512;

} // namespace

int dma_queue::create(dma_engine &engine, dma_direction direction,
                      const dma_queue_options &options,
                      std::unique_ptr<dma_queue> &queue_p)
{
    if (!std::has_single_bit(options.depth) || (options.depth > max_depth)) {
        return -EINVAL;
    }
    const int ret = engine.attach(direction, options.stream);
    if (ret != 0) {
        return ret;
    }
    try {
        queue_p.reset(new dma_queue(engine, direction, options));
    } catch (...) {
        engine.detach();
        throw;
    }
    return 0;
}

dma_queue::~dma_queue()
{
    if (wait_all(close_timeout_us) != 0) {
        util::warn("card %s still runs %u copies of a queue that goes away",
                   engine_.bus_id().c_str(),
                   static_cast<unsigned>(next_ - ended_));
    }
    for (; ended_ != next_; ++ended_) {
        if (at(ended_).job != ticket::none) {
            engine_.forget(at(ended_).job);
        }
    }
    engine_.detach();
}

int dma_queue::wait(uint64_t id, uint64_t timeout_us)
{
    using clock    = std::chrono::steady_clock;
    unsigned polls = 0;
    clock::time_point deadline;

    while (ended_ <= id) {
        if (end_oldest((polls < wait_polls) ? 0 : wait_slice_us)) {
            continue;
        }
        const auto now = clock::now();
        if (polls++ == 0) {
            deadline = now + std::chrono::microseconds(
                                 std::min(timeout_us, longest_wait_us));
        } else if (now >= deadline) {
            return -EAGAIN;
        }
    }
    return at(id).status;
}

int dma_queue::wait_all(uint64_t timeout_us)
{
    /* How the copies ended is for whoever collects them. */
    return ((ended_ != next_) && (wait(next_ - 1, timeout_us) == -EAGAIN))
               ? -EAGAIN
               : 0;
}

} // namespace gaudi::shim
