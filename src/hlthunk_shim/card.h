/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * An open card: the driver as all above sees it.
 *
 * Has the descriptor of the compute device file, its own or the application's,
 * through which libhl-thunk is asked, and an engine, to which it leaves memory
 * and copies. Thread-safe. Allocations, registrations and queues refer to their
 * card and must go first.
 */
#pragma once

#include "hlthunk_shim/capabilities.h"
#include "hlthunk_shim/dma_queue.h"
#include "util/fork_handlers.h"

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>

namespace gaudi::shim {

struct card_kind;
class library;

class card final {
public:
    /** Open one. It is of no use until it has an engine.
     *  @return As driver::open. */
    [[nodiscard]] static int open(const library &lib, const std::string &bus_id,
                                  std::unique_ptr<card> &card_p);

    /** Use one that somebody has open, without closing it. */
    [[nodiscard]] static int adopt(const library &lib, int fd,
                                   std::unique_ptr<card> &card_p);
    void set_engine(std::unique_ptr<dma_engine> engine)
    {
        engine_ = std::move(engine);
    }
    void set_capabilities(const shim::capabilities &known)
    {
        capabilities_ = known;
    }

    ~card();
    card(const card &)            = delete;
    card &operator=(const card &) = delete;

    [[nodiscard]] const library &lib() const { return lib_; }
    [[nodiscard]] int fd() const { return fd_; }
    [[nodiscard]] const std::string &bus_id() const { return bus_id_; }
    [[nodiscard]] unsigned module_id() const { return module_id_; }
    [[nodiscard]] const card_kind &kind() const { return *kind_; }
    [[nodiscard]] const queue_range &queues(dma_direction direction) const
    {
        return queues_[static_cast<size_t>(direction)];
    }
    [[nodiscard]] const shim::capabilities &capabilities() const
    {
        return capabilities_;
    }

    /** The NUMA node that the card sits on; what is pinned for the card is
     *  placed there. Unknown unless it was set, right after opening. */
    [[nodiscard]] std::optional<unsigned> numa_node() const
    {
        return numa_node_;
    }
    void set_numa_node(std::optional<unsigned> node) { numa_node_ = node; }

    /** Whether an application that asks for a card of this kind can be given
     *  this one.
     *  @param kind  hl-thunk's hlthunk_device_name. */
    [[nodiscard]] bool is_of(int kind) const;

    /* --- its end -----------------------------------------------------------*/

    /**
     * The application is about to close the descriptor: nothing new is
     * submitted, and nothing given back, since all goes with it. Work in flight
     * can be asked about until @ref lose.
     */
    void expect_loss() const
    {
        state open = state::open;
        state_.compare_exchange_strong(open, state::closing);
    }

    /** The descriptor is closed, or the card was reset or removed. The driver
     *  is not called with it any more, and all work has ended with -ENODEV.
     *  Found out from the driver's answers, too.
     *  @return false when it was known, or expected. */
    bool lose() const { return state_.exchange(state::lost) == state::open; }

    /** Whether one of the above was said: the card does nothing any more. */
    [[nodiscard]] bool is_lost() const
    {
        return state_.load(std::memory_order_relaxed) != state::open;
    }

    /** Whether @ref lose was called: the driver cannot be asked any more. */
    [[nodiscard]] bool is_closed() const
    {
        return state_.load(std::memory_order_relaxed) == state::lost;
    }

    /** Whether it is to be told that the card does not unmap what is pinned:
     *  once, as that happens to all of it. */
    [[nodiscard]] bool is_refusal_news() const
    {
        return !refusal_told_.exchange(true);
    }

    /**
     * Look at what a call on the card said. If that means that the card was
     * reset or removed, or that the descriptor is not the card's any more, the
     * card is lost, and a warning says what to do; not about the descriptor,
     * which the application has closed.
     *
     * @param result  0 or -errno.
     * @return The same; -ENODEV for what says no more than that the card is
     *         lost.
     */
    [[nodiscard]] int judge(int result) const
    {
        return (result >= 0) ? result : judge_failure(result);
    }

    /** It is lost in a way that nobody here has had a part in: say so, once,
     *  and what to do.
     *  @param how  As in "reset". */
    void tell_loss(const char *how) const;

    /* --- memory ------------------------------------------------------------*/

    /**
     * Get device memory, mapped.
     *
     * @param size    Bytes; the driver rounds up to its page.
     * @param wished  Device address; 0 for any. The driver may choose another.
     * @param allocation_p  Filled on success only.
     * @return 0 or -errno, -ENOMEM when the card has not that much left.
     */
    [[nodiscard]] int allocate(uint64_t size, uint64_t wished,
                               allocation &allocation_p) const;

    /**
     * Pin host memory for the card's DMA engines.
     *
     * @param host  Any alignment.
     * @param registration_p  Filled on success only.
     * @return 0 or -errno: -EFAULT when a page is missing or read-only, or
     *         -ENOMEM when others before it could be pinned; -EOPNOTSUPP where
     *         memory of the application is not pinned, but staged.
     */
    [[nodiscard]] int register_host(void *host, uint64_t size,
                                    registration &registration_p) const;

    /** The same of memory that is the transports' own. */
    [[nodiscard]] int register_staging(void *host, uint64_t size,
                                       registration &registration_p) const;

    /** Why the card's ports are not to be opened; nullptr: they may be. */
    [[nodiscard]] const char *why_no_ports() const
    {
        return engine_->why_no_ports();
    }

