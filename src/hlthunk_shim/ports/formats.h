/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a card reads and writes in memory for its ports: work queue entries,
 * doorbells, completion queue entries and consumer indices, of each generation.
 *
 * A row for each field says where it is; encoders and decoders go by these
 * rows. They are those of HabanaAI/perftest, hbl_lib.c (sq_wqe_g2, rq_wqe_g2,
 * sq_wqe_g3, rq_wqe_g3, user_db_pkt, CQE_*, update_ci_g2, update_ci_g3). Of the
 * send entry's two halves the sync object is the remote card's, and so is the
 * completion beside it; the receive entry's are local: a write that is to be
 * heard of by its sender alone asks for a completion in the receive entry.
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
    const char *name;
    bit_field gaudi2;
    bit_field gaudi3;

    [[nodiscard]] constexpr bit_field on(generation which) const
    {
        return (which == generation::gaudi2) ? gaudi2 : gaudi3;
    }
};

namespace send_wqe {
inline constexpr field opcode         = {"opcode", {0, 0, 5}, {0, 0, 5}};
inline constexpr field trace_data     = {"trace_data", {0, 5, 1}, {}};
inline constexpr field trace          = {"trace", {0, 6, 1}, {}};
inline constexpr field reserved       = {"reserved", {0, 7, 1}, {}};
inline constexpr field index          = {"index", {0, 8, 8}, {}};
inline constexpr field local_class    = {"local_class", {}, {0, 5, 2}};
inline constexpr field sob_control    = {"sob_control", {}, {0, 7, 1}};
inline constexpr field local_mcid     = {"local_mcid", {}, {0, 8, 7}};
inline constexpr field local_allocate = {"local_allocate", {}, {0, 15, 1}};
inline constexpr field reduction      = {"reduction", {0, 16, 13}, {0, 16, 12}};
inline constexpr field rc             = {"rc", {}, {0, 28, 1}};
inline constexpr field solicited      = {"solicited", {0, 29, 1}, {0, 29, 1}};
inline constexpr field in_line        = {"in_line", {0, 30, 1}, {0, 30, 1}};
inline constexpr field ack_request    = {"ack_request", {0, 31, 1}, {0, 31, 1}};
inline constexpr field size           = {"size", {1, 0, 32}, {1, 0, 32}};
inline constexpr field local_low      = {"local_low", {2, 0, 32}, {2, 0, 32}};
inline constexpr field local_high     = {"local_high", {3, 0, 32}, {3, 0, 32}};
inline constexpr field remote_low     = {"remote_low", {4, 0, 32}, {4, 0, 32}};
inline constexpr field remote_high    = {"remote_high", {5, 0, 32}, {5, 0, 32}};
inline constexpr field tag            = {"tag", {6, 0, 32}, {6, 0, 32}};
inline constexpr field remote_sob     = {"remote_sob", {7, 0, 27}, {7, 0, 13}};
inline constexpr field remote_sub_sm  = {"remote_sub_sm", {}, {7, 13, 1}};
inline constexpr field remote_sm      = {"remote_sm", {}, {7, 14, 3}};
inline constexpr field remote_mcid    = {"remote_mcid", {}, {7, 17, 7}};
inline constexpr field remote_allocate = {"remote_allocate", {}, {7, 24, 1}};
inline constexpr field remote_class    = {"remote_class", {}, {7, 25, 2}};
inline constexpr field sob_data        = {"sob_data", {7, 27, 2}, {}};
inline constexpr field long_sob        = {"long_sob", {}, {7, 27, 1}};
inline constexpr field sob_command = {"sob_command", {7, 29, 1}, {7, 28, 2}};
inline constexpr field completion  = {"completion", {7, 30, 2}, {7, 30, 2}};

inline constexpr std::array all = {
    opcode,       trace_data,    trace,      reserved,       index,
    local_class,  sob_control,   local_mcid, local_allocate, reduction,
    rc,           solicited,     in_line,    ack_request,    size,
    local_low,    local_high,    remote_low, remote_high,    tag,
    remote_sob,   remote_sub_sm, remote_sm,  remote_mcid,    remote_allocate,
    remote_class, sob_data,      long_sob,   sob_command,    completion};
} // namespace send_wqe

