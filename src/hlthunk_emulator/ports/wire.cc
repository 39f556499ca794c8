/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/ports/wire.h"

#include "hlthunk_emulator/settings.h"
#include "hlthunk_emulator/sysfs_view.h"
#include "util/process.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>

namespace gaudi::emu {

namespace {

/* Packets begin at multiples of their heads. */
uint64_t place_of(uint32_t bytes)
{
    return sizeof(packet) + (uint64_t{bytes} + sizeof(packet) - 1) /
                                sizeof(packet) * sizeof(packet);
}

} // namespace

wire_end::room wire_end::room_at(uint64_t place, uint32_t bytes)
{
    const uint64_t start = place % ring_bytes;
    const auto first =
        static_cast<uint32_t>(std::min<uint64_t>(bytes, ring_bytes - start));
    return {&ring_[start], first, ring_.data()};
}

bool wire_end::prepare(uint32_t bytes, room &room_p)
{
    const uint64_t put  = put_.load(std::memory_order_relaxed);
    const uint64_t used = put - taken_.load(std::memory_order_acquire);
    if ((used > ring_bytes) || (ring_bytes - used < place_of(bytes))) {
        return false;
    }
    room_p = room_at(put + sizeof(packet), bytes);
    return true;
}

void wire_end::put(const packet &head)
{
    const uint64_t put = put_.load(std::memory_order_relaxed);
    std::memcpy(&ring_[put % ring_bytes], &head, sizeof(head));
    put_.store(put + place_of(head.bytes), std::memory_order_release);
}

/* By who puts. The other end may write nonsense here meanwhile. */
void wire_end::lose(uint32_t qpn, uint32_t key)
{
    const uint64_t put = put_.load(std::memory_order_relaxed);
    uint64_t at        = taken_.load(std::memory_order_acquire);
    while ((put - at - 1 < ring_bytes) && (at % sizeof(packet) == 0)) {
        auto &head = reinterpret_cast<packet &>(ring_[at % ring_bytes]);
        if ((head.qpn == qpn) && (head.key == key)) {
            std::atomic_ref(head.qpn).store(0);
        }
        at += place_of(head.bytes);
    }
}

bool wire_end::look(packet &head_p, room &bytes_p)
{
    const uint64_t taken = taken_.load(std::memory_order_relaxed);
    const uint64_t used  = put_.load(std::memory_order_acquire) - taken;
    if (used == 0) {
        return false;
    }
    std::memcpy(&head_p,
                &ring_[taken % ring_bytes / sizeof(packet) * sizeof(packet)],
                sizeof(head_p));
    if ((used > ring_bytes) || (taken % sizeof(packet) != 0) ||
        (head_p.bytes > packet_bytes) || (used < place_of(head_p.bytes))) {
        clear();
        return false;
    }
    bytes_p = room_at(taken + sizeof(packet), head_p.bytes);
    return true;
}

void wire_end::take(const packet &head)
{
    taken_.fetch_add(place_of(head.bytes), std::memory_order_release);
}

bool wire_end::put(const acknowledgement &what)
{
    const uint64_t put = answers_put_.load(std::memory_order_relaxed);
    if (put - answers_taken_.load(std::memory_order_acquire) >= answers) {
        return false;
    }
    answer_[put % answers] = what;
    answers_put_.store(put + 1, std::memory_order_release);
    return true;
}

bool wire_end::take(acknowledgement &what_p)
{
    const uint64_t taken = answers_taken_.load(std::memory_order_relaxed);
    if (answers_put_.load(std::memory_order_acquire) == taken) {
        return false;
    }
    what_p = answer_[taken % answers];
    answers_taken_.store(taken + 1, std::memory_order_release);
    return true;
}

void wire_end::clear()
{
    taken_.store(put_.load());
    answers_taken_.store(answers_put_.load());
}

box_wires &box_wires::instance()
{
    return util::of_this_process<box_wires>();
}

box_wires::box_wires() : error_(box_.map_wires(bytes_of_wires, shared_))
{
    if (error_ != 0) {
        log("no wires between the ports: %s", std::strerror(-error_));
        return;
    }
    madvise(shared_.start(), shared_.length(), MADV_DONTFORK);
    madvise(shared_.start(), shared_.length(), MADV_DONTDUMP);
}

/* nullptr: the port has no wire. */
std::atomic<uint32_t> *box_wires::cut_of(port_end port) const
{
    const auto peer = peer_of(port);
    return peer.has_value()
               ? &to((peer->card < port.card) ? *peer : port).is_cut
               : nullptr;
}

bool box_wires::is_up(port_end port) const
{
    const auto *const cut = cut_of(port);
    return (cut != nullptr) && (cut->load() == 0);
}

bool box_wires::cut(port_end port, bool is_cut) const
{
    auto *const cut       = cut_of(port);
    const uint32_t wished = is_cut ? 1 : 0;
    return (cut != nullptr) && (cut->exchange(wished) != wished);
}

void cut_wires(const fault &wished)
{
    const box_wires &wires = box_wires::instance();
    const bool is_cut      = (wished.effect.kind == fault_kind::down);
    for (unsigned card = 0;
         (wires.error() == 0) && (card < get_settings().devices); ++card) {
        for (unsigned port = 0; port < ports_of_card; ++port) {
            const port_end end{card, port};
            if ((wished.card.value_or(card) == card) &&
                (wished.port.value_or(port) == port) &&
                wires.cut(end, is_cut)) {
                log("accel%u: port %u: its wire is %s", card, port,
                    is_cut ? "cut" : "mended");
                show_link(end, !is_cut);
                show_link(peer_of(end).value_or(end), !is_cut);
            }
        }
    }
}

} // namespace gaudi::emu
