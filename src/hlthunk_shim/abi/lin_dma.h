/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Builders for the queue manager packets that a copy needs on Gaudi2.
 *
 * Layouts: hl-thunk-open `specs/gaudi2/gaudi2_packets.h`. Little endian, as are
 * the hosts that Gaudi plugs into.
 *
 * The queue manager reports a command buffer done when it has worked through
 * its packets (Linux `habanalabs/common/hw_queue.c`); what that waits for is
 * written nowhere, and was not tried on a card. So the buffers of each kind of
 * queue end as in the tests of hl-thunk-open that look at the bytes afterwards:
 *
 *   PDMA_0, host to device   LIN_DMA with the message barrier, nothing behind
 *   PDMA_1, device to host   it: `tests/common/hlthunk_tests.c`
 *                            (hltests_dma_transfer), `dma_dram.c`. A packet
 *                            with both barriers follows only where it signals
 *                            another engine (`dma.c`, set_down_pdma in
 *                            `tests/gaudi2/gaudi2_dma.c`); ours signal none
 *   EDMA, within the card    the lower buffer ends in a packet with engine and
 *                            message barrier, always: set_edma_jobs in
 *                            `tests/gaudi2/gaudi2_dma.c`, `dma.c`, `dma_perf.c`
 *
 * That last packet adds to a sync object there. Ours is a NOP, which has the
 * same barrier bits, since sync objects belong to the application.
 */
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace gaudi::shim {

inline constexpr uint32_t packet_opcode_shift = 24;
inline constexpr uint32_t packet_opcode_mask  = 0x1f;

enum packet_opcode : uint32_t {
    packet_cp_dma  = 0x5,
    packet_lin_dma = 0x9,
    packet_nop     = 0xa
};

/* Bits of lin_dma::ctl */
inline constexpr uint32_t lin_dma_write_completion = 1u << 0;
inline constexpr uint32_t lin_dma_endian           = 3u << 1;
inline constexpr uint32_t lin_dma_memset           = 1u << 4;
inline constexpr uint32_t lin_dma_switch           = 1u << 30;
inline constexpr uint32_t packet_opcode_field      = packet_opcode_mask
                                                << packet_opcode_shift;

/* Bits of ctl of every packet: it waits until the engine has done all before
 * it, and until the messages before it have arrived. */
inline constexpr uint32_t packet_eng_barrier = 1u << 29;
inline constexpr uint32_t packet_msg_barrier = 1u << 31;
inline constexpr uint32_t packet_barriers =
    packet_eng_barrier | packet_msg_barrier;

/** Copy `tsize` bytes between device virtual addresses. */
struct lin_dma {
    uint32_t tsize; /**< bytes */
    uint32_t ctl;
    uint64_t src;
    uint64_t dst;
};
static_assert(sizeof(lin_dma) == 24);

/** Run `tsize` bytes of packets at `src` on the engine behind this queue. */
struct cp_dma {
    uint32_t tsize; /**< bytes */
    uint32_t ctl;
    uint64_t src;
};
static_assert(sizeof(cp_dma) == 16);

/** Do nothing, behind what the barriers wait for. */
struct nop {
    uint32_t reserved;
    uint32_t ctl;
};
static_assert(sizeof(nop) == 8);

/* Longest copy of one packet: what the 32-bit field holds, cut to a 4 KiB
 * boundary so that the following packet stays aligned. */
inline constexpr uint64_t lin_dma_max_bytes = (uint64_t{1} << 32) - 4096;

/** Build one copy packet. */
constexpr lin_dma make_lin_dma(uint64_t dst, uint64_t src, uint32_t bytes)
{
    return {bytes, (packet_lin_dma << packet_opcode_shift) | packet_msg_barrier,
            src, dst};
}

/** Build the packet that hands a lower command buffer to an internal engine. */
constexpr cp_dma make_cp_dma(uint64_t lower_cb, uint32_t bytes)
{
    return {bytes, packet_cp_dma << packet_opcode_shift, lower_cb};
}

/** Build the packet that ends the lower command buffer of an internal engine.
 */
constexpr nop make_barrier()
{
    return {0, (packet_nop << packet_opcode_shift) | packet_barriers};
}

/** Write the packets of a copy, as many as it needs. @return Their number. */
inline size_t build_lin_dma(lin_dma *packets, uint64_t dst, uint64_t src,
                            uint64_t length)
{
    size_t count = 0;
    for (uint64_t done = 0; done < length; ++count) {
        const uint64_t bytes = std::min(length - done, lin_dma_max_bytes);
        packets[count] =
            make_lin_dma(dst + done, src + done, static_cast<uint32_t>(bytes));
        done += bytes;
    }
    return count;
}

} // namespace gaudi::shim
