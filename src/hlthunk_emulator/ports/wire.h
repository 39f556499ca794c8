/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The wires between the ports of a box, in its file: what is on its way to each
 * port.
 *
 * A wire has one end in the process that has the one card open, and one in that
 * of the other: each may put in packets for the other port, and take those for
 * its own. Both may be one process. What is put in where nobody takes is lost,
 * as are packets to a card that nobody has set up. A process that is killed
 * leaves no half packet, and who comes after it throws away what is there.
 *
 * Who takes must not believe what is in there: another process wrote it.
 */
#pragma once

#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/box.h"
#include "hlthunk_emulator/faults.h"
#include "hlthunk_emulator/ports/wiring.h"
#include "util/file_mapping.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace gaudi::emu {

/** A piece of a message, with its bytes behind it. */
struct packet {
    uint32_t qpn;     /**< of the port that takes it */
    uint32_t key;     /**< of the target's memory */
    uint32_t number;  /**< of the message, from 0 on: the PSN, as it were */
    uint32_t index;   /**< of its WQE */
    uint64_t address; /**< where these bytes go */
    uint32_t offset;  /**< of these bytes in the message */
    uint32_t bytes;
    uint32_t size; /**< of the message */
    uint32_t tag;
    uint32_t completion;
    uint32_t unused[5];
};
static_assert(sizeof(packet) == 64);

/** All messages up to a number have arrived. */
struct acknowledgement {
    uint32_t qpn; /**< of the port that takes it */
    uint32_t number;
};

/** Bytes of a message in one packet, at most. */
inline constexpr uint32_t packet_bytes = 16384;

/** What is on its way to a port. One process puts, one takes. */
class wire_end {
public:
    /** Where the bytes of a packet are: the second part where the first one
     *  reaches the end of the ring. */
    struct room {
        char *first;
        uint32_t first_bytes;
        char *second;
    };

    /** Room for the bytes of a packet, to fill and put. @return false when
     *  there is none now. */
    bool prepare(uint32_t bytes, room &room_p);
    void put(const packet &head);

    /** How far has been put, and whether all up to there has been taken. */
    [[nodiscard]] uint64_t put_so_far() const { return put_.load(); }
    [[nodiscard]] bool is_taken(uint64_t up_to) const
    {
        return static_cast<int64_t>(taken_.load() - up_to) >= 0;
    }

    /** What is put for a queue pair, and not taken, arrives nowhere. */
    void lose(uint32_t qpn, uint32_t key);

    /** The next packet. @return false when there is none. What is damaged is
     *  thrown away, with all behind it. */
    bool look(packet &head_p, room &bytes_p);
    /** It is done with. */
    void take(const packet &head);

    /** @return false when there is no room: it is lost. */
    bool put(const acknowledgement &what);
    bool take(acknowledgement &what_p);

    /** Throw away what is there. */
    void clear();

    /** Whether something is there to take. */
    [[nodiscard]] bool is_empty() const
    {
        return (taken_.load(std::memory_order_relaxed) ==
                put_.load(std::memory_order_acquire)) &&
               (answers_taken_.load(std::memory_order_relaxed) ==
                answers_put_.load(std::memory_order_acquire));
    }

    /** Whether the wire is cut: the end of the card with the smaller number
     *  says so for both. */
    std::atomic<uint32_t> is_cut;

private:
    static constexpr uint64_t ring_bytes = 524288;
    static constexpr uint64_t answers    = 512;

    room room_at(uint64_t place, uint32_t bytes);

    alignas(64) std::atomic<uint64_t> put_;   /* bytes */
    alignas(64) std::atomic<uint64_t> taken_; /* bytes */
    alignas(64) std::atomic<uint64_t> answers_put_;
    alignas(64) std::atomic<uint64_t> answers_taken_;
    alignas(64) std::array<acknowledgement, answers> answer_;
    alignas(64) std::array<char, ring_bytes> ring_;
};

inline constexpr size_t bytes_of_wires =
    sizeof(wire_end) * size_t{max_cards} * ports_of_card;

/** All of a box. */
class box_wires {
public:
    /** Those of this process's box, which it has joined. */
    static box_wires &instance();

    /** As instance(). */
    box_wires();
    box_wires(const box_wires &)            = delete;
    box_wires &operator=(const box_wires &) = delete;

    /** 0, or the -errno for which they cannot be had. */
    [[nodiscard]] int error() const { return error_; }

    /** What is on its way to a port. */
    [[nodiscard]] wire_end &to(port_end port) const
    {
        return reinterpret_cast<wire_end *>(
            shared_.start())[port.card * ports_of_card + port.port];
    }

    /** This process has a card's ports, until released. */
    void hold(unsigned card) const { box_.begin(box::use::ports, card); }
    void release(unsigned card) const { box_.end(box::use::ports, card); }
    /** Whether a process other than this one has them. */
    [[nodiscard]] bool is_held(unsigned card) const
    {
        return box_.is_elsewhere(box::use::ports, card);
    }
    /** Whether bytes can get from a port to the other end of its wire. */
    [[nodiscard]] bool is_up(port_end port) const;

    /** Cut the wire of a port, or mend it. @return false when it has none, or
     *  is as wished already. */
    bool cut(port_end port, bool is_cut) const;

private:
    [[nodiscard]] std::atomic<uint32_t> *cut_of(port_end port) const;

    const box &box_ = box::instance();
    util::file_mapping shared_;
    int error_ = 0;
};

/** Cut or mend wires as a fault wishes it, and show that in the emulated sysfs.
 *  @throws bad_alloc. */
void cut_wires(const fault &wished);

} // namespace gaudi::emu
