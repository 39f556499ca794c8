/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * An endpoint's end of a link to another box: sends messages, and has the
 * receiver write what its engine gets.
 */
#pragma once

#include "uct/gaudi/ipc/boxes/box_link.h"
#include "uct/gaudi/ipc/messages/message_writer.h"
#include "uct/gaudi/ipc/serving/copy_client.h"

#include <netinet/in.h>

#include <array>
#include <chrono>
#include <optional>
#include <vector>

namespace gaudi::ipc {

/** How to reach an interface; travels as it is. */
struct box_address {
    uint64_t secret;   /**< random: who has the address may connect */
    uint64_t identity; /**< of the interface, random */
    uint64_t process;  /**< process_id::nonce */
    uint32_t ipv4;     /**< of a port, in network order, */
    uint16_t port;     /**< of TCP there */
    uint16_t longest;  /**< message, units of 64 bytes */
    uint32_t card;     /**< base::pci_address: that gets messages */
    uint32_t unused;

    bool operator==(const box_address &) const = default;
};
/* An interface of the other device reads as many bytes of it, and this one of
 * that one's. */
static_assert(sizeof(box_address) == 40);

/** To an engine, memory of the card that gets messages. */
class box_sender final : public box_link,
                         public message_writer<box_sender>,
                         public base::remote_memory,
                         public std::enable_shared_from_this<box_sender> {
public:
    /** Start to reach an interface. @param longest  Bytes of a message.
     *  @return 0 or -errno. */
    [[nodiscard]] static int open(base::card &by, int events,
                                  const box_address &to, size_t longest,
                                  std::shared_ptr<box_sender> &sender_p);

    [[nodiscard]] const box_address &address() const { return to_; }

    using box_link::is_in_use;

    /** End it. The peer may still write what it was asked for. */
    void end();

    /** Go on. @return false: it is over. */
    [[nodiscard]] bool progress(base::transfer_engine &engine);

    /** Whether all that is to come is seen by the socket. */
    [[nodiscard]] bool arm();

    /* See connection, of messages within a box. */
    const size_t max_payload;
    [[nodiscard]] const void *last_sent() const { return last_; }
    /** Nor is anything waited for that transfers need. */
    [[nodiscard]] bool has_room() const
    {
        return is_inherited() || is_over() ||
               (is_in_use() && !is_full() &&
                (!asked_.has_value() || has_letter()));
    }
    [[nodiscard]] uint64_t sent() const { return filled_; }
    /* Who sleeps has been woken, too: a flush may be the last that is called.
     */
    [[nodiscard]] bool is_delivered(uint64_t sent) const
    {
        return is_over() || ((told_ >= sent) && !has_to_ring(heard()));
    }
    [[nodiscard]] bool peer_alive()
    {
        look();
        return !is_over() && !peer_left_;
    }

    /* Of base::remote_memory. */
    [[nodiscard]] ucs_status_t check(uint64_t, size_t) override
    {
        return UCS_OK;
    }
    [[nodiscard]] ucs_status_t hold() override { return UCS_OK; }
    void release() override {}
    [[nodiscard]] const util::process_memory *host() override
    {
        return nullptr;
    }
    [[nodiscard]] int va_on(base::card &, uint64_t, size_t, uint64_t &) override
    {
        return -EOPNOTSUPP;
    }
    [[nodiscard]] uint64_t owner() const override { return identity_; }
    [[nodiscard]] base::card_place place() const override
    {
        return {base::pci_address{to_.card}, shim::port_offer::outside};
    }
    [[nodiscard]] int
    connect(const base::owner_queue_options &wished,
            std::unique_ptr<base::owner_queue> &queue_p) override;

private:
    friend class message_writer<box_sender>;
    friend class box_queue;

    box_sender(base::card &by, int events, const box_address &to,
               size_t longest);
    [[nodiscard]] int reach();
    void look();

    [[nodiscard]] bool is_full() const
    {
        return filled_ - (heard() & ~is_asleep) >= slots;
    }
    [[nodiscard]] uint64_t heard() const
    {
        return theirs().load(std::memory_order_acquire);
    }
    /* Whether the receiver, by its last word, sleeps, and has been told of more
     * than it knew. */
    [[nodiscard]] bool has_to_ring(uint64_t last) const
    {
        return ((last & is_asleep) != 0) && (last != rung_) &&
               (told_ > (last & ~is_asleep));
    }
    ucs_status_t reserve(size_t length, void *&room_p);
    ucs_status_t publish(uint8_t id, size_t length)
    {
        fill(id, length);
        return UCS_OK;
    }
    void fill(uint32_t id, size_t length);
    void write_slots();

    const box_address to_;
    const uint64_t identity_; /* in this process */
    const void *last_ = nullptr;
    uint64_t posted_  = 0; /* messages, as in box_link */
    uint64_t arrived_ = 0;
    uint64_t rung_    = 0; /* what it said that was woken last */
    unsigned polls_   = 0;
    std::optional<box_letter> asked_; /* by this, which is not answered */
    uint64_t memory_ = 0;             /* the peer's, once it has answered */
    unsigned gets_   = 0; /* asked for, and not known to have ended */
    std::chrono::steady_clock::time_point may_reach_; /* again, from when on */
};

/** What the receiver writes for an engine, over ports. */
class box_queue final : public base::owner_queue {
public:
    box_queue(std::shared_ptr<box_sender> to, size_t chunk_bytes);

    [[nodiscard]] std::span<char> memory() const override { return letter_; }
    [[nodiscard]] bool is_over() override;
    [[nodiscard]] bool arm() override { return false; }
    void wait_for_oldest(uint64_t timeout_us) override;
    [[nodiscard]] const char *name() const override { return name_.c_str(); }
    [[nodiscard]] int flush(base::remote_memory &, void *) override
    {
        return -EOPNOTSUPP;
    }
    [[nodiscard]] int ask_for_ports(base::remote_memory &of, uint64_t offset,
                                    uint32_t link) override;
    /** Never waits: the receiver may, for this end. */
    [[nodiscard]] int ports_answer(uint64_t timeout_us) override;
    [[nodiscard]] int ask_over_ports(base::remote_memory &of, uint32_t link,
                                     uint64_t target, uint64_t src,
                                     uint64_t length, void *cookie) override;
    unsigned poll(shim::dma_completion *completions, unsigned max) override;
    /** Gives up, for the receiver may never answer, and waits until nothing is
     *  written any more: it says so, or is silent for drain_time. */
    [[nodiscard]] int wait_all(uint64_t timeout_us) override;
    [[nodiscard]] unsigned outstanding() const override
    {
        return posted_ - taken_;
    }

private:
    using clock = std::chrono::steady_clock;

    void stop();
    [[nodiscard]] bool is_drained()
    {
        return gave_up_ &&
               (to_->hears_goodbye() || (clock::now() >= drained_at_));
    }
    [[nodiscard]] int ask(base::remote_memory &, bool, uint64_t, uint64_t,
                          uint64_t, void *) override
    {
        return -EOPNOTSUPP;
    }

    const std::shared_ptr<box_sender> to_;
    const std::string name_;
    mutable std::vector<char> letter_;
    uint64_t letter_at_ = 0;
    std::array<void *, box_link::slots> cookies_{};
    uint32_t posted_ = 0; /* requests since the beginning */
    uint32_t taken_  = 0;
    unsigned looks_  = 0;
    bool gave_up_    = false;
    clock::time_point drained_at_; /* at the latest, when it has */
};

} // namespace gaudi::ipc
