/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the engines of a card read: the packets of command buffers, up to where
 * bytes are to be copied.
 *
 * Not thread-safe: its card's lock protects it.
 */
#pragma once

#include "hlthunk_emulator/hlthunk_emu.h"
#include "hlthunk_emulator/mmu.h"

#include <cstdint>

namespace gaudi::emu {

struct packet_stream {
    uint64_t va   = 0;
    uint32_t size = 0;
    uint32_t next = 0; /**< offset of the next packet */
};

/** A command buffer, and how far its engine has read it. */
struct command_buffer_state {
    packet_stream upper;
    packet_stream lower{}; /**< what CP_DMA of an internal engine points at */
    bool unfenced = false; /**< no barrier behind the last copy */
    bool queued   = false; /**< its submission is over */

    [[nodiscard]] bool in_lower() const { return lower.next < lower.size; }
    packet_stream &stream() { return in_lower() ? lower : upper; }
    [[nodiscard]] bool is_read() const
    {
        return (upper.next >= upper.size) && !in_lower();
    }
};

/** What a LIN_DMA packet wants. */
struct copy_request {
    uint64_t dst; /**< device addresses */
    uint64_t src;
    uint64_t size;
};

class packet_reader {
public:
    packet_reader(const mmu &table, hlthunk_emu_counters &counters)
        : table_(table), counters_(counters)
    {}

    enum class found { copy, end, bad_packet };

    /** Read up to the next copy, or to the end. */
    found read_on(command_buffer_state &of, uint32_t queue,
                  copy_request &copy_p);

    /** What was wrong with the last bad packet. */
    [[nodiscard]] const char *complaint() const { return complaint_; }

private:
    template <typename Packet>
    bool fetch(command_buffer_state &of, const translation &rest,
               Packet &packet);
    bool take_lin_dma(command_buffer_state &of, uint32_t queue,
                      const translation &rest, copy_request &copy_p);
    bool take_cp_dma(command_buffer_state &of, uint32_t queue,
                     const translation &rest);
    [[gnu::format(printf, 2, 3)]] bool refuse(const char *format, ...);

    const mmu &table_;
    hlthunk_emu_counters &counters_;
    char complaint_[256] = "";
};

} // namespace gaudi::emu
