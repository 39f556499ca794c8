/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A queue of messages in shared memory, with one writer and one reader in
 * different processes.
 *
 * A message is a record: a header of 8 bytes and the payload, from one 64-byte
 * line on, never across the end of the ring. The header of the record that
 * would come next is zero before a record is published by the store of its own
 * header. So the reader looks at one line to find a message, and a writer that
 * dies leaves either a whole message or none.
 *
 * Both ends check what they read from the other: whatever it is, they stay
 * within the ring.
 */
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace gaudi::ipc {

inline constexpr size_t ring_line = 64;

/** Smallest ring; see ring_max_payload. */
inline constexpr size_t ring_min_size = 65536;

/** Longest message, in bytes: with its header a quarter of the smallest ring,
 *  less a line. */
inline constexpr size_t ring_max_payload =
    ring_min_size / 4 - ring_line - sizeof(uint64_t);

/** What the reader does about a ring. */
enum ring_state : uint32_t {
    ring_polled = 0, /**< looks for messages; state of fresh memory */
    ring_asleep = 1, /**< is to be woken */
    ring_closed = 2, /**< reads nothing more */
};

/** In front of a ring's data. All zero in a fresh ring. */
struct ring_control {
    /* Of the reader, seldom written; a writer sets ring_asleep back. */
    alignas(ring_line) std::atomic<uint32_t> state;
    /* The reader's: bytes read, written once in a quarter of the ring, and when
     * it finds the ring empty. */
    alignas(ring_line) std::atomic<uint64_t> consumed;
};

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              (sizeof(ring_control) == 2 * ring_line));

/** What a record starts with, as one word: 0 is no record. */
struct record_header {
    uint32_t length; /**< of the payload in bytes */
    uint8_t id;      /**< of the active message */
    uint8_t mark;    /**< record_message or record_wrap */
    uint16_t unused; /**< 0 */
};

inline constexpr uint8_t record_message = 0xa5;
inline constexpr uint8_t record_wrap    = 0x5a; /* goes on at the start */

/** Bytes of a record in a ring. */
inline constexpr size_t record_span(size_t length)
{
    return (sizeof(record_header) + length + ring_line - 1) & ~(ring_line - 1);
}

static_assert(record_span(ring_max_payload) + ring_line <= ring_min_size / 4);

class ring_writer {
public:
    ring_writer() = default;

    /** @param control  Of a ring that nobody has written to yet, all zero.
     *  @param data     All zero.
     *  @param size     Of the data: a power of two, ring_min_size or more. */
    ring_writer(ring_control *control, void *data, size_t size)
        : control_(control), data_(static_cast<char *>(data)), size_(size),
          zeroed_(size)
    {}

    /** Make room for a message. @return Where the payload goes, 8-byte aligned;
     *  nullptr when the reader has to read first. */
    void *reserve(size_t length)
    {
        const size_t span = record_span(length);
        size_t to_end     = size_ - (head_ & (size_ - 1));
        if (span <= to_end) {
            to_end = 0;
        }
        if (!has_free(to_end + span + ring_line)) {
            return nullptr;
        }
        if (to_end != 0) {
            put({0, 0, record_wrap, 0}, head_ + to_end);
        }
        reserved_ = length;
        return at(head_) + sizeof(record_header);
    }

    /** Publish the message that room was made for; @a length may be less. */
    void publish(uint8_t id, size_t length)
    {
        const uint64_t next = head_ + record_span(length);
        if (length != reserved_) {
            zeroed_ = next; /* more may have been written than it is now */
        }
        put({static_cast<uint32_t>(length), id, record_message, 0}, next);
    }

    /** Give up the message that room was made for, and may be written. */
    void abandon() { zeroed_ = head_ + ring_line; }

    /** What the reader does: one that is not seen asleep here finds what was
     *  published before. */
    [[nodiscard]] ring_state state() const
    {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        return static_cast<ring_state>(
            control_->state.load(std::memory_order_relaxed));
    }

    /** What the next message needs and can be done now, when nobody waits. */
    void prepare()
    {
        const uint64_t next = head_ + ring_line;
        if ((zeroed_ == next) && (next + ring_line - tail_ <= size_)) {
            make_zero(next);
        }
    }

    /** Whether any message fits now. */
    bool has_room()
    {
        constexpr size_t span = record_span(ring_max_payload);
        return has_free(2 * span + ring_line);
    }

    /** Where the next message will be: bytes since the start of the ring. */
    [[nodiscard]] uint64_t position() const { return head_; }

