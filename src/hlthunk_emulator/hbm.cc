/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/hbm.h"

#include "hlthunk_emulator/settings.h"
#include "util/addresses.h"
#include "util/placement.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::emu {

util::file_mapping map_runs(int fd, const std::vector<hbm_run> &runs)
{
    size_t size = 0;
    for (const hbm_run &run : runs) {
        size += run.size;
    }
    void *base = mmap(nullptr, size, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        return {};
    }
    util::file_mapping mapped(static_cast<char *>(base), size);
    char *next = mapped.start();
    for (const hbm_run &run : runs) {
        if (mmap(next, run.size, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd,
                 static_cast<off_t>(run.offset)) == MAP_FAILED) {
            return {};
        }
        next += run.size;
    }
    madvise(base, size, MADV_DONTFORK);
    madvise(base, size, MADV_DONTDUMP);
    return mapped;
}

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
    closed_in_children_ = util::closed_in_children(fd());
    node_               = node;

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
    for (uint64_t page = 0; missing > 0; ++page) {
        if (used_[page]) {
            continue;
        }
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
    allocation.data = map_runs(fd(), allocation.runs);
    if (allocation.data.start() == nullptr) {
        log("%lu MiB of device memory: %s", allocation.size >> 20,
            std::strerror(errno));
        return 0;
    }
    util::place_memory(allocation.data.start(), allocation.size, node_);
    mark_pages(allocation, true);
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
    }
    mark_pages(found->second, false);
    allocations_.erase(found);
}

void hbm::mark_pages(const hbm_allocation &allocation, bool used)
{
    for (const hbm_run &run : allocation.runs) {
        for (uint64_t done = 0; done < run.size; done += page_) {
            used_[(run.offset + done) / page_] = used;
        }
    }
    const uint64_t pages = allocation.size / page_;
    free_pages_          = used ? free_pages_ - pages : free_pages_ + pages;
}

} // namespace gaudi::emu
