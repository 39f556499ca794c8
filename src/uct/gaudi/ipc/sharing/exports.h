/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What this process shows others of its memory: registrations with keys, and
 * the dma-bufs behind keys of device memory.
 *
 * What the driver mapped in one piece is a buffer: others can get dma-bufs of
 * its parts from the first key into it on, or once UCP registers memory of a
 * message, until the driver is to unmap it. None is kept here.
 *
 * A key ends with its registration, or when the memory is freed before: UCP's
 * cache deregisters some time later. Who waits for its users: invalidation.h.
 *
 * Threads: any. One lock for all registrations; the first pack into a buffer
 * holds it across the driver call.
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
     *                   cannot register: export it now, and log a failure as a
     *                   diagnostic.
     *  @param memory_p  Filled on success; owned by the caller.
     *  @return UCS_ERR_INVALID_ADDR for device memory that no allocation
     *          covers. UCS_ERR_NO_RESOURCE without a shared page, which UCP
     *          bears here, but not from @ref pack; if quiet, without export. */
    [[nodiscard]] static ucs_status_t create(void *address, size_t length,
                                             bool quiet,
                                             exported_memory *&memory_p);

    ~exported_memory();

    /** As far as can be seen. */
    [[nodiscard]] bool is_valid() const { return tag_ == valid_tag; }

    /** Write a key. Device memory that cannot be exported gets one, too, with
     *  which others do not reach it; a failed export is logged, and tried again
     *  at the next packing.
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
    int describe_buffer(const own_page &page);
    void name_mapping_card();

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

/** Numbers for UCX's VFS. */
struct export_statistics {
    uint64_t keys;    /**< and buffers that others can open now */
    uint64_t buffers; /**< of these */
    uint64_t exports; /**< dma-bufs made so far */
};

export_statistics statistics_of_exports();

} // namespace gaudi::ipc
