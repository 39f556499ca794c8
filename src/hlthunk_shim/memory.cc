#include "hlthunk_shim/memory.h"

#include "hlthunk_shim/warning.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::shim {

namespace {

/* For calls that answer 0 for "failed" and leave the reason in errno. */
int result_of(uint64_t value)
{
    if (value != 0) {
        return 0;
    }
    return (errno != 0) ? -errno : -ENOMEM;
}

} // namespace

memory_handle::~memory_handle()
{
    int ret = close();
    if (ret != 0) {
        warn("freeing device memory %#lx of card %s failed: %s", value_,
             dev_->bus_id().c_str(), std::strerror(-ret));
    }
}

int memory_handle::allocate(const device &dev, uint64_t size,
                            memory_handle &handle_p)
{
    errno = 0;
    /* Page size 0 is the card's own; "shared" only allows an export. */
    uint64_t value =
        dev.lib().hlthunk_device_memory_alloc(dev.fd(), size, 0, false, true);
    int ret = result_of(value);
    if (ret == 0) {
        memory_handle allocated;
        allocated.dev_   = &dev;
        allocated.value_ = value;
        handle_p         = std::move(allocated);
    }
    return ret;
}

int memory_handle::close()
{
    if (value_ == 0) {
        return 0;
    }
    int ret = dev_->lib().hlthunk_device_memory_free(dev_->fd(), value_);
    if (ret == 0) {
        value_ = 0;
    }
    return ret;
}

mapping::~mapping()
{
    int ret = close();
    if (ret != 0) {
        warn("unmapping %#lx of card %s failed: %s", va_,
             dev_->bus_id().c_str(), std::strerror(-ret));
    }
}

int mapping::map_device(const device &dev, const memory_handle &handle,
                        uint64_t hint, mapping &mapping_p)
{
    errno = 0;
    uint64_t va =
        dev.lib().hlthunk_device_memory_map(dev.fd(), handle.value(), hint);
    int ret = result_of(va);
    if (ret == 0) {
        mapping mapped;
        mapped.dev_ = &dev;
        mapped.va_  = va;
        mapping_p   = std::move(mapped);
    }
    return ret;
}

int mapping::map_host(const device &dev, void *host, uint64_t size,
                      mapping &mapping_p)
{
    errno       = 0;
    uint64_t va = dev.lib().hlthunk_host_memory_map(dev.fd(), host, 0, size);
    int ret     = result_of(va);
    if (ret == 0) {
        mapping mapped;
        mapped.dev_ = &dev;
        mapped.va_  = va;
        mapping_p   = std::move(mapped);
    }
    return ret;
}

int mapping::close()
{
    if (va_ == 0) {
        return 0;
    }
    int ret = dev_->lib().hlthunk_memory_unmap(dev_->fd(), va_);
    if (ret == 0) {
        va_ = 0;
    }
    return ret;
}

pinned_buffer::~pinned_buffer()
{
    if (data_ == nullptr) {
        return;
    }
    int ret = mapping_.close();
    if (ret != 0) {
        /* The card may still reach these pages: keep them. */
        warn("unmapping a pinned buffer failed: %s", std::strerror(-ret));
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
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (data == MAP_FAILED) {
        return -errno;
    }
    created.data_ = static_cast<char *>(data);

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
