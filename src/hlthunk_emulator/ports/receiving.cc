/* SPDX-License-Identifier: BSD-3-Clause */
/* What arrives by the ports of a card, and what the engine does in turn. */
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

/* How much is taken from one wire before the next one has its turn. */
constexpr unsigned packets_in_turn = 16;

} // namespace

/* --- completions, errors
 * ------------------------------------------------------ */

void port_context::complete(int cq, uint32_t qpn, bool as_requester,
                            uint32_t index, uint32_t tag, uint32_t size)
{
    const auto found = cqs_.find(cq);
    if (found == cqs_.end()) {
        return;
    }
    completion_queue &to = found->second;
    const uint64_t written =
        shared_word<uint64_t>(to.registers.engine() + cq_register)
            .load(std::memory_order_acquire);
    if (is_gaudi3_) {
        to.consumed = static_cast<uint32_t>(written);
    } else if (static_cast<uint32_t>(written) == to.number) {
        to.consumed = static_cast<uint32_t>(written >> 32);
    }
    if (to.produced - to.consumed >= to.entries) {
        log("accel%u: port %u: CQ %u is full, and loses a completion", card_,
            to.port, to.number);
        if (!std::exchange(to.overrun, true)) {
            tell(IBV_EVENT_CQ_ERR, to.object, 0);
        }
        return;
    }
    char *const entry =
        to.memory.engine() + size_t{to.produced % to.entries} * cqe_bytes;
    const uint32_t words[] = {index, tag, size};
    std::memcpy(entry + sizeof(uint32_t), words, sizeof(words));
    shared_word<uint32_t>(entry).store(qpn | (as_requester ? 1u << 24 : 0) |
                                           (1u << 31),
                                       std::memory_order_release);
    ++to.produced;
    shared_word<uint64_t>(to.pi.engine())
        .store(to.produced, std::memory_order_release);
}

void port_context::fail(queue_pair &of, syndrome why, bool as_requester,
                        const char *what)
{
    of.state    = IBV_QPS_ERR;
    of.syndrome = static_cast<uint32_t>(why);
    log("accel%u: port %u: QP %u: %s (syndrome %#x)", card_, of.port, of.qpn,
        what, of.syndrome);
    if (of.created.object != 0) {
        tell(as_requester ? IBV_EVENT_QP_REQ_ERR : IBV_EVENT_QP_FATAL,
             of.created.object, 0);
    }
}

/* --- receiving
 * ---------------------------------------------------------------- */

void port_context::receive(unsigned which, const packet &head,
                           const wire_end::room &bytes)
{
    queue_pair *const to = find_qpn(which, head.qpn);
    if ((to == nullptr) ||
        ((to->state != IBV_QPS_RTR) && (to->state != IBV_QPS_RTS))) {
        return; /* who sent it hears nothing */
    }
    if (head.key != to->local_key) {
        fail(*to, syndrome::key, false, "a peer that names another key");
        return;
    }
    const bool is_last = (head.size - head.offset == head.bytes);
    if (head.number != to->expected) {
        if (is_last && (static_cast<int32_t>(head.number - to->expected) < 0)) {
            answer(*to); /* it came already */
        }
        return;
    }
    to->got = (head.offset == 0) ? 0 : to->got;
    if ((head.offset != to->got) || (head.offset > head.size) ||
        (head.bytes > head.size - head.offset)) {
        return;
    }
    const auto written = touch(
        head.address, head.bytes, [&](char *at, uint64_t done, uint64_t size) {
            const uint64_t first = std::min<uint64_t>(
                size, bytes.first_bytes -
                          std::min<uint64_t>(done, bytes.first_bytes));
            return copy_if_there(at, bytes.first + done, first) &&
                   ((first == size) ||
                    copy_if_there(at + first,
                                  bytes.second +
                                      (done + first - bytes.first_bytes),
                                  size - first));
        });
    if (written != touched::yes) {
        if (!is_gone_) {
            fail(*to, syndrome{}, false, "a peer that writes to no memory");
        }
        return;
    }
    to->got += head.bytes;
    if (!is_last) {
        return;
    }
    ++to->expected;
    to->got = 0;
    /* Gaudi3 has none without advanced features. */
    if (((head.completion & completes_by_cq) != 0) &&
        (ports_[which].advanced || !is_gaudi3_)) {
        complete(to->created.receive_cq, to->qpn, false, head.index, head.tag,
                 head.size);
    }
    answer(*to);
}

