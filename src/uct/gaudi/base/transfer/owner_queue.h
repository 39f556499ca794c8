/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Copies that another process makes for this one with its own cards, between
 * its device memory and chunks of host memory that both processes have, or from
 * there over the cards' ports.
 *
 * To an engine it is a queue like others. Of the two addresses of a copy one is
 * the other process's, the other one an offset in the chunks, or what a card of
 * ours has over ports. How the other process hears of them: ipc/serving.
 */
#pragma once

#include "hlthunk_shim/dma_queue.h"
#include "uct/gaudi/base/transfer/remote_memory.h"

#include <cerrno>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

namespace gaudi::base {

class owner_queue : public shim::dma_queue {
public:
    /** Memory of both, as long as the chunks that were wished. */
    [[nodiscard]] virtual std::span<char> memory() const = 0;

    /** Whether the other process has ended, or does this no more: copies that
     *  are outstanding fail, and none is added. */
    [[nodiscard]] virtual bool is_over() = 0;

    /** The same without a look at the clock, for who has asked for the other
     *  process itself. */
    [[nodiscard]] virtual bool is_closed() { return is_over(); }

    /** Have the event signalled when a copy ends. @return false: one has. */
    [[nodiscard]] virtual bool arm() = 0;

    /** Sleep until the oldest copy ends. */
    virtual void wait_for_oldest(uint64_t timeout_us) = 0;

    [[nodiscard]] virtual const char *name() const = 0;

    /** Ask for a connection of ports. One at a time, and nobody collects it.
     *  @param of      Memory of the card that is to have the other end.
     *  @param offset  Of the chunk with the shim::port_offer of this end,
     *                 and afterwards with that of the other one.
     *  @param link    Names it in @ref ask_over_ports.
     *  @return As dma_queue::submit. */
    [[nodiscard]] virtual int ask_for_ports(remote_memory &, uint64_t, uint32_t)
    {
        return -EOPNOTSUPP;
    }

    /** What has become of it.
     *  @param timeout_us  For so long it may be waited for.
     *  @return 0, -errno, -EINPROGRESS when there is no answer, or -ETIMEDOUT
     *          when that was waited for. */
    [[nodiscard]] virtual int ports_answer(uint64_t) { return -EOPNOTSUPP; }

    /** The answer that another process has written: -EIO if it makes none. */
    [[nodiscard]] static int to_answer(int64_t written)
    {
        const bool makes_sense = (written <= 0) && (written >= INT32_MIN) &&
                                 (written != -EINPROGRESS) &&
                                 (written != -ETIMEDOUT) &&
                                 (written != -EAGAIN);
        return makes_sense ? static_cast<int>(written) : -EIO;
    }

    /** Ask for a write over ports.
     *  @param target  Where a card of ours has the memory to be written.
     *  @return As dma_queue::submit. */
    [[nodiscard]] virtual int ask_over_ports(remote_memory &, uint32_t,
                                             uint64_t, uint64_t, uint64_t,
                                             void *)
    {
        return -EOPNOTSUPP;
    }

    /** There is none: who sleeps does so in
     *  @ref wait_for_oldest. */
    [[nodiscard]] shim::ticket oldest_ticket() const final
    {
        return shim::ticket::none;
    }

    /** It is not enough to say: see @ref ask, which names no copies to wait
     *  for. */
    [[nodiscard]] int submit(uint64_t, uint64_t, uint64_t, void *,
                             uint64_t &) final
    {
        return -EOPNOTSUPP;
    }
    [[nodiscard]] int wait(uint64_t, uint64_t) final { return -EOPNOTSUPP; }

    /** Ask for a copy.
     *  @param of      What either address is in, at its process.
     *  @param dst,src The other one is an offset in the chunks: no device
     *                 address is so low.
     *  @return As dma_queue::submit. */
    [[nodiscard]] int ask(remote_memory &of, uint64_t dst, uint64_t src,
                          uint64_t length, void *cookie)
    {
        const bool is_put = src < memory().size();
        return ask(of, is_put, is_put ? dst : src, is_put ? src : dst, length,
                   cookie);
    }

    /** Have a function called before copies are given up that the other process
     *  might still make over ports: it sees to it that none is. */
    void before_giving_up(std::function<void()> function)
    {
        give_up_ = std::move(function);
    }

protected:
    void give_up() const
    {
        if (give_up_) {
            give_up_();
        }
    }
    [[nodiscard]] virtual int ask(remote_memory &of, bool is_put,
                                  uint64_t address, uint64_t offset,
                                  uint64_t length, void *cookie) = 0;

private:
    std::function<void()> give_up_;
};

} // namespace gaudi::base
