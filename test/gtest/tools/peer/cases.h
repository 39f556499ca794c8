/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the programs of this folder go through. Both sides of a transfer count
 * alike, so that each knows what the other does.
 */
#pragma once

#include "gtest/tools/peer/kinds.h"

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

namespace peer {

/** One transfer. */
struct transfer {
    std::string name;
    kind_of_memory from; /**< sender's, or the initiator's of RMA */
    kind_of_memory to;   /**< receiver's, or the target's of RMA */
    size_t size;
    unsigned seed;    /**< of the bytes that move */
    size_t skew_from; /**< how far behind the guard they start */
    size_t skew_to;
    bool registered_from; /**< whether UCP is told the memory's handle */
    bool registered_to;
};

/** Seed of what is there before. */
inline constexpr unsigned seed_before = 3;

/** Sizes: none, odd ones, and those around UCP's and our own thresholds. */
inline constexpr size_t all_sizes[] = {
    0, 1, 8, 1000, 4097, 8192, 65536, 65537, 300001, 1048577, 4194307};
inline constexpr size_t few_sizes[] = {0, 1, 4097, 65537, 1048576};

using remote_memories = std::map<kind_of_memory, remote_memory>;

/** Memory of each kind that a side has, each large enough for any transfer. */
class memories {
public:
    /** @param wish   Where device memory has to be, see memory.
     *  @param plain  Of heap memory, likewise. */
    memories(const context &of, std::span<const size_t> sizes,
             uint64_t wish = 0, bool plain = false);

    [[nodiscard]] memory &at(kind_of_memory kind) { return *all_.at(kind); }

    /** All of it, as another side reaches it. */
    [[nodiscard]] remote_memories open_from(side &by) const;

    [[nodiscard]] slot from(const transfer &what);
    [[nodiscard]] slot to(const transfer &what);

private:
    std::map<kind_of_memory, std::unique_ptr<memory>> all_;
};

/** What this process has of a connection: the end that sends, puts and gets,
 *  the other end, or both. */
struct own_ends {
    side *active      = nullptr;
    memories *sources = nullptr;

    side *passive     = nullptr;
    memories *targets = nullptr;

    /** Called when this process is ready for a transfer, and when its part of
     *  it is over: returns when the other process has come as far. */
    std::function<void(const transfer &what, bool is_over)> meet =
        [](const transfer &, bool) {};

    /** Progress of both until it is done. */
    void finish(operation going) const;
};

/**
 * Every transfer of the kinds, in order, with a look at all bytes of both ends.
 *
 * @param device_handles  Whether receives into device memory are given the
 *     memory's handle. With the default protocols, UCP 1.13 crashes on it when
 * a rendezvous has to be staged (over tcp, or from a list): the handle shares a
 *     union with the number of bytes that remain.
 */
void run_messages(const own_ends &here, std::span<const message_kind> kinds,
                  std::span<const size_t> sizes, bool device_handles);

/** The same of puts and gets.
 *  @param remote  The targets, as the active end reaches them.
 *  @param device  With device memory, not only between host memories. */
void run_rma(const own_ends &here, const remote_memories &remote,
             std::span<const size_t> sizes, bool device);

} // namespace peer