namespace receive_wqe {
inline constexpr field opcode        = {"opcode", {0, 0, 5}, {0, 0, 5}};
inline constexpr field reserved      = {"reserved", {0, 5, 3}, {0, 5, 3}};
inline constexpr field index         = {"index", {0, 8, 8}, {0, 8, 8}};
inline constexpr field reserved_high = {
    "reserved_high", {0, 16, 15}, {0, 16, 16}};
inline constexpr field sob_command  = {"sob_command", {0, 31, 1}, {1, 28, 2}};
inline constexpr field local_sob    = {"local_sob", {1, 0, 27}, {1, 0, 13}};
inline constexpr field sob_data     = {"sob_data", {1, 27, 3}, {}};
inline constexpr field local_sub_sm = {"local_sub_sm", {}, {1, 13, 1}};
inline constexpr field local_sm     = {"local_sm", {}, {1, 14, 3}};
inline constexpr field reserved_sob = {"reserved_sob", {}, {1, 17, 8}};
inline constexpr field sob_fifo     = {"sob_fifo", {}, {1, 25, 2}};
inline constexpr field long_sob     = {"long_sob", {}, {1, 27, 1}};
inline constexpr field completion   = {"completion", {1, 30, 2}, {1, 30, 2}};
inline constexpr field size         = {"size", {2, 0, 32}, {2, 0, 32}};
inline constexpr field tag          = {"tag", {3, 0, 32}, {3, 0, 32}};

inline constexpr std::array all = {
    opcode,    reserved, index,        reserved_high, sob_command,
    local_sob, sob_data, local_sub_sm, local_sm,      reserved_sob,
    sob_fifo,  long_sob, completion,   size,          tag};
} // namespace receive_wqe

/* The index is 22 bits wide in struct hltests_nic_user_db of hl-thunk's own
 * tests. What names the port is IB's number there, from 1 on, in perftest, and
 * the card's, from 0 on, in these tests: a FIFO is one port's anyway. */
namespace doorbell {
inline constexpr field index    = {"index", {0, 0, 22}, {0, 0, 22}};
inline constexpr field reserved = {"reserved", {0, 22, 10}, {0, 22, 10}};
inline constexpr field qp       = {"qp", {1, 0, 24}, {1, 0, 24}};
inline constexpr field port     = {"port", {1, 24, 8}, {1, 24, 8}};

inline constexpr std::array all = {index, reserved, qp, port};
} // namespace doorbell

namespace cqe {
inline constexpr field qp           = {"qp", {0, 0, 24}, {0, 0, 24}};
inline constexpr field is_requester = {"is_requester", {0, 24, 1}, {0, 24, 1}};
inline constexpr field reserved     = {"reserved", {0, 25, 6}, {0, 25, 6}};
inline constexpr field is_valid     = {"is_valid", {0, 31, 1}, {0, 31, 1}};
inline constexpr field index        = {"index", {1, 0, 32}, {1, 0, 32}};
inline constexpr field tag          = {"tag", {2, 0, 32}, {2, 0, 32}};
inline constexpr field size         = {"size", {3, 0, 32}, {3, 0, 32}};

inline constexpr std::array all = {qp,    is_requester, reserved, is_valid,
                                   index, tag,          size};
} // namespace cqe

/** Stored where the card looks for how far a CQ was read. */
namespace cq_update {
inline constexpr field cq       = {"cq", {0, 0, 32}, {}};
inline constexpr field consumed = {"consumed", {1, 0, 32}, {0, 0, 32}};
inline constexpr field reserved = {"reserved", {}, {1, 0, 32}};

inline constexpr std::array all = {cq, consumed, reserved};
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
    return made;
}

/** What goes with it, at the same index. */
template <generation which>
constexpr receive_entry make_receive_entry(const port_write &of)
{
    receive_entry made{};
    set<which>(made, receive_wqe::opcode, wqe_linear);
    set<which>(made, receive_wqe::index, of.index);
    set<which>(made, receive_wqe::completion, wqe_completion_cq);
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
