/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a transfer engine copies from and to, of this process and of others.
 *
 * What a remote key stands for implements @ref remote_memory; the engine knows
 * neither keys nor how memory of another process got here.
 */
#pragma once

#include "uct/gaudi/base/cards/routes.h"
#include "uct/gaudi/base/memory/host_region.h"
#include "uct/gaudi/base/memory/memory_map.h"
#include "util/other_process.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace gaudi::base {

class owner_queue;

/** What an engine wants of an @ref owner_queue. */
struct owner_queue_options {
    size_t chunk_bytes; /**< of the memory that both have */
    unsigned chunks;    /**< and copies at a time */
    int wake_fd;        /**< of an event; for @ref owner_queue::arm */
};

/** Where a card is in its machine. */
struct card_place {
    pci_address address = pci_address::unknown;
    unsigned module     = 0; /**< module id */
};

/** Memory of another process, of the host or of a card. Called by several
 *  threads when several engines use it. No call may enter an engine. The object
 *  outlives every operation that holds it. */
class remote_memory {
public:
    virtual ~remote_memory() = default;

    /** Whether a range is part of it, and it can still be used.
     *  @return UCS_OK, or an error, which was logged. */
    [[nodiscard]] virtual ucs_status_t check(uint64_t address,
                                             size_t length) = 0;

    /** The same, if its process still is there: a few loads.
     *  @return false: ask @ref check. */
    [[nodiscard]] virtual bool has(uint64_t, size_t) const { return false; }

    /** An operation is about to start: until @ref release, what host() gave
     *  stays valid. Others that start meanwhile need no hold of their own.
     *  @return UCS_OK, or why the memory cannot be used any more; then nothing
     *          is held. */
    [[nodiscard]] virtual ucs_status_t hold() = 0;

    /** They have moved their last byte, or failed. Exactly once for each
     *  successful @ref hold, before the last one's completion is called. */
    virtual void release() = 0;

    /** Of which process it is host memory; nullptr for device memory. */
    [[nodiscard]] virtual const util::process_memory *host() = 0;

    /** Device memory: the ways to it, best first. @param from  A card of ours;
     *  nullptr: this process has none. */
    [[nodiscard]] virtual const route_list &routes(const card * /* from */)
    {
        static constexpr route_list by_owner(shim::wire::host);
        return by_owner;
    }

    /** Tells its process from others. */
    [[nodiscard]] virtual uint64_t owner() const { return 0; }

    /** Which card has it. */
    [[nodiscard]] virtual card_place place() const { return {}; }

    /** Have its process copy. Asks that, and waits for an answer.
     *  @return 0 or -errno; what failed was said at debug level. */
    [[nodiscard]] virtual int connect(const owner_queue_options &,
                                      std::unique_ptr<owner_queue> &)
    {
        return -EOPNOTSUPP;
    }
};

/** One side of a copy: an address, and what is there. That is found out here,
 *  once. */
struct side {
    /** Memory of this process. */
    explicit side(uint64_t here)
        : address(here), is_device(memory_map::is_device(here))
    {}
    /* A pointer is a side. NOLINTNEXTLINE(google-explicit-constructor) */
    side(const void *here) : side(reinterpret_cast<uintptr_t>(here)) {}
    /** Memory of another process. */
    side(remote_memory &of, uint64_t there)
        : address(there), remote(&of), is_device(of.host() == nullptr)
    {}

    /** Whether the CPU reaches it. */
    [[nodiscard]] bool is_plain() const
    {
        return !is_device && (remote == nullptr);
    }
    [[nodiscard]] void *pointer() const
    {
        return reinterpret_cast<void *>(address);
    }

    uint64_t address;
    remote_memory *remote     = nullptr; /**< nullptr: of this process */
    host_region *registration = nullptr; /**< of host memory here, where it is
                                              known; it need not cover all */
    bool is_device;                      /**< a card has to move the bytes */
};

/** From or to host memory, by the CPU or the kernel.
 *  @param process  Whose it is; nullptr: this process's.
 *  @return UCS_OK, or an error, which was logged. */
[[nodiscard]] ucs_status_t read_host(const util::process_memory *process,
                                     uint64_t from, void *to, size_t length);
[[nodiscard]] ucs_status_t write_host(const util::process_memory *process,
                                      uint64_t to, const void *from,
                                      size_t length);

} // namespace gaudi::base
