/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a card reads and writes in memory for its ports: work queue entries,
 * doorbells, completion queue entries and consumer indices, of each generation.
 *
 * A row for each field that we use says where it is; all others stay 0. They
 * are those of HabanaAI/perftest, hbl_lib.c (sq_wqe_g2, rq_wqe_g2, sq_wqe_g3,
 * rq_wqe_g3, user_db_pkt, CQE_*, update_ci_g2, update_ci_g3). Each entry asks
 * for a completion of one side: the send entry for the peer's when the bytes
 * arrive, the receive entry for the sender's when they are acknowledged. So
 * hl-thunk's own tests count sync objects (gaudi2_nic_fill_wqe,
 * nic_basic_get_expected_sob_val), which the same field chooses; that CQs go
 * the same way, no public text says. perftest asks in both.
 */
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gaudi::shim {

/** Of cards with these ports. */
enum class generation : unsigned { gaudi2 = 2, gaudi3 = 3 };

/** Bits of one 32-bit word; a width of 0: the generation has no such field. */
struct bit_field {
    unsigned word  = 0;
    unsigned first = 0;
    unsigned width = 0;
};

/** The same field on both. */
struct field {
    bit_field gaudi2;
    bit_field gaudi3;

    [[nodiscard]] constexpr bit_field on(generation which) const
    {
        return (which == generation::gaudi2) ? gaudi2 : gaudi3;
    }
};

namespace send_wqe {
inline constexpr field opcode      = {{0, 0, 5}, {0, 0, 5}};
inline constexpr field index       = {{0, 8, 8}, {}};
inline constexpr field size        = {{1, 0, 32}, {1, 0, 32}};
inline constexpr field local_low   = {{2, 0, 32}, {2, 0, 32}};
inline constexpr field local_high  = {{3, 0, 32}, {3, 0, 32}};
inline constexpr field remote_low  = {{4, 0, 32}, {4, 0, 32}};
inline constexpr field remote_high = {{5, 0, 32}, {5, 0, 32}};
inline constexpr field completion  = {{7, 30, 2}, {7, 30, 2}};
} // namespace send_wqe

namespace receive_wqe {
inline constexpr field opcode     = {{0, 0, 5}, {0, 0, 5}};
inline constexpr field index      = {{0, 8, 8}, {0, 8, 8}};
inline constexpr field completion = {{1, 30, 2}, {1, 30, 2}};
inline constexpr field size       = {{2, 0, 32}, {2, 0, 32}};
} // namespace receive_wqe

/* The index is 22 bits wide in struct hltests_nic_user_db of hl-thunk's own
 * tests. What names the port is IB's number there, from 1 on, in perftest, and
 * the card's, from 0 on, in these tests: a FIFO is one port's anyway. */
namespace doorbell {
inline constexpr field index = {{0, 0, 22}, {0, 0, 22}};
inline constexpr field qp    = {{1, 0, 24}, {1, 0, 24}};
inline constexpr field port  = {{1, 24, 8}, {1, 24, 8}};
} // namespace doorbell

namespace cqe {
inline constexpr field qp       = {{0, 0, 24}, {0, 0, 24}};
inline constexpr field is_valid = {{0, 31, 1}, {0, 31, 1}};
inline constexpr field index    = {{1, 0, 32}, {1, 0, 32}};
} // namespace cqe

/** Stored where the card looks for how far a CQ was read. */
namespace cq_update {
inline constexpr field cq       = {{0, 0, 32}, {}};
inline constexpr field consumed = {{1, 0, 32}, {0, 0, 32}};
} // namespace cq_update

/** What is in a field beside numbers and addresses. */
inline constexpr uint32_t wqe_linear        = 2; /**< opcode: one range */
inline constexpr uint32_t wqe_completion_cq = 2; /**< completion: a CQE */

template <size_t words>
using entry = std::array<uint32_t, words>;

using send_entry    = entry<8>;
using receive_entry = entry<4>;
using cq_entry      = entry<4>;

/** Set a field to a value of which the bits that fit count; nothing where the
 *  generation has none. */
template <generation which, size_t words>
constexpr void set(entry<words> &in, const field &of, uint32_t value)
{
    const bit_field at = of.on(which);
    if (at.width == 0) {
        return;
    }
    const uint32_t mask = UINT32_MAX >> (32 - at.width);
    in[at.word] =
        (in[at.word] & ~(mask << at.first)) | ((value & mask) << at.first);
}

template <generation which, size_t words>
constexpr uint32_t get(const entry<words> &in, const field &of)
{
    const bit_field at = of.on(which);
    return (at.width == 0)
               ? 0
               : (in[at.word] >> at.first) & (UINT32_MAX >> (32 - at.width));
}

/** A write to the memory of the card at the other end. */
struct port_write {
    uint64_t remote; /**< address of that card */
    uint64_t local;  /**< address of this card */
    uint32_t size;   /**< bytes, not 0 */
    uint32_t index;  /**< of its place in the work queue */
    bool in_send;    /**< where a completion is asked for: in this entry */
    bool in_receive;
};

template <generation which>
constexpr send_entry make_send_entry(const port_write &of)
{
    send_entry made{};
    set<which>(made, send_wqe::opcode, wqe_linear);
    set<which>(made, send_wqe::index, of.index);
    set<which>(made, send_wqe::size, of.size);
    set<which>(made, send_wqe::local_low, static_cast<uint32_t>(of.local));
    set<which>(made, send_wqe::local_high,
               static_cast<uint32_t>(of.local >> 32));
    set<which>(made, send_wqe::remote_low, static_cast<uint32_t>(of.remote));
    set<which>(made, send_wqe::remote_high,
               static_cast<uint32_t>(of.remote >> 32));
    set<which>(made, send_wqe::completion, of.in_send ? wqe_completion_cq : 0);
    return made;
}

/** What goes with it, at the same index. */
template <generation which>
constexpr receive_entry make_receive_entry(const port_write &of)
{
    receive_entry made{};
    set<which>(made, receive_wqe::opcode, wqe_linear);
    set<which>(made, receive_wqe::index, of.index);
    set<which>(made, receive_wqe::completion,
               of.in_receive ? wqe_completion_cq : 0);
    set<which>(made, receive_wqe::size, of.size);
    return made;
}

constexpr uint64_t to_store(const entry<2> &words)
{
    return words[0] | (uint64_t{words[1]} << 32);
}

/** @param index  Of the work queue's place behind the last entry. */
constexpr uint64_t make_doorbell(unsigned port, uint32_t qp, uint32_t index)
{
    constexpr generation both = generation::gaudi2;
    entry<2> made{};
    set<both>(made, doorbell::index, index);
    set<both>(made, doorbell::qp, qp);
    set<both>(made, doorbell::port, port);
    return to_store(made);
}

template <generation which>
constexpr uint64_t make_cq_update(uint32_t cq, uint32_t consumed)
{
    entry<2> made{};
    set<which>(made, cq_update::cq, cq);
    set<which>(made, cq_update::consumed, consumed);
    return to_store(made);
}

/** Places of a work queue, of which one stays empty. Their low eight bits are
 *  those of the number that the card counts in, also where it counts on. */
inline constexpr uint32_t queue_places = 256;

/** How a generation counts. */
struct port_counting {
    /** Doorbells name places up to this mask. On Gaudi2 that of the work queue,
     *  with which they start again (wrap_size in perftest). */
    uint32_t index_mask;
    /** What a doorbell takes of its FIFO, in units of so many bytes. */
    uint32_t doorbell_units;
    uint32_t unit_bytes;
    /** Units that have to be free beside these, and one more: on Gaudi2 the
     *  consumer's index lags by one (hltests_nic_submit_user_fifo of hl-thunk's
     *  own tests). */
    uint32_t guard_units;
};

constexpr port_counting counting_of(generation which)
{
    return (which == generation::gaudi2)
               ? port_counting{queue_places - 1, 1, 8, 1}
               : port_counting{0x3fffff, 2, 4, 0};
}

} // namespace gaudi::shim
