/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The device virtual addresses of one card: which are free, and which byte of
 * device or host memory each of the others is.
 *
 * Not thread-safe: its card's lock protects it.
 */
#pragma once

#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/exported_buffer.h"
#include "hlthunk_emulator/hbm.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>

namespace gaudi::emu {

/** Hands out ranges of an address space. */
class va_space {
public:
    /**
     * @param range        The space; its start is a multiple of the granule.
     * @param granule      Every range is a multiple of this.
     * @param offset_mask  Part of an address that counts granules.
     * @param hints        Part that is given to hints only.
     */
    va_space(const va_range &range, uint64_t granule, uint64_t offset_mask,
             const va_range &hints = {});

    /**
     * Take a range.
     *
     * As the driver, from the smallest free range that is large enough.
     *
     * @param hint   Wished address, 0 for none; one that is misaligned, outside
     *               or taken, or whose range would reach the end of a free one,
     *               is silently ignored, as the driver does.
     * @param align  The address is a multiple of it: 0, or a power of two.
     * @return Its address, 0 when no range is large enough.
     */
    uint64_t take(uint64_t size, uint64_t hint, uint64_t align = 0);

    /** Give a range back. */
    void give(uint64_t address, uint64_t size);

private:
    using block_map = std::map<uint64_t, uint64_t>; /* start -> end */

    void carve(block_map::iterator block, uint64_t start, uint64_t end);

    const uint64_t granule_;
    const uint64_t offset_mask_;
    const va_range hints_;
    block_map free_;
};

enum class memory_kind {
    device,
    host,
    imported /**< device memory of another card, in the range of the host */
};

/** One mapping. */
struct mmu_region {
    uint64_t size; /**< bytes that may be accessed */
    memory_kind kind;
    uint64_t handle; /**< device memory: its allocation */
    char *host;      /**< the first byte; nullptr: no route leads there */
    imported_memory import;
};

/** What a copy reads or writes. */
struct memory_side {
    memory_kind kind;
    unsigned card; /**< whose memory it is, of what is imported */
};

/** What an address range is, as far as it is contiguous. */
struct translation {
    char *address;
    uint64_t size; /**< contiguous bytes from here, up to what was asked */
    memory_side of;
};

class mmu {
public:
    explicit mmu(hbm &memory);
    mmu(const mmu &)            = delete;
    mmu &operator=(const mmu &) = delete;

    /** Map an allocation. @return Its address, 0 without address space. */
    uint64_t map_device(uint64_t handle, hbm_allocation &allocation,
                        uint64_t hint);

    /**
     * Map host memory. What is whole huge pages in size and address is taken
     * for such pages, which have a range of their own.
     *
     * @param force_hint  Nowhere else will do.
     * @return Its address, 0 without address space.
     */
    uint64_t map_host(void *host, uint64_t size, uint64_t hint = 0,
                      bool force_hint = false);

    /** Map a command buffer of the driver. @return Its address, or 0. */
    uint64_t map_command_buffer(void *buffer, uint64_t size);

    /** Map a dma-buf. @param reached  Whether copies get there; else they find
     *  nothing mapped. @return Its address, 0 without address space. */
    uint64_t map_import(imported_memory memory, uint64_t size, bool reached);

    /** @return The region that was mapped at exactly this address. */
    mmu_region *find(uint64_t va);

    /** Remove a mapping; `va` must be one that map returned. */
    void unmap(uint64_t va);

    /** What an address is of: successive ones of one kind are mostly close. */
    enum class port { packets, source, target };

    /**
     * Translate.
     *
     * @return false when the first byte is not mapped.
     */
    bool translate(port from, uint64_t va, uint64_t size,
                   translation &result) const
    {
        tlb_entry &entry = last_[static_cast<size_t>(from)];
        if (!entry.covers(va) && !walk(va, entry)) {
            return false;
        }
        result = {entry.address + (va - entry.start),
                  std::min(size, entry.end - va), entry.of};
        return true;
    }

    /** Whether a command buffer may be there: where this card has memory or
     *  maps some, whether it does or not. */
    [[nodiscard]] bool may_hold_commands(uint64_t va, uint64_t size) const
    {
        const auto holds = [=](const va_range &range) {
            return (va - range.start < range.end - range.start) &&
                   (size <= range.end - va);
        };
        return (size > 0) && (holds(command_ranges_[0]) ||
                              std::any_of(command_ranges_.begin() + 1,
                                          command_ranges_.end(), holds));
    }

private:
    /* A contiguous piece that was translated lately. */
    struct tlb_entry {
        uint64_t start = 0;
        uint64_t end   = 0;
        char *address  = nullptr; /* of the first byte */
        memory_side of{};

        [[nodiscard]] bool covers(uint64_t va) const
        {
            return (va >= start) && (va < end);
        }
    };

    bool walk(uint64_t va, tlb_entry &entry) const;
    va_space &space_of(uint64_t va);
    uint64_t add_host(uint64_t va, void *host, uint64_t size);

    hbm &memory_;
    const std::array<va_range, 5> command_ranges_;
    va_space device_space_;
    va_space command_buffer_space_;
    va_space host_space_;
    va_space huge_space_;
    std::map<uint64_t, mmu_region> regions_;
    /* What each port has found last; emptied by every unmap. */
    mutable std::array<tlb_entry, 3> last_{};
};

} // namespace gaudi::emu
