/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memory of this process that others may use: registrations, and the table of
 * their keys. A key is valid as long as it is in the table, which is in private
 * memory; it is checked each time that a request names it.
 *
 * A key ends with its registration, or when device memory is freed before.
 * Ending it waits for the copies that this process makes by it, and has peers
 * whose ports reach the memory give it up.
 *
 * Threads: any. One lock for all registrations and keys.
 */
#pragma once

#include "uct/gaudi/base/memory/memory.h"
#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/key.h"

#include <cstdint>

namespace gaudi::ipc {

/** What a uct_mem_h of gaudi_ipc points to. */
class exported_memory {
public:
    /** Have freed device memory end its registrations. */
    static void end_registrations_on_free();

    /** Register memory. Nothing is pinned or mapped for it.
     *  @param quiet     UCP registers so what it sends, and stages what it
     *                   cannot register: log a failure as a diagnostic.
     *  @param memory_p  Filled on success; owned by the caller.
     *  @return UCS_ERR_INVALID_ADDR for device memory that no allocation
     *          covers. UCS_ERR_NO_RESOURCE without descriptors. */
    [[nodiscard]] static ucs_status_t create(void *address, size_t length,
                                             bool quiet,
                                             exported_memory *&memory_p);

    ~exported_memory();

    /** As far as can be seen. */
    [[nodiscard]] bool is_valid() const { return tag_ == valid_tag; }

    /** Write a key.
     *  @param buffer  sizeof(wire_key) bytes, of any alignment.
     *  @return UCS_ERR_INVALID_ADDR when the memory was freed. */
    [[nodiscard]] ucs_status_t pack(void *buffer);

    /** Whether the device memory was freed; nothing is left of it then. */
    [[nodiscard]] bool is_freed() const;

    /** End the key.
     *  @param invalidate  Wait for writes that peers' ports have under way.
     *  @return UCS_ERR_TIMED_OUT: a peer whose ports may write to the memory
     *          did not answer. */
    ucs_status_t end_key(bool invalidate);

    /** Start to use memory by a key.
     *  @return For @ref end_use; nullptr: the key is not valid, or not of all
     *          of the range. */
    [[nodiscard]] static exported_memory *
    begin_use(uint64_t word, uint64_t address, uint64_t length);
    void end_use();

    [[nodiscard]] static bool is_valid_key(uint64_t word);

    /** How many keys there are. */
    [[nodiscard]] static uint64_t count_keys();

private:
    exported_memory() = default;

    static constexpr uint64_t valid_tag = 0x6370696475616721;

    static void end_registrations(base::device_memory &freed);
    [[nodiscard]] bool remove_key(); /* under the lock */

    uint64_t tag_ = valid_tag;
    base::held_cards cards_;                /* of device memory, freed or not */
    base::device_memory *device_ = nullptr; /* nullptr: host, or freed */
    wire_key key_                = {};      /* word 0: none was packed */
    bool has_key_                = false;   /* it is in the table */
    bool freed_                  = false;   /* before the registration ended */
    bool ending_                 = false;   /* the key, and somebody waits */
    unsigned uses_               = 0;       /* of the key */
};

} // namespace gaudi::ipc
