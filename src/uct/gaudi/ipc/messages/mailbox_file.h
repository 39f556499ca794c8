/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a mailbox and its senders share: a header, then rings, each a control
 * page and its data. The file is sparse and has room for more rings than a
 * machine has processes: those that nobody uses take nothing.
 *
 * A sender owns a ring whose owner word it has changed from zero to its name.
 * When it leaves, it adds owner_left; from then on either another sender takes
 * the ring over as it is, or the receiver, once it has read everything, makes
 * it as fresh memory and the word zero.
 */
#pragma once

#include "uct/gaudi/ipc/messages/ring.h"
#include "uct/gaudi/ipc/process/process_id.h"
#include "util/addresses.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <unistd.h>

namespace gaudi::ipc {

struct mailbox_header {
    static constexpr uint64_t right_magic = 0x786f626c69616d67; /* "gmailbox" */
    static constexpr size_t word_bits     = 64;
    static constexpr size_t most_words    = word_bits * word_bits;
    static constexpr size_t most_rings    = word_bits * most_words;

    /* Written once. */
    uint64_t magic;
    uint64_t nonce;      /* of the receiver's process */
    uint64_t ring_size;  /* bytes of data */
    uint32_t ring_count; /* for how many there is room */
    uint32_t version;

    /* The receiver's; but who wakes it says so. */
    alignas(ring_line) std::atomic<uint64_t> asleep; /* 0, or which sleep */
    std::atomic<uint32_t> closed;

    /* The senders'. A bit stands for a word of the next level that is not
     * zero, in the last level for a ring. */
    alignas(ring_line) std::atomic<uint64_t> marked_groups;
    std::atomic<uint32_t> used; /* rings that ever had an owner come first */
    alignas(ring_line) std::atomic<uint64_t> marked_words[word_bits];
    alignas(ring_line) std::atomic<uint64_t> marked[most_words];
    alignas(ring_line) std::atomic<uint64_t> owners[most_rings];

    /** Have the receiver look at a ring. */
    void mark(size_t ring)
    {
        const size_t word  = ring / word_bits;
        const size_t group = word / word_bits;
        marked[word].fetch_or(uint64_t{1} << (ring % word_bits));
        marked_words[group].fetch_or(uint64_t{1} << (word % word_bits));
        marked_groups.fetch_or(uint64_t{1} << group);
    }
};

/** Owner of a ring that nobody can use until the receiver has cleared it. */
inline constexpr uint64_t nobody = UINT64_MAX;

/** Added to an owner word: the owner has left the ring to others. No name of a
 *  process has this bit. */
inline constexpr uint64_t owner_left = uint64_t{1} << 31;

inline bool has_left(uint64_t owner)
{
    return (owner != nobody) && ((owner & owner_left) != 0);
}

/** 0: of another PID namespace. */
inline uint32_t owner_pid(uint64_t owner)
{
    return ((owner & in_folder) != 0)
               ? 0
               : static_cast<uint32_t>(owner & ~owner_left);
}

/** Where things are in the file. */
struct mailbox_layout {
    size_t ring_size; /* of the data of each, bytes */
    unsigned ring_count;
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));

    [[nodiscard]] size_t header_length() const
    {
        return util::round_up(sizeof(mailbox_header), page);
    }
    [[nodiscard]] size_t data_offset() const { return page; }
    [[nodiscard]] size_t ring_length() const { return page + ring_size; }
    [[nodiscard]] size_t ring_offset(unsigned ring) const
    {
        return header_length() + ring * ring_length();
    }
    [[nodiscard]] size_t length() const { return ring_offset(ring_count); }
};

} // namespace gaudi::ipc
