/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/packet_reader.h"

#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/copy_engine.h"
#include "hlthunk_shim/abi/lin_dma.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace gaudi::emu {

bool packet_reader::refuse(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    std::vsnprintf(complaint_, sizeof(complaint_), format, arguments);
    va_end(arguments);
    return false;
}

/* Read a packet where the stream stands; `rest` is its mapped part from there.
 */
template <typename Packet>
bool packet_reader::fetch(command_buffer_state &of, const translation &rest,
                          Packet &packet)
{
    const packet_stream &stream = of.stream();
    if (stream.size - stream.next < sizeof(packet)) {
        return refuse("a packet of %zu bytes overruns the buffer",
                      sizeof(packet));
    }
    if (rest.size < sizeof(packet)) {
        return refuse("the command buffer is not mapped");
    }
    if (!of.queued) { /* the program has it */
        std::memcpy(&packet, rest.address, sizeof(packet));
        return true;
    }
    return read_if_there(&packet, rest.address, sizeof(packet)) ||
           refuse("the program has unmapped the command buffer");
}

bool packet_reader::take_lin_dma(command_buffer_state &of, uint32_t queue,
                                 const translation &rest, copy_request &copy_p)
{
    packet_stream &stream    = of.stream();
    const engine_kind engine = engine_of(queue);
    shim::lin_dma packet;

    if (!fetch(of, rest, packet)) {
        return false;
    }
    if (engine == engine_kind::none) {
        return refuse("queue %u has no DMA engine", queue);
    }
    if ((engine == engine_kind::edma) && !of.in_lower()) {
        return refuse("LIN_DMA in the upper command buffer of an internal "
                      "engine");
    }
    /* What of the packet is taken: both barriers, and two bits that show
     * nowhere here, a message on completion to where registers say, and which
     * queue is next. Not swapped bytes and memset. */
    constexpr uint32_t known =
        shim::packet_opcode_field | shim::packet_barriers |
        shim::lin_dma_write_completion | shim::lin_dma_switch;
    if ((packet.ctl & ~known) != 0) {
        return refuse("LIN_DMA control bits %#x are not emulated",
                      packet.ctl & ~known);
    }
    if (packet.tsize == 0) {
        return refuse("LIN_DMA of 0 bytes");
    }
    copy_p      = {packet.dst, packet.src, packet.tsize};
    of.unfenced = true;
    stream.next += sizeof(packet);
    return true;
}

/* Take where an internal engine finds its packets. */
bool packet_reader::take_cp_dma(command_buffer_state &of, uint32_t queue,
                                const translation &rest)
{
    shim::cp_dma packet;

    if (!fetch(of, rest, packet)) {
        return false;
    }
    if ((engine_of(queue) != engine_kind::edma) || of.in_lower()) {
        return refuse("CP_DMA outside the upper command buffer of an internal "
                      "engine");
    }
    of.upper.next += sizeof(packet);
    of.lower = {packet.src, packet.tsize, 0};
    return true;
}

packet_reader::found packet_reader::read_on(command_buffer_state &of,
                                            uint32_t queue,
                                            copy_request &copy_p)
{
    while (!of.is_read()) {
        packet_stream &stream = of.stream();
        translation rest;
        uint32_t header[2];

        if (!table_.translate(mmu::port::packets, stream.va + stream.next,
                              stream.size - stream.next, rest)) {
            refuse("the command buffer is not mapped");
            return found::bad_packet;
        }
        if (!fetch(of, rest, header)) {
            return found::bad_packet;
        }
        const uint32_t opcode =
            (header[1] >> shim::packet_opcode_shift) & shim::packet_opcode_mask;
        bool taken = true;
        switch (opcode) {
        case shim::packet_nop:
            /* Its barriers wait for what is done already: the packets of a
             * queue run one after the other. */
            if ((header[1] & shim::packet_barriers) == shim::packet_barriers) {
                of.unfenced = false;
            }
            stream.next += sizeof(header);
            break;
        case shim::packet_lin_dma:
            taken = take_lin_dma(of, queue, rest, copy_p);
            break;
        case shim::packet_cp_dma:
            taken = take_cp_dma(of, queue, rest);
            break;
        default:
            taken = refuse("packet opcode %#x is not emulated", opcode);
            break;
        }
        if (!taken) {
            return found::bad_packet;
        }
        ++counters_.packets;
        if (opcode == shim::packet_lin_dma) {
            return found::copy;
        }
    }
    return found::end;
}

} // namespace gaudi::emu
