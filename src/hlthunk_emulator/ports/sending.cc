/* SPDX-License-Identifier: BSD-3-Clause */
/* What leaves by the ports of a card. */
#include "hlthunk_emulator/copy_engine.h"
#include "hlthunk_emulator/faults.h"
#include "hlthunk_emulator/ports/port_context.h"
#include "hlthunk_emulator/ports/port_watch.h"
#include "hlthunk_emulator/ports/touching.h"
#include "hlthunk_emulator/settings.h"

#include <algorithm>
#include <atomic>
#include <cerrno>

namespace gaudi::emu {

namespace {

/* How much is done for one queue before the next one has its turn. */
constexpr unsigned pieces_in_turn = 16;
/* A card goes on without its process. Here a process that gets no core, for
 * seconds on a busy machine, is waited for so many times longer than one that
 * is gone. */
constexpr unsigned patience = 8;

} // namespace

/* --- doorbells
 * ---------------------------------------------------------------- */

/* A store overwrites the one before it, where a card's register hands each on.
 * Who looks at CI before he rings is not hurt: what was not seen is never
 * consumed, and leaves less room, down to one doorbell at a time. */
bool port_context::read_doorbell(fifo &from)
{
    const auto value = shared_word<uint64_t>(from.registers.engine());
    /* Two stores of 32 bits begin with PI. No QP has the number 0. */
    if ((value.load(std::memory_order_relaxed) >> 32) == 0) {
        return false;
    }
    ring(from, doorbell::read(value.exchange(0, std::memory_order_acquire)));
    ++from.consumed;
    /* Gaudi3 counts in units of four bytes. */
    shared_word<uint32_t>(from.ci.engine())
        .store(is_gaudi3_ ? (2 * from.consumed) & 0x7ff : from.consumed & 0x3f,
               std::memory_order_release);
    return true;
}

void port_context::ring(fifo &from, const doorbell &bell)
{
    queue_pair *const to = find_qpn(from.port, bell.qpn);
    if ((to == nullptr) || (to->send.engine() == nullptr)) {
        log("accel%u: port %u: a doorbell of QP %u, which %s", card_, from.port,
            bell.qpn,
            (to == nullptr) ? "there is not" : "has no work queue here");
        tell(IBV_EVENT_DEVICE_FATAL, 0, from.port | (from.number << 16));
        return;
    }
    if ((from.qpn != 0) && (from.qpn != bell.qpn) &&
        !std::exchange(from.warned, true)) {
        log("accel%u: port %u: several QPs ring in doorbell FIFO %u: here, a "
            "store may hide another one's before it is seen",
            card_, from.port, from.number);
    }
    from.qpn              = bell.qpn;
    const uint32_t wqes   = to->created.send_wqes;
    const uint32_t modulo = is_gaudi3_ ? doorbell_pi_mask : wqes - 1;
    const uint32_t more   = (bell.pi - to->posted) & modulo;
    if (to->state != IBV_QPS_RTS) {
        return;
    }
    if (to->posted + more - to->acknowledged > wqes) {
        fail(*to, syndrome::doorbell_beyond, true,
             "a doorbell beyond what the work queue holds");
        return;
    }
    to->posted += more;
}

/* --- sending
 * ------------------------------------------------------------------ */

/* What TX checks of a WQE. */
bool port_context::check(queue_pair &from, const send_wqe &wqe)
{
    const uint32_t slot = from.next % from.created.send_wqes;
    const auto own      = receive_wqe::read(from.receive.engine() +
                                            size_t{slot} * receive_wqe_bytes);
    if ((wqe.opcode != opcode_linear) || (own.opcode != opcode_linear)) {
        fail(from, syndrome::opcode, true,
             "a WQE that is not linear, which is not modelled");
    } else if ((wqe.reduction != 0) || wqe.is_inline) {
        fail(from, syndrome::opcode, true,
             "a WQE with a reduction or with inline data, which is not "
             "modelled");
    } else if (((wqe.completion | own.completion) & completes_by_sync_object) !=
               0) {
        fail(from, syndrome::opcode, true,
             "a WQE that completes by a sync object, which is not modelled");
    } else if (ports_[from.port].checked && !is_gaudi3_ &&
               (wqe.index != (slot & 0xff))) {
        fail(from, syndrome::send_index, true,
             "a send WQE with another index than its place has");
    } else if (wqe.size == 0) {
        fail(from, syndrome::size_zero, true, "a WQE of no bytes");
    } else if (wqe.size > longest_message) {
        fail(from, syndrome::size_too_large, true, "a WQE of more than 1 GiB");
    }
    return from.state == IBV_QPS_RTS;
}

/* The first time that a WQE is looked at. @return Whether it can go. */
bool port_context::begin(queue_pair &from, const send_wqe &wqe)
{
    if (!check(from, wqe)) {
        return false;
    }
    ++from.executed;
    const fault_effect met = faults::meet(faulty_call::wqe, card_);
    if (met.kind == fault_kind::abort) {
        fail(from, syndrome::opcode, true, "a fault was wished for here");
    } else if (met.kind == fault_kind::lose) {
        from.lost = from.next + 1;
    } else if (met.kind != fault_kind::none) {
        (void)software_card::at(card_).with_open(
            {}, [&](software_card::context &of, card_lock &) {
                of.queues.break_down(met);
                return 0;
            });
        is_gone_ = true;
    }
    return (from.state == IBV_QPS_RTS) && !is_gone_;
}

/* Put the next bytes of a message on the wire. @return Whether they are. */
bool port_context::send_piece(queue_pair &from, const send_wqe &wqe)
{
    const port_end own{card_, from.port};
    const uint32_t bytes = std::min(packet_bytes, wqe.size - from.offset);
    std::array<char, packet_bytes> copied;
    const auto peer = peer_of(own);
    wire_end *const wire =
        (from.is_loopback || !peer.has_value()) ? nullptr : &wires_.to(*peer);
    wire_end::room room{copied.data(), bytes, nullptr};
    if ((wire != nullptr) && !wire->prepare(bytes, room)) {
        return false;
    }
    const auto read =
        touch(wqe.local + from.offset, bytes,
              [&](const char *at, uint64_t done, uint64_t size) {
                  const uint64_t first = std::min<uint64_t>(
                      size, room.first_bytes -
                                std::min<uint64_t>(done, room.first_bytes));
                  return copy_if_there(room.first + done, at, first) &&
                         ((first == size) ||
                          copy_if_there(room.second +
                                            (done + first - room.first_bytes),
                                        at + first, size - first));
              });
    if (read != touched::yes) {
        if (!is_gone_) {
            fail(from, syndrome{}, true, "no memory to send");
        }
        return false;
    }
    packet head{};
    head.qpn     = from.dest_qpn;
    head.key     = from.remote_key;
    head.number  = from.next;
    head.index   = from.next % from.created.send_wqes;
    head.address = wqe.remote + from.offset;
    head.offset  = from.offset;
    head.bytes   = bytes;
    head.size    = wqe.size;
    head.tag     = wqe.tag;
    head.completion =
        get_settings().send_completes
            ? receive_wqe::read(from.receive.engine() +
                                size_t{head.index} * receive_wqe_bytes)
                  .completion
            : wqe.completion;
    from.offset += bytes;
    if (from.offset == wqe.size) {
        ++from.next;
        from.offset = 0;
    }
    if (wire != nullptr) {
        wire->put(head);
        from.sent = wire->put_so_far();
    } else if (from.is_loopback) {
        receive(from.port, head, room);
    }
    return true;
}

bool port_context::send(queue_pair &from, clock::time_point now,
                        clock::time_point &due_p)
{
    const port_end own{card_, from.port};
    bool any = false;
    for (unsigned i = 0; (i < pieces_in_turn) && (from.state == IBV_QPS_RTS) &&
                         (from.next != from.posted) && !is_gone_;
         ++i) {
        if (!from.is_loopback && !wires_.is_up(own)) {
            break;
        }
        const auto at = [&](uint32_t number) {
            return from.send.engine() +
                   size_t{number % from.created.send_wqes} * send_wqe_bytes;
        };
        const auto wqe = send_wqe::read(at(from.next), is_gaudi3_);
        if ((from.next == from.executed) && (from.offset == 0) &&
            !begin(from, wqe)) {
            return true;
        }
        if (watch_ != nullptr) {
            for (; (from.watched != from.posted) &&
                   (from.watched - from.next < port_watch::most_ahead);
                 ++from.watched) {
                watch_->begin(own, from.qpn, from.watched,
                              send_wqe::read(at(from.watched), is_gaudi3_));
            }
            const bool is_last = (wqe.size - from.offset <= packet_bytes);
            const auto end =
                is_last ? watch_->end_of(from.port, from.qpn, from.next, now)
                        : clock::time_point{};
            if (end > now) {
                due_p      = std::min(due_p, end);
                from.timer = end + from.timeout.value_or(clock::duration{});
                break;
            }
        }
        if (!send_piece(from, wqe)) {
            break;
        }
        any = true;
    }
    if (any) {
        from.timer = now + from.timeout.value_or(clock::duration{});
    }
    return any;
}

/* What was sent is not answered for too long: it is sent again. */
void port_context::check_timer(queue_pair &of, clock::time_point now,
                               clock::time_point &due_p)
{
    if (!of.timeout.has_value() || (of.state != IBV_QPS_RTS)) {
        return;
    }
    if (of.timer == clock::time_point{}) {
        of.timer = now + *of.timeout;
    }
    if (now < of.timer) {
        due_p = std::min(due_p, of.timer);
        return;
    }
    const auto peer = peer_of({card_, of.port});
    const bool lost = !peer.has_value() || wires_.to(*peer).is_taken(of.sent);
    if (of.waited >= patience * get_settings().port_retries) {
        fail(of, syndrome::retries, true, "no answer after all retries");
        return;
    }
    const bool is_slow =
        !lost && wires_.is_up({card_, of.port}) && wires_.is_held(peer->card);
    of.waited += is_slow ? 1 : patience;
    of.timer = now + *of.timeout;
    if (!lost) {
        return; /* the peer has not come to it yet */
    }
    of.next   = of.acknowledged;
    of.offset = 0;
}

} // namespace gaudi::emu
