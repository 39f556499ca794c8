/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The device memory of one card: a memfd, and the allocator of its pages, which
 * maps them where only the engines know.
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

/** Map runs one behind the other, out of reach of core dumps and forked
 *  children. @return Nothing, with errno, without address space. */
util::file_mapping map_runs(int fd, const std::vector<hbm_run> &runs);

/** One allocation: its pages need not be neighbours. */
struct hbm_allocation {
    std::vector<hbm_run> runs;
    util::file_mapping data; /**< where the engines see it */
    uint64_t size     = 0;   /**< bytes, whole pages */
    unsigned mappings = 0;
};

class hbm {
public:
    /** Create the memory, on a NUMA node if one is given. @return 0 or
     *  -errno. */
    int create(uint64_t size, std::optional<unsigned> node);

    /** Allocate whole pages. @return The handle, 0 when not enough is free, or
     *  the process has no address space for them. */
    uint64_t allocate(uint64_t size);

    /** @return nullptr for an unknown handle. */
    hbm_allocation *find(uint64_t handle);

    /** Free an allocation; its content goes. */
    void free(uint64_t handle);

    [[nodiscard]] uint64_t size() const { return size_; }
    [[nodiscard]] uint64_t free_bytes() const { return free_pages_ * page_; }
    [[nodiscard]] int fd() const { return fd_.get(); }

private:
    void mark_pages(const hbm_allocation &allocation, bool used);

    util::unique_fd fd_;
    util::closed_in_children closed_in_children_; /* keeps the memory alive */
    std::optional<unsigned> node_;
    uint64_t page_       = 0;
    uint64_t size_       = 0;
    uint64_t free_pages_ = 0;
    std::vector<bool> used_; /* per page */
    std::map<uint64_t, hbm_allocation> allocations_;
};

} // namespace gaudi::emu
