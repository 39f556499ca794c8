/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A link from an endpoint to an interface in another box, over the external
 * ports of their cards.
 *
 *   sender                                      receiver
 *   [ slots ]   --- written by ports ---------> [ slots ] --> handlers
 *   sent        --- written when they arrived-> available
 *   room        <-- written by ports ---------- consumed
 *   [ answers ] <-- written by ports ---------- [ answers ]
 *   memory of a card <-- written, if asked for - memory of a card
 *   memory of a card --- written by ports -----> memory of a card
 *
 * Each end has one piece of host memory, mapped for its card and never unmapped
 * while its ports are open: a late write of the peer would reset the card. A
 * slot is one message, or asks for a write (see copy_ring.h). That messages are
 * there the sender writes when their writes are complete, for no order among
 * writes is promised.
 *
 * The two meet by TCP, at the address of an external port, which is a network
 * interface of the machine, too. There the sender asks for connections of ports
 * of cards, presenting the secret that the receiver has in its address; by the
 * first one the two ends write to each other. The socket stays open, and its
 * end is the link's; a sender that has said nothing connects again. The
 * receiver's last word is a goodbye: nothing more is written for the sender.
 *
 * Nothing wakes up who is written to. So a receiver that is to sleep says so
 * beside the room that it tells of, and sleeps if, once that has arrived, it
 * still knows of all messages. The sender looks there when it has told of a
 * message, and then rings by the socket. Who sends makes progress until then.
 * It rings first when it has connected: before that nothing may be written to
 * it.
 *
 * Nothing waits. One thread at a time. In a forked child nothing happens.
 */
#pragma once

#include "uct/gaudi/base/cards/card.h"
#include "uct/gaudi/base/cards/ports.h"
#include "uct/gaudi/base/transfer/engine.h"
#include "util/fork_handlers.h"
#include "util/process.h"
#include "util/unique_fd.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace gaudi::ipc {

/** What goes by TCP: the sender asks, the receiver answers. Nothing in it is
 *  believed. */
struct box_letter {
    static constexpr uint64_t current_version = 0x6761756469626f78 + 3;
    enum what : uint32_t { of_ports, goodbye, bell };

    uint64_t version = current_version;
    uint64_t secret  = 0;
    uint64_t memory  = 0; /**< device address of who writes */
    uint32_t slot    = 0; /**< bytes of one */
    uint32_t card    = 0; /**< base::pci_address: whose ports are asked for */
    uint32_t name    = 0; /**< of the connection */
    int32_t result   = 0; /**< of the answer: 0 or -errno */
    shim::port_offer offer;
    uint32_t kind = of_ports;
};
static_assert(sizeof(box_letter) == 44 + sizeof(shim::port_offer));

class box_link : protected base::port_sharer {
public:
    static constexpr unsigned slots = 64;

    box_link(const box_link &)            = delete;
    box_link &operator=(const box_link &) = delete;

    [[nodiscard]] bool is_over() const { return is_over_; }

protected:
    struct slot_head {
        uint32_t length;
        uint32_t id; /* of a message, or: */
    };
    static constexpr uint32_t asks_for_write = 0x100;

    /* Calls of progress from one look at the socket to the next. */
    static constexpr unsigned polls_per_look = 256;

    /** @param events  An epoll, which is readable when there is something to
     *                  see; there until the link ends. */
    box_link(base::card &home, int events, uint64_t secret, size_t longest);
    ~box_link();

    /** See by the socket what the peer does. System calls. */
    void look();

    /** Meet the peer by a socket. @return 0 or -errno. */
    [[nodiscard]] int take_socket(util::unique_fd socket);

    [[nodiscard]] bool is_inherited() const { return made_in_.is_parent(); }

    /** End it: its queue pairs go. */
    void end();
    /** What has not been heard or said by now is lost. */
    void hang_up();
    /** The peer hears of the end, and may still say goodbye. */
    void ask_for_goodbye();
    [[nodiscard]] bool hears_goodbye();
    /** Sleep until more is heard. */
    void wait_for_goodbye(std::chrono::nanoseconds longest) const;

    /** Have memory. @return 0 or -errno. */
    [[nodiscard]] int take_memory();