    /** Whether the reader is done with all messages before a position. */
    bool is_read(uint64_t position)
    {
        return (tail_ >= position) || (update_free(0) && (tail_ >= position));
    }

    /** Whether the reader said nonsense: nothing fits any more. */
    [[nodiscard]] bool is_corrupted() const { return corrupted_; }

private:
    char *at(uint64_t position) { return data_ + (position & (size_ - 1)); }

    std::atomic_ref<uint64_t> header(uint64_t position)
    {
        return std::atomic_ref<uint64_t>(
            *reinterpret_cast<uint64_t *>(at(position)));
    }

    void make_zero(uint64_t position)
    {
        header(position).store(0, std::memory_order_relaxed);
        zeroed_ = position + ring_line;
    }

    /* Store a header, when the next one cannot be taken for a record. */
    void put(record_header what, uint64_t next)
    {
        if (next >= zeroed_) {
            make_zero(next);
        }
        header(head_).store(std::bit_cast<uint64_t>(what),
                            std::memory_order_release);
        head_ = next;
    }

    bool has_free(size_t length)
    {
        return (head_ + length - tail_ <= size_) || update_free(length);
    }

    bool update_free(size_t length)
    {
        const uint64_t consumed =
            control_->consumed.load(std::memory_order_acquire);
        if ((consumed < tail_) || (consumed > head_) ||
            ((consumed % ring_line) != 0)) {
            corrupted_ = true;
        }
        if (corrupted_) {
            return false;
        }
        tail_ = consumed;
        return head_ + length - tail_ <= size_;
    }

    ring_control *control_ = nullptr;
    char *data_            = nullptr;
    size_t size_           = 0;
    /* Positions count bytes since the start of the ring. */
    uint64_t head_   = 0; /* of the next record, whose header is zero */
    uint64_t tail_   = 0; /* what the reader has read, at least */
    uint64_t zeroed_ = 0; /* headers of lines from head_ to here are zero */
    size_t reserved_ = 0;
    bool corrupted_  = false;
};

class ring_reader {
public:
    enum class result { none, message, corrupted };

    struct message {
        void *data;
        size_t length;
        uint8_t id;
    };

    ring_reader() = default;

    /** @param control  Of a ring that nobody has read yet. */
    ring_reader(ring_control *control, void *data, size_t size)
        : control_(control), data_(static_cast<char *>(data)), size_(size)
    {}

    /** Look at the next message. It stays until @ref release. After
     *  `corrupted` the ring is not to be used any more. */
    result peek(message &message_p)
    {
        for (;;) {
            const size_t offset = position_ & (size_ - 1);
            auto *start         = reinterpret_cast<uint64_t *>(data_ + offset);
            const auto word     = std::atomic_ref<uint64_t>(*start).load(
                    std::memory_order_acquire);
            if (word == 0) {
                announce();
                return result::none;
            }
            const auto what = std::bit_cast<record_header>(word);
            if ((what.mark == record_message) &&
                (what.length <= ring_max_payload) &&
                (record_span(what.length) <= size_ - offset)) {
                span_     = record_span(what.length);
                message_p = {start + 1, what.length, what.id};
                return result::message;
            }
            /* Nobody wraps at the start, so this ends. */
            if ((what.mark != record_wrap) || (offset == 0)) {
                return result::corrupted;
            }
            advance(size_ - offset);
        }
    }

    void release() { advance(span_); }

    /** Have the writer wake the reader. @return false: there is a message, or
     *  nothing will be read any more. */
    [[nodiscard]] bool sleep()
    {
        uint32_t expected = ring_polled;
        (void)control_->state.compare_exchange_strong(expected, ring_asleep);
        message next;
        return peek(next) == result::none;
    }

    /** Nothing more will be read: publishes what was. */
    void close()
    {
        announce();
        control_->state.store(ring_closed);
    }

    [[nodiscard]] ring_control *control() const { return control_; }

private:
    void advance(size_t length)
    {
        position_ += length;
        if (position_ - announced_ >= size_ / 4) {
            announce();
        }
    }

    void announce()
    {
        if (announced_ != position_) {
            control_->consumed.store(position_, std::memory_order_release);
            announced_ = position_;
        }
    }

    ring_control *control_ = nullptr;
    char *data_            = nullptr;
    size_t size_           = 0;
    uint64_t position_     = 0; /* bytes read since the start of the ring */
    uint64_t announced_    = 0;
    size_t span_           = 0; /* of the message that was looked at */
};

} // namespace gaudi::ipc
