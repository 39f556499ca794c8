/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/hbm.h"

#include "hlthunk_emulator/settings.h"
#include "util/addresses.h"
#include "util/file_mapping.h"
#include "util/placement.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::emu {

int hbm::create(uint64_t size, std::optional<unsigned> node)
{
    page_                = get_settings().dram_page;
    const uint64_t pages = size / page_;

    size_ = pages * page_;
    if (size_ > util::longest_file()) {
        return -EFBIG; /* a signal would end the process */
    }
    /* Importers rely on what they map being there. */
    fd_ = util::make_lasting_file("hlthunk-emu-hbm", size_);
    if (!fd_) {
        return -errno;
    }
    if (!mapping_.map(fd(), 0, size_)) {
        /* Valgrind says EINVAL, others ENOMEM. */
        std::fprintf(stderr,
                     "hlthunk-emu: the address space of this process has no "
                     "room for the %lu MiB of a card (HLTHUNK_EMU_HBM=4G needs "
                     "less): %s\n",
                     size_ >> 20, std::strerror(errno));
        return -ENOMEM;
    }
    closed_in_children_ = util::closed_in_children(fd());
    char *const base    = mapping_.start();
    /* A forked child has no business here, and core dumps neither. */
    madvise(base, size_, MADV_DONTFORK);
    madvise(base, size_, MADV_DONTDUMP);
    gaudi::util::place_memory(base, size_, node);

    free_pages_ = pages;
    used_.assign(pages, false);
    return 0;
}

uint64_t hbm::allocate(uint64_t size)
{
    if ((size == 0) || (size > size_)) {
        return 0;
    }
    uint64_t missing = util::round_up(size, page_) / page_;
    if (missing > free_pages_) {
        return 0;
    }

    hbm_allocation allocation;
    allocation.size = missing * page_;
    free_pages_ -= missing;
    for (uint64_t page = 0; missing > 0; ++page) {
        if (used_[page]) {
            continue;
        }
        used_[page]           = true;
        const uint64_t offset = page * page_;
        auto &runs            = allocation.runs;
        if (!runs.empty() &&
            (runs.back().offset + runs.back().size == offset)) {
            runs.back().size += page_;
        } else {
            runs.push_back({offset, page_});
        }
        --missing;
    }
    /* The lowest that is free. */
    uint64_t handle = 1;
    for (const auto &entry : allocations_) {
        if (entry.first != handle) {
            break;
        }
        ++handle;
    }
    allocations_.emplace(handle, std::move(allocation));
    return handle;
}

hbm_allocation *hbm::find(uint64_t handle)
{
    auto found = allocations_.find(handle);
    return (found == allocations_.end()) ? nullptr : &found->second;
}

void hbm::free(uint64_t handle)
{
    auto found = allocations_.find(handle);
    for (const hbm_run &run : found->second.runs) {
        fallocate(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(run.offset), static_cast<off_t>(run.size));
        for (uint64_t done = 0; done < run.size; done += page_) {
            used_[(run.offset + done) / page_] = false;
        }
    }
    free_pages_ += found->second.size / page_;
    allocations_.erase(found);
}

} // namespace gaudi::emu