    /** A letter that has come, and makes sense; else the peer is left. None
     *  while the peer has not read what was written to it. */
    [[nodiscard]] bool take_letter(box_letter &letter_p);
    [[nodiscard]] bool has_letter() const
    {
        return heard_ == sizeof(box_letter);
    }
    void write(box_letter letter);
    /** Before a sleep: there is something to see, too, when the socket has room
     *  for what has not been said. */
    void watch();
    /** Say nothing but that there is something to see. */
    void ring();
    [[nodiscard]] bool was_rung() const { return was_rung_; }
    /** Whether the peer has closed the socket before anything was heard. */
    [[nodiscard]] bool is_let_go() const { return is_let_go_; }
    [[nodiscard]] bool has_memory() const { return memory_ != nullptr; }

    /** From now on the two write to each other. @param ports  Counted as used
     *  by this link. */
    void use(base::transfer_engine &engine, base::channel &ports,
             uint64_t memory_there);
    [[nodiscard]] bool is_in_use() const { return ports_ != nullptr; }
    /** Whether the ports still do. */
    [[nodiscard]] bool works() const
    {
        return !ports_->is_over() && !home_.is_lost();
    }

    /** Write a part of the memory to where it is at the peer's.
     *  @return false: not now. */
    [[nodiscard]] bool post(unsigned number, size_t offset, size_t bytes);
    /** Have the peer's word say this, once it says what it was to say before.
     */
    void post_word(uint64_t value);
    /** Whether it does, and nothing else is under way, which may go by another
     *  port and need polls. */
    [[nodiscard]] bool has_told(uint64_t value) const
    {
        return !tells_ && (told_ == value) &&
               (ports_->ports().outstanding() == 0);
    }
    void note_end(unsigned number, int status) override;

    /* Beside the receiver's count. */
    static constexpr uint64_t is_asleep = uint64_t{1} << 63;

    [[nodiscard]] std::atomic_ref<uint64_t> theirs() const { return word(0); }
    [[nodiscard]] size_t slot_bytes() const { return slot_bytes_; }
    [[nodiscard]] size_t offset_of(uint64_t number) const
    {
        return head_bytes + (number % slots) * slot_bytes_;
    }
    [[nodiscard]] char *at(size_t offset) const
    {
        return memory_->mapped.start() + offset;
    }
    [[nodiscard]] size_t answer_offset(uint64_t number) const
    {
        return head_bytes + slots * slot_bytes_ +
               (number % slots) * sizeof(uint64_t);
    }
    [[nodiscard]] std::atomic_ref<uint64_t> answer(uint64_t number) const
    {
        return word(answer_offset(number));
    }

    base::card &home_;
    const base::held_cards cards_; /* a key may be the last to have this */
    bool peer_left_ = false;       /* what it has told of before is there */

    /* Messages since the beginning: of a sender those filled; of a receiver
     * those consumed. And what the peer's word says. */
    uint64_t filled_ = 0, told_ = 0;
    uint64_t written_ = 0; /* slots whose writes are complete, a bit of each */

private:
    /* In front of the slots: what the peer writes, and what is written to it,
     * each in a line of its own. */
    static constexpr size_t own_word   = 64;
    static constexpr size_t head_bytes = 128;

    [[nodiscard]] std::atomic_ref<uint64_t> word(size_t offset) const
    {
        return std::atomic_ref<uint64_t>(
            *reinterpret_cast<uint64_t *>(at(offset)));
    }
    void speak();
    void listen();
    void leave(int error);

    const util::owning_process made_in_;
    const int events_;
    util::unique_fd socket_;
    util::closed_in_children closed_in_children_;
    const uint64_t secret_;
    const size_t slot_bytes_;
    bool is_over_ = false;
    std::string to_say_;
    bool has_heard_      = false;
    bool is_let_go_      = false;
    bool was_rung_       = false;
    bool waits_for_room_ = false;
    box_letter letter_; /* so much of it has come: */
    size_t heard_     = 0;
    bool is_silent_   = false; /* nothing more is heard */
    bool has_goodbye_ = false;
    std::unique_ptr<base::port_memory> memory_;
    base::transfer_engine *engine_ = nullptr;
    base::channel *ports_          = nullptr;
    uint64_t memory_there_         = 0;
    uint64_t telling_              = 0; /* by the word that is under way */
    bool tells_                    = false;
};

} // namespace gaudi::ipc
