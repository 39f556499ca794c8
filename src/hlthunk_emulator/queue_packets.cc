/* What the queues of a card read: packets, up to where bytes can be copied. */
#include "hlthunk_emulator/faults.h"
#include "hlthunk_emulator/queue_manager.h"
#include "hlthunk_emulator/settings.h"
#include "hlthunk_shim/hlthunk/lin_dma.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace gaudi::emu {

namespace {

/* A copy from this size on is large, */
constexpr uint64_t large_bytes = 4 << 20;
/* and so are those that go on where others of so many bytes have ended. */
constexpr uint64_t large_run_bytes = 2 << 20;

} // namespace

void queue_manager::fault(const part &current, const char *format, ...)
{
    if (get_settings().log || (trace_ != nullptr)) {
        char text[256];
        va_list arguments;

        va_start(arguments, format);
        std::vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        const bool lower            = current.lower.size > 0;
        const packet_stream &stream = lower ? current.lower : current.upper;
        log("%s: job %lu aborted: queue %u, %scommand buffer %#lx of %u bytes, "
            "before offset %u: %s",
            name_, current.seq, current.queue, lower ? "lower " : "", stream.va,
            stream.size, stream.next, text);
        trace_fault(current, text);
    }
    abort(slot_of(current.seq));
    fault_effect met =
        faults::instance().meet(faulty_call::packet, timing_.card);
    if (met.kind == fault_kind::none) {
        met.kind = fault_kind::reset;
    }
    if (met.kind != fault_kind::abort) {
        break_down(met);
    } else if (waiters_ > 0) {
        changed_.notify_all(); /* it may be held, see end_holds() */
    }
}

/* Read a packet where the stream stands; `rest` is its mapped part from there.
 */
bool queue_manager::fetch(part &current, const packet_stream &stream,
                          const translation &rest, void *packet, uint32_t size)
{
    if (stream.size - stream.next < size) {
        fault(current, "a packet of %u bytes overruns the buffer", size);
        return false;
    }
    if (rest.size < size) {
        fault(current, "the command buffer is not mapped");
        return false;
    }
    std::memcpy(packet, rest.address, size);
    return true;
}

void queue_manager::begin_copy(part &current, uint64_t dst, uint64_t src,
                               uint64_t size)
{
    current.src       = src;
    current.dst       = dst;
    current.unclaimed = size;
    current.unfenced  = true;
    current.modelled  = false;
    current.traced    = false;
    copy_run &run     = runs_[current.queue];
    if ((run.src != src) || (run.dst != dst)) {
        run.bytes = 0;
    }
    current.large = (size >= large_bytes) || (run.bytes >= large_run_bytes);
    run           = {src + size, dst + size, run.bytes + size};
}

/* Take a copy that the engine is to make. */
bool queue_manager::take_lin_dma(part &current, packet_stream &stream,
                                 const translation &rest)
{
    const engine_kind engine = engine_of(current.queue);
    shim::lin_dma packet;

    if (!fetch(current, stream, rest, &packet, sizeof(packet))) {
        return false;
    }
    if (engine == engine_kind::none) {
        fault(current, "queue %u has no DMA engine", current.queue);
        return false;
    }
    if ((engine == engine_kind::edma) && (&stream == &current.upper)) {
        fault(current, "LIN_DMA in the upper command buffer of an internal "
                       "engine");
        return false;
    }
    /* What of the packet is taken: both barriers, and two bits that show
     * nowhere here, a message on completion to where registers say, and which
     * queue is next. Not swapped bytes and memset. */
    const uint32_t known = shim::packet_opcode_field | shim::packet_barriers |
                           shim::lin_dma_write_completion |
                           shim::lin_dma_switch;
    if ((packet.ctl & ~known) != 0) {
        fault(current, "LIN_DMA control bits %#x are not emulated",
              packet.ctl & ~known);
        return false;
    }
    if (packet.tsize == 0) {
        fault(current, "LIN_DMA of 0 bytes");
        return false;
    }
    begin_copy(current, packet.dst, packet.src, packet.tsize);
    stream.next += sizeof(packet);
    return true;
}