    /**
     * Let this card reach the memory behind a dma-buf of another card or
     * process.
     *
     * It keeps the dma-buf alive; the descriptor may be closed. Writes there
     * are posted: a copy ends before the other card has the bytes.
     *
     * @param dmabuf  Stays the caller's.
     * @param size    All of the dma-buf, see @ref dmabuf_size.
     * @param registration_p  Filled on success only.
     * @return 0; -EOPNOTSUPP by a driver that cannot import, or was built
     *         without peer-to-peer; -EPERM where only this import is refused;
     *         -EBADF for a closed descriptor; -EINVAL for what is no dma-buf,
     *         or not of this size; else -errno.
     */
    [[nodiscard]] int import_dmabuf(int dmabuf, uint64_t size,
                                    registration &registration_p) const;

    /**
     * Export pages of device memory as a dma-buf.
     *
     * While it is alive, in any process, the memory cannot be given back and
     * the card stays open.
     *
     * @param address  As the allocation has it; the physical one on Gaudi1.
     * @param offset   Of the first exported byte behind it.
     * @param size     Bytes; as the other two a multiple of dmabuf_page().
     * @param fd_p     A new descriptor, close-on-exec, owned by the caller;
     *                 filled on success only.
     * @return 0; -EOPNOTSUPP by a driver that cannot export; -EINVAL for what
     *         is no range of pages in an allocation; else -errno.
     */
    [[nodiscard]] int export_dmabuf(uint64_t address, uint64_t offset,
                                    uint64_t size, int &fd_p) const;

    /** @return Bytes of a dma-buf, 0 for any other file descriptor that tells
     *          no size, -EBADF for a closed one. */
    [[nodiscard]] int64_t dmabuf_size(int dmabuf) const;

    /** Give back what @ref allocate, @ref register_host or @ref import_dmabuf
     *  mapped, also what an application did through this descriptor.
     *  @return 0 or -errno; -EINVAL while a dma-buf of it is alive. */
    [[nodiscard]] int unmap(uint64_t address) const
    {
        return engine_->unmap(address);
    }

    /** Give back device memory that is not mapped any more.
     *  @param handle  The driver's name of it.
     *  @return 0 or -errno. */
    [[nodiscard]] int free_memory(uint64_t handle) const
    {
        return engine_->free_memory(handle);
    }

    /** Device memory that was allocated through the descriptor by anybody,
     *  bytes; none: the driver does not tell. */
    [[nodiscard]] std::optional<uint64_t> allocated_bytes() const;

    /** What the application has on the card as one block, and gives out in
     *  parts that nobody sees, @ref allocate's among them. It can be exported
     *  by addresses of its own. None: what it has is not known so. */
    [[nodiscard]] std::optional<memory_block> application_block() const
    {
        return engine_->application_block();
    }

    /* --- work --------------------------------------------------------------*/

    /**
     * Create a queue for one direction.
     *
     * @return 0 or -errno; -ENOTSUP for a card that has none, -EINVAL for
     *         options that are none.
     */
    [[nodiscard]] int make_queue(dma_direction direction,
                                 const dma_queue_options &options,
                                 std::unique_ptr<dma_queue> &queue_p)
    {
        return dma_queue::create(*engine_, direction, options, queue_p);
    }

    /**
     * Look at work, waiting up to a time.
     *
     * Any thread may ask about any work of the card, several at a time about
     * one ticket too, while others submit, query and collect. Work that has
     * been collected may read as done, however it ended.
     *
     * @param timeout_us  0 only polls.
     * @return 1 done, 0 still running, or -errno as the work ended: -EIO
     * aborted, -ETIMEDOUT lost, -ENODEV the card is in reset or gone.
     */
    [[nodiscard]] int query(ticket of, uint32_t timeout_us)
    {
        return engine_->query(of, timeout_us);
    }

    /**
     * Work that keeps new work from being submitted.
     *
     * Whoever got -EAGAIN from a queue can sleep on it with @ref query, on any
     * thread, and try again when that says anything but 0. It may be of any
     * queue of the card, and be collected there meanwhile.
     *
     * @return ticket::none when a submission would go through now.
     */
    [[nodiscard]] ticket blocking_ticket()
    {
        return engine_->blocking_ticket();
    }

private:
    enum class state { open, closing, lost };

    card(const library &lib, int fd, std::string bus_id, bool owned);

    [[nodiscard]] int find_out();
    [[nodiscard]] int judge_failure(int result) const;
    [[nodiscard]] bool can_export_parts() const;
    [[nodiscard]] bool refuses_own_export() const;

    const library &lib_;
    const int fd_;
    const std::string bus_id_;
    const bool owned_;
    const card_kind *kind_ = nullptr;
    unsigned module_id_    = 0;
    shim::capabilities capabilities_;
    std::array<queue_range, dma_directions> queues_{};
    util::closed_in_children closed_in_children_; /* unless adopted */
    std::unique_ptr<dma_engine> engine_;

    mutable std::atomic<state> state_{state::open};
    mutable std::atomic<bool> refusal_told_{false};
    std::optional<unsigned> numa_node_;
};

/** What a range in a dma-buf is a multiple of, and starts at, bytes: the pages
 *  of the host, whatever the pages of the card are (validate_export_params in
 *  drivers/accel/habanalabs). */
[[nodiscard]] uint64_t dmabuf_page();

} // namespace gaudi::shim
