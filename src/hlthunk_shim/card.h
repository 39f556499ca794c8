/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * An open card, whatever drives it: the driver as all above sees it.
 *
 * Has the descriptor of the compute device file, its own or the application's.
 * Thread-safe. Allocations, registrations and queues refer to their card and
 * must go first.
 */
#pragma once

#include "hlthunk_shim/dma_queue.h"
#include "util/addresses.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace gaudi::shim {

/** What the two device addresses of a copy stand for. Host memory is what is
 *  registered with the card or imported: the engines that copy within the card
 *  do not reach either. */
enum class dma_direction { host_to_device, device_to_host, device_to_device };

inline constexpr size_t dma_directions = 3;

/** 256 TiB of addresses that no generation of cards uses, for device memory of
 *  others which no card of the process reaches. */
inline constexpr uint64_t unreachable_memory = 0x4001000000000000;

/** What a x16 slot leaves for data each way, bytes/second. */
inline constexpr double gen4_bandwidth = 25000.0 * (1 << 20);
inline constexpr double gen5_bandwidth = 50000.0 * (1 << 20);

/**
 * Whether an address can be one of device memory: of a Gaudi2 or Gaudi3
 * (DRAM_PHYS_BASE in specs/gaudi2/gaudi2.h and specs_h9/gaudi3/gaudi3.h of
 * HabanaAI/Intel_Gaudi3_Software, and the end of the range of virtual
 * addresses that begins there), of a dma-buf imported among a card's addresses
 * of host memory, which have bit 63, or one of @ref unreachable_memory. All
 * others are host memory: programs keep tags in bits 57 to 62 of pointers, as
 * the linear address masking of x86-64 lets them.
 */
[[nodiscard]] constexpr bool may_be_device_memory(uint64_t address)
{
    const uint64_t part = address >> 48;
    return (part == 0x1001) || (part == 0x0201) ||
           (part == unreachable_memory >> 48) || ((address >> 63) != 0);
}

/** What is known of an open card beyond its name: all that differs between
 *  generations and matters above. */
struct capabilities {
    /** Device addresses that its memory may have: [start, end). Below
     *  util::host_address_end they are host pointers of other processes, too.
     */
    uint64_t memory_start = 0;
    uint64_t memory_end   = 0;
    uint64_t memory_bytes = 0; /**< what programs can have of it */

    /** The driver gives out whole pages, bytes; 0: it does not say. */
    uint64_t page_bytes = 0;
    /** Part of a device address in which pages are counted. */
    uint64_t page_mask = UINT64_MAX;

    /** Address space for the allocations of one card of a process, so that
     *  cards can be told apart, bytes; 0: addresses cannot be wished for. */
    uint64_t window_bytes = 0;

    /** By direction: streams to which programs may submit; 0: the card takes
     *  no copies in it. Copies of one stream do not wait for those of another,
     *  but share the engine. */
    std::array<unsigned, dma_directions> streams{};
    /** Copies that the card takes at a time, over all queues. */
    unsigned copies_in_flight = 64;

    /** A dma-buf may be of a part of what the driver has mapped. Else it is
     *  right of the whole alone. */
    bool exports_parts = true;

    /** The driver says where host memory is mapped for the card, so that its
     *  ports, too, can read it. */
    bool ports_read_host = true;

    double link_bandwidth = gen4_bandwidth; /**< each way, bytes/second */

    /** The first address from this one on where a page can start. */
    [[nodiscard]] uint64_t next_page(uint64_t address) const
    {
        const uint64_t counted = address & page_mask;
        return (address - counted) + util::round_up(counted, page_bytes);
    }
};

class allocation;
class registration;

/** Device memory in one piece. */
struct memory_block {
    uint64_t start; /**< device address */
    uint64_t size;  /**< bytes */
};

class card {
public:
    virtual ~card()               = default;
    card(const card &)            = delete;
    card &operator=(const card &) = delete;

    [[nodiscard]] int fd() const { return fd_; }
    [[nodiscard]] const std::string &bus_id() const { return bus_id_; }
    [[nodiscard]] unsigned module_id() const { return module_id_; }
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
    [[nodiscard]] virtual bool is_of(int kind) const = 0;

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

    /* --- memory ------------------------------------------------------------*/

    /**
     * Get device memory, mapped.
     *
     * @param size    Bytes; the driver rounds up to its page.
     * @param wished  Device address; 0 for any. The driver may choose another.
     * @param allocation_p  Filled on success only.
     * @return 0 or -errno, -ENOMEM when the card has not that much left.
     */
    [[nodiscard]] virtual int allocate(uint64_t size, uint64_t wished,
                                       allocation &allocation_p) const = 0;