/* To all that has arrived. */
void port_context::answer(queue_pair &by)
{
    const port_end own{card_, by.port};
    const acknowledgement what{by.dest_qpn, by.expected - 1};
    const auto peer = peer_of(own);
    if (by.is_loopback) {
        take_answer(by.port, what);
    } else if (wires_.is_up(own)) {
        (void)wires_.to(*peer).put(what);
    }
}

void port_context::take_answer(unsigned which, const acknowledgement &answer)
{
    queue_pair *const of = find_qpn(which, answer.qpn);
    if ((of == nullptr) || (of->state != IBV_QPS_RTS) ||
        (answer.number - of->acknowledged >= of->executed - of->acknowledged)) {
        return;
    }
    while ((of->acknowledged != answer.number + 1) &&
           (of->state == IBV_QPS_RTS)) {
        end_message(*of);
    }
    if (static_cast<int32_t>(of->next - of->acknowledged) < 0) {
        of->next   = of->acknowledged; /* it was about to be sent again */
        of->offset = 0;
    }
    of->waited = 0;
    of->timer  = {};
}

/* The oldest message is acknowledged: what RX checks of a WQE, and its sender's
 * completion. */
void port_context::end_message(queue_pair &of)
{
    const uint32_t number = of.acknowledged++;
    const uint32_t slot   = number % of.created.send_wqes;
    const auto sent       = send_wqe::read(
              of.send.engine() + size_t{slot} * send_wqe_bytes, is_gaudi3_);
    const auto own = receive_wqe::read(of.receive.engine() +
                                       size_t{slot} * receive_wqe_bytes);
    if (watch_ != nullptr) {
        watch_->end(of.port, of.qpn, number);
    }
    if (ports_[of.port].checked && (own.index != (slot & 0xff))) {
        fail(of, syndrome::receive_index, true,
             "a receive WQE with another index than its place has");
        return;
    }
    (void)software_card::at(card_).with_open(
        {}, [&](software_card::context &open, card_lock &) {
            open.totals.port_bytes[of.port] += sent.size;
            return 0;
        });
    if (of.lost == number + 1) {
        log("accel%u: port %u: QP %u: the completion of WQE %u is lost, as was "
            "wished for",
            card_, of.port, of.qpn, slot);
    } else if (((get_settings().send_completes ? sent.completion
                                               : own.completion) &
                completes_by_cq) != 0) {
        complete(of.created.send_cq, of.qpn, true, slot, own.tag, sent.size);
    }
}

/* --- the engine's turn
 * -------------------------------------------------------- */

bool port_context::run(clock::time_point now, clock::time_point &due_p)
{
    bool any = false;
    while (!draining_.empty() && (draining_.front().drained_at <= now)) {
        release(draining_.front());
        draining_.pop_front();
    }
    if (!draining_.empty()) {
        due_p = std::min(due_p, draining_.front().drained_at);
    }
    for (auto &[id, each] : fifos_) {
        any |= !is_gone_ && read_doorbell(each);
    }
    for (unsigned i = 0; (i < ports_of_card) && !is_gone_; ++i) {
        wire_end &wire = wires_.to({card_, i});
        if (ports_[i].pairs.empty()) {
            if (!wire.is_empty()) {
                wire.clear(); /* it is for queue pairs that have gone */
            }
            continue;
        }
        acknowledgement arrived;
        while (!wire.is_empty() && wire.take(arrived)) {
            take_answer(i, arrived);
            any = true;
        }
        packet head;
        wire_end::room bytes;
        for (unsigned done = 0;
             (done < packets_in_turn) && !is_gone_ && wire.look(head, bytes);
             ++done) {
            receive(i, head, bytes);
            wire.take(head);
            any = true;
        }
        for (queue_pair *each : ports_[i].pairs) {
            if (each->posted != each->acknowledged) {
                any |= send(*each, now, due_p);
                check_timer(*each, now, due_p);
            }
        }
    }
    return any;
}

void port_context::look_around()
{
    if (!is_gone_) {
        (void)touch(0, 0, [](char *, uint64_t, uint64_t) { return true; });
    }
    if (is_gone_ && !std::exchange(gone_told_, true)) {
        wires_.release(card_);
        /* The card: all ports, and the number of the program's context, of
         * which the driver has one (hbl_main.c). */
        tell(IBV_EVENT_DEVICE_FATAL, 0, 0xffff | (1 << 16));
    }
    for (unsigned i = 0; i < ports_of_card; ++i) {
        port &seen    = ports_[i];
        const bool up = wires_.is_up({card_, i});
        if ((std::exchange(seen.was_up, up) != up) && seen.is_set_up) {
            tell(up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, 0, i);
        }
    }
}

} // namespace gaudi::emu
