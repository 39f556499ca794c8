/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Copies that another process makes for this one, between its memory and chunks
 * of host memory that both have, or from its device memory over the cards'
 * ports.
 *
 * Of the two addresses of a copy one
 * is the other process's, the other one an offset in the chunks, or what a card
 * of ours has over ports. Implemented by ipc/request_queue.h.
 */
#pragma once

#include "hlthunk_shim/dma_queue.h"
#include "hlthunk_shim/ports/connection.h"
#include "uct/gaudi/base/transfer/remote_memory.h"

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

namespace gaudi::base {

class owner_queue {
public:
    virtual ~owner_queue()                      = default;
    owner_queue(const owner_queue &)            = delete;
    owner_queue &operator=(const owner_queue &) = delete;

    /** Copies that can be outstanding. */
    static constexpr unsigned max_copies = 64;

    /** The chunks, one after the other. */
    [[nodiscard]] virtual std::span<char> memory() const = 0;

    /** Whether the other process has ended, or copies no more: what is
     *  outstanding fails, and nothing is added. */
    [[nodiscard]] virtual bool is_over() const = 0;

    /** Have the event of the link signalled when a copy ends. @return false:
     *  one has. */
    [[nodiscard]] virtual bool arm() = 0;

    /** Sleep until the oldest copy ends, or a little less. */
    virtual void wait_for_oldest(uint64_t timeout_us) = 0;

    [[nodiscard]] virtual const char *name() const = 0;

    /** As of dma_queue. */
    virtual unsigned poll(shim::dma_completion *ended, unsigned max) = 0;
    [[nodiscard]] virtual int wait_all(uint64_t timeout_us)          = 0;
    [[nodiscard]] virtual unsigned outstanding() const               = 0;

    /** Ask for a copy. @return As dma_queue::submit. */
    [[nodiscard]] virtual int ask(remote_memory &of, bool is_put,
                                  uint64_t address, uint64_t offset,
                                  uint64_t length, void *cookie) = 0;

    /** Whether the owner lets this process use memory: asks it once, before
     *  ports are used, by which it would not be asked.
     *  @param again  Ask, although it has answered.
     *  @return 0, -errno, or -EINPROGRESS before it answers. */
    [[nodiscard]] virtual int confirm(remote_memory &of, bool again) = 0;

    /** Ask for a connection of ports. @return 0 or -errno; -EAGAIN: later.
     *  @param number  Names it in @ref ask_over_ports.
     *  @param card    pci_address of the peer's card. */
    [[nodiscard]] virtual int ask_for_ports(uint32_t number, uint32_t card,
                                            const shim::port_offer &offer) = 0;

    /** Take the answer. @return 0, -errno, or -EINPROGRESS before it comes. */
    [[nodiscard]] virtual int ports_answer(uint32_t number,
                                           shim::port_offer &offer_p) = 0;

    /** Ports to its cards were closed with writes under way: some may still
     *  arrive. */
    virtual void note_unquiet_ports() = 0;

    /** Ask for a write over ports.
     *  @param target  Where a card of ours has the memory to be written.
     *  @return As dma_queue::submit. */
    [[nodiscard]] virtual int ask_over_ports(remote_memory &of, uint32_t number,
                                             uint64_t target, uint64_t source,
                                             uint64_t length, void *cookie) = 0;

    /** Have a function called before copies are given up that the other process
     *  might still make over ports: it sees to it that none is. */
    void before_giving_up(std::function<void()> function)
    {
        give_up_ = std::move(function);
    }

protected:
    owner_queue() = default;
    void give_up() const
    {
        if (give_up_) {
            give_up_();
        }
    }

private:
    std::function<void()> give_up_;
};

} // namespace gaudi::base
