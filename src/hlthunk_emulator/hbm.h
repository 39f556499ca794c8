/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The device memory of one card: a memfd, mapped where only the engines know,
 * and the allocator of its pages.
 *
 * Not thread-safe: its card's lock protects it.
 */
#pragma once

#include "util/file_mapping.h"
#include "util/fork_handlers.h"
#include "util/unique_fd.h"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace gaudi::emu {

/** A contiguous piece of device memory, as an offset into the memfd. */
struct hbm_run {
    uint64_t offset;
    uint64_t size;
};

/** One allocation: its pages need not be neighbours. */
struct hbm_allocation {
    std::vector<hbm_run> runs;
    uint64_t size     = 0; /**< bytes, whole pages */
    unsigned mappings = 0;
};

class hbm {
public:
    /** Create the memory, on a NUMA node if one is given. @return 0 or
     *  -errno. */
    int create(uint64_t size, std::optional<unsigned> node);

    /** Allocate whole pages. @return The handle, 0 when not enough is free. */
    uint64_t allocate(uint64_t size);

    /** @return nullptr for an unknown handle. */
    hbm_allocation *find(uint64_t handle);

    /** Free an allocation; its content goes. */
    void free(uint64_t handle);

    [[nodiscard]] uint64_t size() const { return size_; }
    [[nodiscard]] uint64_t free_bytes() const { return free_pages_ * page_; }
    [[nodiscard]] int fd() const { return fd_.get(); }
    /** Where the engines see an offset. */
    [[nodiscard]] char *at(uint64_t offset) const
    {
        return mapping_.start() + offset;
    }

private:
    util::unique_fd fd_;
    util::closed_in_children closed_in_children_; /* keeps the memory alive */
    util::file_mapping mapping_;
    uint64_t page_       = 0;
    uint64_t size_       = 0;
    uint64_t free_pages_ = 0;
    std::vector<bool> used_; /* per page */
    std::map<uint64_t, hbm_allocation> allocations_;
};

} // namespace gaudi::emu
