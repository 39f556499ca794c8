/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What this process lets others use of its memory: registrations with keys.
 *
 * A key ends with its registration, or when the memory is freed before: UCP's
 * cache deregisters some time later. Who waits for its users: invalidation.h.
 *
 * Threads: any. One lock for all registrations.
 */
#pragma once

#include "uct/gaudi/base/memory/memory.h"
#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/process/shared_page.h"
#include "uct/gaudi/ipc/sharing/key.h"
#include "util/process.h"

#include <cstdint>

namespace gaudi::ipc {

/** What a uct_mem_h of gaudi_ipc points to. */
class exported_memory {
public:
    /** Let registrations not keep device memory that is freed. At load, or
     *  later. */
    static void let_go_of_freed_memory();

    /** Register memory. Nothing is pinned or mapped for it.
     *  @param quiet     UCP registers so what it sends, and stages what it
     *                   cannot register: log a failure as a diagnostic.
     *  @param memory_p  Filled on success; owned by the caller.
     *  @return UCS_ERR_INVALID_ADDR for device memory that no allocation
     *          covers. UCS_ERR_NO_RESOURCE without a shared page, which UCP
     *          bears here, but not from @ref pack. */
    [[nodiscard]] static ucs_status_t create(void *address, size_t length,
                                             bool quiet,
                                             exported_memory *&memory_p);

    ~exported_memory();

    /** As far as can be seen. */
    [[nodiscard]] bool is_valid() const { return tag_ == valid_tag; }

    /** Write a key.
     *  @param buffer  sizeof(wire_key) bytes, of any alignment.
     *  @return UCS_ERR_NO_RESOURCE when there are more keys than cells,
     *          UCS_ERR_INVALID_ADDR when the memory was freed. */
    [[nodiscard]] ucs_status_t pack(void *buffer);

    /** Whether the device memory was freed; nothing is left of it then. */
    [[nodiscard]] bool is_freed() const;

    /** Keys of it are good for nothing from now on, if they were not before.
     *  @return The stamp that they had, 0 without a key. */
    uint64_t end_key();

private:
    exported_memory() = default;

    static constexpr uint64_t valid_tag = 0x6370696475616721;

    static void let_go_of(base::device_memory &freed);
    uint64_t end_key_locked();

    uint64_t tag_ = valid_tag;
    base::held_cards cards_;                /* of device memory, freed or not */
    base::device_memory *device_ = nullptr; /* registered; nullptr: host, or
                                               it was freed */
    uint64_t address_ = 0;
    uint64_t length_  = 0;
    own_page::mark mark_; /* once a key was packed */
    wire_key key_   = {};
    bool freed_     = false; /* the memory, before the registration ended */
    uint64_t ended_ = 0;     /* stamp of the key that has */
};

/** Keys that there are now. */
uint64_t count_keys();

} // namespace gaudi::ipc
