/**
 * Device memory, mappings and host memory that the card can reach.
 *
 * Each object owns one thing of the driver's and gives it back when it goes;
 * a refusal at that point is a warning, use close() where the refusal matters.
 * All refer to a device that must outlive them. Not thread-safe each, but
 * different objects may be used by different threads.
 */
#pragma once

#include "hlthunk_shim/hlthunk/device.h"
#include "util/warning.h"

#include <cerrno>
#include <cstring>
#include <utility>

namespace gaudi::shim {

/**
 * Owns one value of the driver's.
 *
 * @tparam Release  Row of the symbol table that gives the value back.
 * @tparam doing    What a warning calls that.
 */
template <auto Release, const char *doing>
class driver_value {
public:
    driver_value() = default;
    driver_value(driver_value &&other) noexcept { swap(other); }
    driver_value &operator=(driver_value &&other) noexcept
    {
        driver_value(std::move(other)).swap(*this);
        return *this;
    }
    ~driver_value()
    {
        const int ret = close();
        if (ret != 0) {
            util::warn("%s %#lx of card %s failed: %s", doing, value_,
                       dev_->bus_id().c_str(), std::strerror(-ret));
        }
    }

    /** Give it back now. @return 0 or -errno (then it is still owned). */
    [[nodiscard]] int close()
    {
        /* What a lost card had went with it. */
        const int ret = ((value_ == 0) || dev_->is_lost())
                            ? 0
                            : (dev_->lib().*Release)(dev_->fd(), value_);
        if (ret == 0) {
            value_ = 0;
        }
        return ret;
    }

    /** Forget it without giving it back. */
    void release() { value_ = 0; }

    void swap(driver_value &other) noexcept
    {
        std::swap(dev_, other.dev_);
        std::swap(value_, other.value_);
    }

protected:
    /** Take over what a driver call returned: 0 means failure, and errno why.
     *  @return 0 or -errno. */
    [[nodiscard]] int adopt(const device &dev, uint64_t value)
    {
        if (value == 0) {
            return (errno != 0) ? -errno : -ENOMEM;
        }
        driver_value adopted;
        adopted.dev_   = &dev;
        adopted.value_ = value;
        swap(adopted);
        return 0;
    }

    [[nodiscard]] uint64_t get() const { return value_; }

private:
    const device *dev_ = nullptr;
    uint64_t value_    = 0;
};

inline constexpr char freeing_memory[] = "freeing device memory";
inline constexpr char unmapping[]      = "unmapping";

/** A range of physical device memory. It cannot be freed while it is mapped. */
class memory_handle : public driver_value<&library::hlthunk_device_memory_free,
                                          freeing_memory> {
public:
    /**
     * Allocate device memory.
     *
     * @param size      Bytes; the driver rounds up to its DRAM page.
     * @param handle_p  Filled on success only.
     * @return 0 or -errno, -ENOMEM when the card has not that much left.
     */
    [[nodiscard]] static int allocate(const device &dev, uint64_t size,
                                      memory_handle &handle_p);

    [[nodiscard]] uint64_t value() const { return get(); }
};

/** A range of device virtual addresses, backed by device or host memory. Unmap
 *  says -EINVAL while a dma-buf of it is alive. */
class mapping : public driver_value<&library::hlthunk_memory_unmap, unmapping> {
public:
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
     * Map the memory behind a dma-buf of another card or process.
     *
     * The address is in the range of host mappings: only the engines that reach
     * host memory reach it. It keeps the dma-buf alive; the descriptor may be
     * closed.
     *
     * @param dmabuf  Stays the caller's.
     * @param size    All of the dma-buf, see dmabuf_size.
     * @return 0; -EOPNOTSUPP by a driver that cannot import; -EBADF for a
     *         closed descriptor; -EINVAL for what is no dma-buf, or not of this
     *         size; else -errno.
     */
    [[nodiscard]] static int import_dmabuf(const device &dev, int dmabuf,
                                           uint64_t size, mapping &mapping_p);

    /** Device virtual address of the first byte; 0 when empty. */
    [[nodiscard]] uint64_t va() const { return get(); }
};

/** Zeroed pages of host memory on the card's NUMA node, mapped for that card;
 *  not inherited by fork. */
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
