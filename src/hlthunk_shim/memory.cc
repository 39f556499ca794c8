/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/memory.h"

#include "util/addresses.h"
#include "util/placement.h"

#include <cerrno>

#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::shim {

uint64_t dmabuf_page()
{
    static const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return page;
}

pinned_buffer::~pinned_buffer()
{
    if (data_ == nullptr) {
        return;
    }
    int ret = registration_.close();
    if (ret != 0) {
        /* The card may still reach these pages: keep them. */
        const card &of = registration_.owner();
        if (of.is_refusal_news()) {
            util::warn("unmapping pinned buffers of card %s failed: %s",
                       of.bus_id().c_str(), std::strerror(-ret));
        }
        abandon();
        return;
    }
    munmap(data_, size_);
}

int pinned_buffer::create(const card &of, size_t size, pinned_buffer &buffer_p)
{
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    pinned_buffer created;

    created.size_ = util::round_up(size, page);
    void *data    = mmap(nullptr, created.size_, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        return -errno;
    }
    created.data_ = static_cast<char *>(data);
    util::place_memory(data, created.size_, of.numa_node());
    /* All pages now: the first use of a chunk is not to wait for them. */
    std::memset(data, 0, created.size_);

    /* After a fork the parent's next write would move it to a fresh page while
     * the card keeps the old one. */
    if (madvise(data, created.size_, MADV_DONTFORK) != 0) {
        return -errno;
    }
    int ret = of.register_staging(data, created.size_, created.registration_);
    if (ret == 0) {
        buffer_p = std::move(created);
    }
    return ret;
}

void pinned_buffer::abandon()
{
    registration_.release();
    data_ = nullptr;
}

} // namespace gaudi::shim