/* Take where an internal engine finds its packets. */
bool queue_manager::take_cp_dma(part &current, packet_stream &stream,
                                const translation &rest)
{
    shim::cp_dma packet;

    if (!fetch(current, stream, rest, &packet, sizeof(packet))) {
        return false;
    }
    if ((engine_of(current.queue) != engine_kind::edma) ||
        (&stream != &current.upper)) {
        fault(current, "CP_DMA outside the upper command buffer of an internal "
                       "engine");
        return false;
    }
    stream.next += sizeof(packet);
    current.lower = {packet.src, packet.tsize, 0};
    return true;
}

/* Take the next packet; on a bad one the job is aborted. */
void queue_manager::decode(part &current, packet_stream &stream)
{
    translation rest{};
    uint32_t header[2];

    if (!table_.translate(mmu::port::packets, stream.va + stream.next,
                          stream.size - stream.next, rest)) {
        fault(current, "the command buffer is not mapped");
        return;
    }
    if (!fetch(current, stream, rest, header, sizeof(header))) {
        return;
    }
    const uint32_t opcode =
        (header[1] >> shim::packet_opcode_shift) & shim::packet_opcode_mask;
    bool taken = true;

    switch (opcode) {
    case shim::packet_nop:
        /* Its barriers wait for what is done already: the packets of a queue
         * run one after the other. */
        if ((header[1] & shim::packet_barriers) == shim::packet_barriers) {
            current.unfenced = false;
        }
        stream.next += sizeof(header);
        break;
    case shim::packet_lin_dma:
        taken = take_lin_dma(current, stream, rest);
        break;
    case shim::packet_cp_dma:
        taken = take_cp_dma(current, stream, rest);
        break;
    default:
        fault(current, "packet opcode %#x is not emulated", opcode);
        return;
    }
    counters_.packets += taken ? 1 : 0;
}

/* Get a part to where bytes can be copied. */
queue_manager::step queue_manager::advance(part &current)
{
    for (;;) {
        if (slot_of(current.seq).status == shim::cs_aborted) {
            return (current.claimed > 0) ? step::nothing : step::ended;
        }
        if (current.unclaimed > 0) {
            return step::copy;
        }
        if (current.claimed > 0) {
            return step::nothing;
        }
        const bool lower      = current.lower.next < current.lower.size;
        packet_stream &stream = lower ? current.lower : current.upper;
        if (stream.next >= stream.size) {
            return step::ended;
        }
        decode(current, stream);
    }
}

/* Translate the next piece of the copy and claim it. */
bool queue_manager::prepare(part &current, uint64_t max_bytes, slice &work)
{
    translation from{};
    translation to{};
    const uint64_t size = std::min(current.unclaimed, max_bytes);

    if (!table_.translate(mmu::port::source, current.src, size, from)) {
        fault(current, "LIN_DMA source %#lx is not mapped", current.src);
        return false;
    }
    if (!table_.translate(mmu::port::target, current.dst, size, to)) {
        fault(current, "LIN_DMA destination %#lx is not mapped", current.dst);
        return false;
    }
    if ((engine_of(current.queue) == engine_kind::edma) &&
        ((from.kind != memory_kind::device) ||
         (to.kind != memory_kind::device))) {
        fault(current, "an internal engine cannot reach host memory, nor what "
                       "is imported");
        return false;
    }

    if ((timing_.model != nullptr) && !current.modelled) {
        model_copy(current, from, to);
    }
    if ((trace_ != nullptr) && !current.traced) {
        trace_begin(current, from, to);
    }
    const uint64_t bytes = std::min(from.size, to.size);
    work = {to.address, from.address, bytes, to.kind, from.kind, current.large};
    current.src += bytes;
    current.dst += bytes;
    current.unclaimed -= bytes;
    current.claimed += bytes;
    return true;
}

} // namespace gaudi::emu
