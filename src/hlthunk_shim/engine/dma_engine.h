/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What differs between the ways in which a card takes work: device memory, host
 * memory that the card reaches, and copies. Belongs to one card, which calls it
 * with 0 or -errno as answers; see card.h for what they mean. Any thread.
 */
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace gaudi::shim {

/** What the two device addresses of a copy stand for. Host memory is what is
 *  registered with the card or imported: the engines that copy within the card
 *  do not reach either. */
enum class dma_direction { host_to_device, device_to_host, device_to_device };

inline constexpr size_t dma_directions = 3;

/** Names a copy that a card was given, for that card alone: see card::query. */
enum class ticket : uint64_t { none = 0 };

/** Device memory in one piece. */
struct memory_block {
    uint64_t start; /**< device address */
    uint64_t size;  /**< bytes */
};

class allocation;
class registration;

/** Notes that something makes no progress. Any thread. */
class stall_detector {
public:
    using clock = std::chrono::steady_clock;

    /** It makes none. @return Since when; 0 the first time. */
    clock::duration note()
    {
        const auto now   = clock::now().time_since_epoch().count();
        clock::rep since = since_.load(std::memory_order_relaxed);
        const bool first =
            (since == 0) && since_.compare_exchange_strong(since, now);
        return clock::duration(first ? 0 : now - since);
    }

    /** It makes progress. */
    void reset()
    {
        if (since_.load(std::memory_order_relaxed) != 0) {
            since_.store(0, std::memory_order_relaxed);
        }
    }

private:
    std::atomic<clock::rep> since_{0};
};

class dma_engine {
public:
    explicit dma_engine(std::string bus_id) : bus_id_(std::move(bus_id)) {}
    virtual ~dma_engine()                     = default;
    dma_engine(const dma_engine &)            = delete;
    dma_engine &operator=(const dma_engine &) = delete;

    /** Of its card, for messages. */
    [[nodiscard]] const std::string &bus_id() const { return bus_id_; }

    /* --- memory, as of card ------------------------------------------------*/

    [[nodiscard]] virtual int allocate(uint64_t size, uint64_t wished,
                                       allocation &allocation_p)     = 0;
    [[nodiscard]] virtual int free_memory(uint64_t handle)           = 0;
    [[nodiscard]] virtual int map_host(void *host, uint64_t size,
                                       registration &registration_p) = 0;
    [[nodiscard]] virtual int unmap(uint64_t address)                = 0;

    /** Why memory of the application is not mapped; 0: it may be. */
    [[nodiscard]] virtual int prepare_host(void *, uint64_t) { return 0; }

    /** The driver has imported a dma-buf, at this address of the card. */
    virtual void note_import(uint64_t, uint64_t) {}

    /** Where the driver knows what is to be exported, and is to count its
     *  offset from. */
    [[nodiscard]] virtual int find_exported(uint64_t &, uint64_t &, uint64_t)
    {
        return 0;
    }
    [[nodiscard]] virtual std::optional<memory_block> application_block() const
    {
        return std::nullopt;
    }
    [[nodiscard]] virtual const char *why_no_ports() const { return nullptr; }

    /* --- copies ------------------------------------------------------------*/

    /** A queue is made for a stream of a direction, and is gone again. */
    [[nodiscard]] virtual int attach(dma_direction direction,
                                     unsigned stream) = 0;
    virtual void detach()                             = 0;

    /** Start a copy, as of dma_queue::submit, of more than 0 bytes.
     *  @param job_p  Filled on success only. */
    [[nodiscard]] virtual int start(dma_direction direction, unsigned stream,
                                    uint64_t dst, uint64_t src, uint64_t length,
                                    ticket &job_p) = 0;

    /** Look at a copy, as @ref query, for its owner, who does not ask again
     *  when it has ended. */
    [[nodiscard]] virtual int look(ticket job, uint32_t timeout_us) = 0;

    /** The owner of a copy that still runs goes away. */
    virtual void forget(ticket job) = 0;

    /** As of card. */
    [[nodiscard]] virtual int query(ticket of, uint32_t timeout_us) = 0;
    [[nodiscard]] virtual ticket blocking_ticket() { return ticket::none; }

private:
    const std::string bus_id_;
};

} // namespace gaudi::shim
