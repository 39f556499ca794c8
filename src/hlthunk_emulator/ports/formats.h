/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What programs write for the ports to read: work queue elements and doorbells,
 * and what they read of them: completions.
 *
 * Sources: sq_wqe_g2 to rq_wqe_g3, user_db_pkt and CQE_* of HabanaAI/perftest's
 * hbl_lib.c; those of Gaudi2 are confirmed by gaudi2_cn.c of
 * HabanaAI/drivers.gpu.linux-nic.kernel.
 */
#pragma once

#include <cstdint>
#include <cstring>

namespace gaudi::emu {

inline constexpr unsigned send_wqe_bytes    = 32;
inline constexpr unsigned receive_wqe_bytes = 16;
inline constexpr unsigned cqe_bytes         = 16;

/** Bytes of a message, at most (HBL_IB_MAX_MSG_SIZE of hbl_verbs.c). */
inline constexpr uint32_t longest_message = 1u << 30;

/** Where in its page a CQ's consumer index is; programs ask for it. */
inline constexpr uint32_t cq_register = 0x180;

/* Of HWComletionType. */
inline constexpr uint32_t completes_by_sync_object = 1;
inline constexpr uint32_t completes_by_cq          = 2;

/* Of wqe_opcode. */
inline constexpr uint32_t opcode_linear = 2;

/** So many low bits of PI are in a doorbell; Gaudi3's PI goes through them all,
 *  Gaudi2's ends with the queue. */
inline constexpr uint32_t doorbell_pi_mask = (1u << 22) - 1;

/** A send WQE, as far as the engine needs it. */
struct send_wqe {
    uint32_t opcode;
    uint32_t index; /**< of Gaudi2 only */
    uint32_t reduction;
    bool is_inline;
    uint32_t size;
    uint64_t local;
    uint64_t remote;
    uint32_t tag;
    uint32_t completion; /**< at the other side */

    static send_wqe read(const char *at, bool is_gaudi3)
    {
        uint32_t word[send_wqe_bytes / sizeof(uint32_t)];
        std::memcpy(word, at, sizeof(word));
        return {word[0] & 0x1f,
                is_gaudi3 ? 0 : (word[0] >> 8) & 0xff,
                is_gaudi3 ? (word[0] >> 16) & 0xfff : (word[0] >> 16) & 0x1fff,
                ((word[0] >> 30) & 1) != 0,
                word[1],
                (uint64_t{word[3]} << 32) | word[2],
                (uint64_t{word[5]} << 32) | word[4],
                word[6],
                word[7] >> 30};
    }
};

/** A receive WQE: its sender's own completion. */
struct receive_wqe {
    uint32_t opcode;
    uint32_t index;
    uint32_t completion;
    uint32_t size;
    uint32_t tag;

    static receive_wqe read(const char *at)
    {
        uint32_t word[receive_wqe_bytes / sizeof(uint32_t)];
        std::memcpy(word, at, sizeof(word));
        return {word[0] & 0x1f, (word[0] >> 8) & 0xff, word[1] >> 30, word[2],
                word[3]};
    }
};

struct doorbell {
    uint32_t pi;
    uint32_t qpn;

    static doorbell read(uint64_t value)
    {
        return {static_cast<uint32_t>(value) & doorbell_pi_mask,
                static_cast<uint32_t>(value >> 32) & 0xffffff};
    }
};

/** Numbers that the driver gives for errors of queue pairs (qp_syndroms of the
 *  vendor's gaudi2_nic.c, qp_syndroms of HCL's hcl_ibv_eq.cpp). */
enum class syndrome : uint32_t {
    key             = 0x10, /**< QPC Responder RKEY invalid */
    receive_index   = 0x11, /**< WQE index mismatch */
    retries         = 0x40, /**< max-retry-cnt exceeded */
    doorbell_beyond = 0x43, /**< PI > last-index */
    size_zero       = 0x84, /**< WQE.opcode is write but WQE.size is 0 */
    size_too_large  = 0x88, /**< size > configured max-write-send-size */
    send_index      = 0x91, /**< WQE.wqe_index != execution-index */
    opcode          = 0xab, /**< WQE bad opcode */
};

} // namespace gaudi::emu
