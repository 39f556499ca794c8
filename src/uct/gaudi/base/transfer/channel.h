/**
 * One user's way to one card: its DMA queues and its staging memory.
 *
 * Staging memory is a fixed set of pinned chunks, made once; host memory that
 * is not registered passes through them. Used by one thread at a time.
 */
#pragma once

#include "hlthunk_shim/dma_queue.h"
#include "hlthunk_shim/hlthunk/memory.h"
#include "uct/gaudi/base/cards/card.h"

#include <memory>
#include <span>
#include <vector>

namespace gaudi::util {
class process_memory;
}

namespace gaudi::base {

class channel;
struct transfer;

/**
 * What is on the way in one direction, and waits to be: of long copies, or of
 * short ones, which do not wait for those if the card has a stream more.
 */
struct dma_lane {
    channel *home          = nullptr;
    shim::dma_queue *queue = nullptr; /* perhaps another lane's, too */
    uint64_t in_flight     = 0;       /* bytes */
    uint64_t window        = 0;       /* bytes from which on nothing is added */
    ucs_list_link_t waiting;          /* of whoever submits, next one first */
};

/** One DMA job of a transfer. */
struct segment {
    transfer *owner;
    channel *home;  /* whose record and chunk this is */
    dma_lane *lane; /* where it was submitted */
    int chunk;      /* staging chunk, or -1 */
    size_t length;  /* bytes */
    char *host;     /* where a chunk's bytes go when the job has ended, */
    const util::process_memory *process; /* or in which process, */
    dma_lane *onward;                    /* or the card to which they go, */
    uint64_t target;                     /* and the address there */
    segment *next; /* in a list of those that have to go on */
};

class channel {
public:
    /**
     * @param chunk_bytes,chunks  The staging memory.
     * @param window              Bytes of long copies in flight per direction.
     */
    [[nodiscard]] static ucs_status_t
    create(card &owner, size_t chunk_bytes, unsigned chunks, uint64_t window,
           std::unique_ptr<channel> &channel_p);

    /** Waits for jobs that the card still runs. */
    ~channel();

    [[nodiscard]] card &owner() const { return owner_; }

    enum class copies { of_long, of_short };

    [[nodiscard]] dma_lane &lane(shim::dma_direction direction, copies which)
    {
        return lanes_[static_cast<size_t>(direction) * 2 +
                      static_cast<size_t>(which)];
    }

    static constexpr size_t directions = 3;
    static constexpr size_t lane_count = directions * 2;

    [[nodiscard]] std::span<dma_lane, lane_count> lanes() { return lanes_; }

    /** Each lane in turn. */
    [[nodiscard]] dma_lane &next_lane()
    {
        turn_ = (turn_ + 1) % lane_count;
        return lanes_[turn_];
    }

    /** The queues of all lanes, each once. */
    [[nodiscard]] std::span<const std::unique_ptr<shim::dma_queue>>
    queues() const
    {
        return queues_;
    }

    /** Take a chunk, leaving some for others. @return -1 when none is left. */
    int take_chunk(size_t leave)
    {
        if (free_chunks_.size() <= leave) {
            return -1;
        }
        const int chunk = free_chunks_.back();
        free_chunks_.pop_back();
        return chunk;
    }
    void give_chunk(int chunk) { free_chunks_.push_back(chunk); }
    [[nodiscard]] size_t free_chunks() const { return free_chunks_.size(); }
    [[nodiscard]] size_t chunk_bytes() const { return chunk_bytes_; }
    [[nodiscard]] char *chunk_data(int chunk) const
    {
        return staging_.data() + static_cast<size_t>(chunk) * chunk_bytes_;
    }
    [[nodiscard]] uint64_t chunk_va(int chunk) const
    {
        return staging_.va() + static_cast<size_t>(chunk) * chunk_bytes_;
    }

    /**
     * Let another card reach the staging memory, too.
     *
     * @return 0 or -errno.
     */
    [[nodiscard]] int share_staging(const card &user);

    /** Address of a chunk on a card that it was shared with. */
    [[nodiscard]] uint64_t chunk_va_on(const card &user, int chunk) const
    {
        return shared_[user.slot()].va() +
               static_cast<size_t>(chunk) * chunk_bytes_;
    }

    /** Leave the staging memory pinned: a card may still use it. */
    void abandon_staging();

    /** Take a record for a job. @return nullptr when all are in use. */
    segment *take_segment()
    {
        if (free_segments_.empty()) {
            return nullptr;
        }
        segment *taken = free_segments_.back();
        free_segments_.pop_back();
        return taken;
    }
    void give_segment(segment *used) { free_segments_.push_back(used); }

private:
    explicit channel(card &owner) : owner_(owner) {}
    [[nodiscard]] int make_lanes(uint64_t window);

    card &owner_;
    size_t chunk_bytes_ = 0;
    shim::pinned_buffer staging_;
    std::vector<shim::mapping> shared_; /* of it, by slot of the card */
    std::vector<int> free_chunks_;
    std::vector<segment> segments_;
    std::vector<segment *> free_segments_;
    std::vector<std::unique_ptr<shim::dma_queue>> queues_;
    dma_lane lanes_[lane_count];
    size_t turn_ = 0;
};

} // namespace gaudi::base
