/**
 * Device memory, mappings and host memory that the card can reach.
 *
 * Each object owns one thing of the driver's and gives it back when it goes;
 * a refusal at that point is a warning, use close() where the refusal matters.
 * All refer to a device that must outlive them. Not thread-safe each, but
 * different objects may be used by different threads.
 */
#pragma once

#include "hlthunk_shim/device.h"

#include <utility>

namespace gaudi::shim {

/** A range of physical device memory. */
class memory_handle {
public:
    memory_handle() = default;
    memory_handle(memory_handle &&other) noexcept { swap(other); }
    memory_handle &operator=(memory_handle &&other) noexcept
    {
        memory_handle(std::move(other)).swap(*this);
        return *this;
    }
    ~memory_handle();

    /**
     * Allocate device memory.
     *
     * @param size      Bytes; the driver rounds up to its DRAM page.
     * @param handle_p  Filled on success only.
     * @return 0 or -errno, -ENOMEM when the card has not that much left.
     */
    [[nodiscard]] static int allocate(const device &dev, uint64_t size,
                                      memory_handle &handle_p);

    /** Free now. @return 0 or -errno (then it is still owned). */
    [[nodiscard]] int close();

    [[nodiscard]] uint64_t value() const { return value_; }

    void swap(memory_handle &other) noexcept
    {
        std::swap(dev_, other.dev_);
        std::swap(value_, other.value_);
    }

private:
    const device *dev_ = nullptr;
    uint64_t value_    = 0;
};

/** A range of device virtual addresses, backed by device or host memory. */
class mapping {
public:
    mapping() = default;
    mapping(mapping &&other) noexcept { swap(other); }
    mapping &operator=(mapping &&other) noexcept
    {
        mapping(std::move(other)).swap(*this);
        return *this;
    }
    ~mapping();

    /**
     * Map device memory.
     *
     * @param hint  Wished address, 0 for any; the driver may choose another.
     * @return 0 or -errno.
     */
    [[nodiscard]] static int map_device(const device &dev,
                                        const memory_handle &handle,
                                        uint64_t hint, mapping &mapping_p);

    /**
     * Pin host memory and map it for the card's DMA engines.
     *
     * @param host  Any alignment; its offset in the page is kept.
     * @return 0 or -errno: -EFAULT when a page is missing or read-only.
     */
    [[nodiscard]] static int map_host(const device &dev, void *host,
                                      uint64_t size, mapping &mapping_p);

    /**
     * Unmap now.
     *
     * @return 0 or -errno (then it is still owned), -EINVAL while a dma-buf of
     *         it is alive.
     */
    [[nodiscard]] int close();

    /** Forget the mapping without unmapping it. */
    void release() { va_ = 0; }

    /** Device virtual address of the first byte; 0 when empty. */
    [[nodiscard]] uint64_t va() const { return va_; }

    void swap(mapping &other) noexcept
    {
        std::swap(dev_, other.dev_);
        std::swap(va_, other.va_);
    }

private:
    const device *dev_ = nullptr;
    uint64_t va_       = 0;
};

/** Zeroed pages of host memory, mapped for one card; not inherited by fork. */
class pinned_buffer {
public:
    pinned_buffer() = default;
    pinned_buffer(pinned_buffer &&other) noexcept { swap(other); }
    pinned_buffer &operator=(pinned_buffer &&other) noexcept
    {
        pinned_buffer(std::move(other)).swap(*this);
        return *this;
    }
    ~pinned_buffer();

    /** @param size  Bytes, rounded up to pages. @return 0 or -errno. */
    [[nodiscard]] static int create(const device &dev, size_t size,
                                    pinned_buffer &buffer_p);

    [[nodiscard]] char *data() const { return data_; }
    [[nodiscard]] size_t size() const { return size_; }
    [[nodiscard]] uint64_t va() const { return mapping_.va(); }

    /** Forget the memory, leaving it pinned: for a card that still uses it. */
    void abandon();

    void swap(pinned_buffer &other) noexcept
    {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        mapping_.swap(other.mapping_);
    }

private:
    char *data_  = nullptr;
    size_t size_ = 0;
    mapping mapping_;
};

} // namespace gaudi::shim