    /**
     * Pin host memory for the card's DMA engines.
     *
     * @param host  Any alignment.
     * @param registration_p  Filled on success only.
     * @return 0 or -errno: -EFAULT when a page is missing or read-only, or
     *         -ENOMEM when others before it could be pinned; -EOPNOTSUPP where
     *         memory of the application is not pinned, but staged.
     */
    [[nodiscard]] virtual int
    register_host(void *host, uint64_t size,
                  registration &registration_p) const = 0;

    /** The same of memory that is the transports' own. */
    [[nodiscard]] virtual int
    register_staging(void *host, uint64_t size,
                     registration &registration_p) const
    {
        return register_host(host, size, registration_p);
    }

    /** Why the card's ports are not to be opened; nullptr: they may be. */
    [[nodiscard]] virtual const char *why_no_ports() const { return nullptr; }

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
    [[nodiscard]] virtual int
    import_dmabuf(int dmabuf, uint64_t size,
                  registration &registration_p) const = 0;

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
    [[nodiscard]] virtual int export_dmabuf(uint64_t address, uint64_t offset,
                                            uint64_t size, int &fd_p) const = 0;

    /** @return Bytes of a dma-buf, 0 for any other file descriptor that tells
     *          no size, -EBADF for a closed one. */
    [[nodiscard]] virtual int64_t dmabuf_size(int dmabuf) const = 0;

    /** Give back what @ref allocate, @ref register_host or @ref import_dmabuf
     *  mapped, also what an application did through this descriptor.
     *  @return 0 or -errno; -EINVAL while a dma-buf of it is alive. */
    [[nodiscard]] virtual int unmap(uint64_t address) const = 0;

    /** Give back device memory that is not mapped any more.
     *  @param handle  The driver's name of it.
     *  @return 0 or -errno. */
    [[nodiscard]] virtual int free_memory(uint64_t handle) const = 0;

    /** Device memory that was allocated through the descriptor by anybody,
     *  bytes; none: the driver does not tell. */
    [[nodiscard]] virtual std::optional<uint64_t> allocated_bytes() const = 0;

    /** What the application has on the card as one block, and gives out in
     *  parts that nobody sees, @ref allocate's among them. It can be exported
     *  by addresses of its own. None: what it has is not known so. */
    [[nodiscard]] virtual std::optional<memory_block> application_block() const
    {
        return std::nullopt;
    }

    /* --- work --------------------------------------------------------------*/

    /**
     * Create a queue for one direction.
     *
     * @return 0 or -errno; -ENOTSUP for a card that has none, -EINVAL for
     *         options that are none.
     */
    [[nodiscard]] virtual int
    make_queue(dma_direction direction, const dma_queue_options &options,
               std::unique_ptr<dma_queue> &queue_p) = 0;

    /**
     * Look at work, waiting up to a time.
     *
     * Any thread may ask about any work of the card, several at a time about
     * one ticket too, while others submit, query and collect. How it failed is
     * kept until it is collected from its queue; afterwards it may read as
     * done.
     *
     * @param timeout_us  0 only polls.
     * @return 1 done, 0 still running, or -errno as the work ended: -EIO
     * aborted, -ETIMEDOUT lost, -ENODEV the card is in reset or gone.
     */
    [[nodiscard]] virtual int query(ticket of, uint32_t timeout_us) = 0;

    /**
     * Work that keeps new work from being submitted.
     *
     * Whoever got -EAGAIN from a queue can sleep on it with @ref query, on any
     * thread, and try again when that says anything but 0. It may be of any
     * queue of the card, and be collected there meanwhile.
     *
     * @return ticket::none when a submission would go through now.
     */
    [[nodiscard]] virtual ticket blocking_ticket() = 0;

protected:
    card(int fd, std::string bus_id) : fd_(fd), bus_id_(std::move(bus_id)) {}

    const int fd_;
    const std::string bus_id_;
    unsigned module_id_ = 0;
    shim::capabilities capabilities_;

private:
    enum class state { open, closing, lost };

    mutable std::atomic<state> state_{state::open};
    mutable std::atomic<bool> refusal_told_{false};
    std::optional<unsigned> numa_node_;
};

/** What a range in a dma-buf is a multiple of, and starts at, bytes: the pages
 *  of the host, whatever the pages of the card are (validate_export_params in
 *  drivers/accel/habanalabs). */
[[nodiscard]] uint64_t dmabuf_page();

/** The kinds of cards that the transports can use, as "Gaudi2". */
[[nodiscard]] std::string supported_kinds();

} // namespace gaudi::shim
