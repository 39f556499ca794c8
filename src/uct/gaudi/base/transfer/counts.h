/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Totals of what an engine has copied: bytes and operations by what moved them,
 * which UCX shows of the engine's interface.
 *
 * Counted on the engine's thread, with plain loads and stores: nobody else
 * writes. Read by any thread.
 */
#pragma once

#include "uct/gaudi/base/ucx/statistics.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gaudi::base {

/** What moves the bytes of an operation. */
enum class mover : uint8_t {
    card,  /**< the engines of a card of this process */
    ports, /**< a card's ports, to or from the card of another process */
    host,  /**< another process's card, through host memory that both have */
    cpu,   /**< this computer's, between host memory */
    count
};

class copy_counts {
public:
    /** An operation has ended well. */
    void add(mover by, uint64_t bytes)
    {
        const size_t first = 2 * static_cast<size_t>(by);
        add_to(first, bytes);
        add_to(first + 1, 1);
    }

    /** Have UCX show them. Once. */
    void show_in(uct_iface_h iface);

    /** Add the files to what UCX's virtual file system shows of the interface.
     *  Any thread. */
    void add_files() const;

private:
    static constexpr size_t numbers = 2 * static_cast<size_t>(mover::count);

    void add_to(size_t number, uint64_t more)
    {
        std::atomic<uint64_t> &counted = numbers_[number];
        counted.store(counted.load(std::memory_order_relaxed) + more,
                      std::memory_order_relaxed);
        statistics_.add(number, more);
    }

    static statistics_class<numbers> class_;

    std::array<std::atomic<uint64_t>, numbers> numbers_{};
    statistics_node statistics_;
    std::atomic<uct_iface_h> iface_{nullptr};
};

} // namespace gaudi::base
