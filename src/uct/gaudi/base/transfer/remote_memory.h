/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a transfer engine copies from and to, of this process and of others.
 *
 * A remote key is a @ref remote_memory, a link a @ref remote_peer; the engine
 * knows neither keys nor how processes talk to each other.
 */
#pragma once

#include "uct/gaudi/base/cards/routes.h"
#include "uct/gaudi/base/memory/host_region.h"
#include "uct/gaudi/base/memory/memory_map.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace gaudi::base {

class owner_lane;
struct transfer_options;

/** Where a card is in its machine. */
struct card_place {
    pci_address address = pci_address::unknown;
    unsigned module     = 0; /**< module id */
};

/** A process that has remote memory, as one engine reaches it. */
class remote_peer {
public:
    virtual ~remote_peer() = default;

    /** Whether it has ended, or closed its end. A load. */
    [[nodiscard]] virtual bool is_over() const = 0;

    /** Make the lane of the copies that it makes.
     *  @return 0, or why it makes none for us: -errno. */
    [[nodiscard]] virtual int
    open_lane(const transfer_options &options,
              std::unique_ptr<owner_lane> &lane_p) = 0;

    /** That lane, as long as there is one. */
    owner_lane *in_use = nullptr;
};

/** Memory of another process, of the host or of a card. Called by several
 *  threads when several engines use it. No call may enter an engine. The object
 *  outlives every operation that holds it. */
class remote_memory {
public:
    virtual ~remote_memory() = default;

    /** Whether a range is part of it, and it is not known to have ended.
     *  @return UCS_OK, or an error, which was logged. */
    [[nodiscard]] virtual ucs_status_t check(uint64_t address,
                                             size_t length) = 0;

    /** An operation is about to start.
     *  @return UCS_OK, or why the memory cannot be used any more; then nothing
     *          is held. */
    [[nodiscard]] virtual ucs_status_t hold() = 0;

    /** It has moved its last byte, or failed. Exactly once for each successful
     *  @ref hold, before its completion is called. */
    virtual void release() = 0;

    /** The ways to it, best first. @param from  A card of ours; nullptr: this
     *  process has none. */
    [[nodiscard]] virtual const route_list &routes(const card *from) = 0;

    /** Which card has it; of device memory. */
    [[nodiscard]] virtual card_place place() const { return {}; }
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
    /** Memory of another process, which that process or ports copy.
     *  @param by  May be set later, before the copy is started. */
    side(remote_memory &of, uint64_t there, remote_peer *by = nullptr)
        : address(there), remote(&of), peer(by), is_device(true)
    {}

    /** Whether the CPU reaches it. */
    [[nodiscard]] bool is_plain() const { return !is_device; }
    [[nodiscard]] void *pointer() const
    {
        return reinterpret_cast<void *>(address);
    }

    uint64_t address;
    remote_memory *remote     = nullptr; /**< nullptr: of this process */
    remote_peer *peer         = nullptr; /**< which has it */
    host_region *registration = nullptr; /**< of host memory here, where it is
                                              known; it need not cover all */
    bool is_device;                      /**< the CPU does not reach it */
};

} // namespace gaudi::base
