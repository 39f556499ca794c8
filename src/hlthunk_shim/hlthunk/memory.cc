#include "hlthunk_shim/hlthunk/memory.h"

#include "util/placement.h"

#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::shim {

int memory_handle::allocate(const device &dev, uint64_t size,
                            memory_handle &handle_p)
{
    if (dev.is_lost()) {
        return -ENODEV;
    }
    errno = 0;
    /* Page size 0 is the card's own; "shared" only allows an export. */
    return handle_p.adopt(dev, dev.lib().hlthunk_device_memory_alloc(
                                   dev.fd(), size, 0, false, true));
}

int mapping::map_device(const device &dev, const memory_handle &handle,
                        uint64_t hint, mapping &mapping_p)
{
    if (dev.is_lost()) {
        return -ENODEV;
    }
    errno = 0;
    return mapping_p.adopt(dev, dev.lib().hlthunk_device_memory_map(
                                    dev.fd(), handle.value(), hint));
}

int mapping::map_host(const device &dev, void *host, uint64_t size,
                      mapping &mapping_p)
{
    if (dev.is_lost()) {
        return -ENODEV;
    }
    errno = 0;
    return mapping_p.adopt(
        dev, dev.lib().hlthunk_host_memory_map(dev.fd(), host, 0, size));
}

pinned_buffer::~pinned_buffer()
{
    if (data_ == nullptr) {
        return;
    }
    int ret = mapping_.close();
    if (ret != 0) {
        /* The card may still reach these pages: keep them. */
        util::warn("unmapping a pinned buffer failed: %s", std::strerror(-ret));
        abandon();
        return;
    }
    munmap(data_, size_);
}

int pinned_buffer::create(const device &dev, size_t size,
                          pinned_buffer &buffer_p)
{
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    pinned_buffer created;

    created.size_ = (size + page - 1) / page * page;
    void *data    = mmap(nullptr, created.size_, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        return -errno;
    }
    created.data_ = static_cast<char *>(data);
    util::place_memory(data, created.size_, dev.numa_node());
    /* All pages now: the first use of a chunk is not to wait for them. */
    std::memset(data, 0, created.size_);

    /* After a fork the parent's next write would move it to a fresh page while
     * the card keeps the old one. */
    if (madvise(data, created.size_, MADV_DONTFORK) != 0) {
        return -errno;
    }
    int ret = mapping::map_host(dev, data, created.size_, created.mapping_);
    if (ret == 0) {
        buffer_p = std::move(created);
    }
    return ret;
}

void pinned_buffer::abandon()
{
    mapping_.release();
    data_ = nullptr;
}

} // namespace gaudi::shim
