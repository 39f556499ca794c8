/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the cards have copied for an engine: bytes and jobs by card and
 * direction, which UCX shows of the engine's interface.
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
#include <memory>
#include <string>

namespace gaudi::base {

/** Where bytes went, as the card sees it that copied them. */
enum class copy_kind : uint8_t {
    host_to_device,
    device_to_host,
    on_card,
    card_to_card_out, /**< it wrote to another card, */
    card_to_card_in,  /**< or read from there */
    count
};

/** Of one card. */
class card_counts {
public:
    explicit card_counts(std::string card) : card_(std::move(card)) {}

    /** A job has ended well. */
    void add(copy_kind kind, uint64_t bytes)
    {
        counts &counted = counts_[static_cast<size_t>(kind)];
        increase(counted.bytes, bytes);
        increase(counted.jobs, 1);
        statistics_.add(2 * static_cast<size_t>(kind), bytes);
        statistics_.add(2 * static_cast<size_t>(kind) + 1, 1);
    }

private:
    friend class copy_counts;

    struct counts {
        std::atomic<uint64_t> bytes{0};
        std::atomic<uint64_t> jobs{0};
    };

    static void increase(std::atomic<uint64_t> &number, uint64_t by)
    {
        number.store(number.load(std::memory_order_relaxed) + by,
                     std::memory_order_relaxed);
    }
    void show_in(uct_iface_h iface);
    void add_files(uct_iface_h iface) const;

    const std::string card_;
    std::array<counts, static_cast<size_t>(copy_kind::count)> counts_;
    statistics_node statistics_;
    std::unique_ptr<card_counts> next_; /* of the engine */
};

/** Of all cards of an engine. */
class copy_counts {
public:
    /** Of a card; lives as long as this. @throws bad_alloc. */
    card_counts &of(const std::string &card);

    /** Have UCX show all, also what comes later. Once. */
    void show_in(uct_iface_h iface);

    /** Add the files of all to what UCX's virtual file system shows of the
     *  interface. Any thread. */
    void add_files() const;

private:
    /* Only ever grows at its head: who reads needs no lock, which a forked
     * child might find taken. */
    std::unique_ptr<card_counts> first_;
    std::atomic<const card_counts *> head_{nullptr};
    std::atomic<uct_iface_h> iface_{nullptr};
};

} // namespace gaudi::base
