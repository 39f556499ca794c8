/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Device memory, and host memory that a card can reach.
 *
 * Each object owns one thing of the driver's and gives it back when it goes;
 * a refusal at that point is a warning, use close() where the refusal matters.
 * All refer to a card that must outlive them. Not thread-safe each, but
 * different objects may be used by different threads.
 */
#pragma once

#include "hlthunk_shim/card.h"
#include "util/warning.h"

#include <cstring>
#include <utility>

namespace gaudi::shim {

/**
 * Owns a number that stands for something of a card's.
 *
 * @tparam Release  Gives it back.
 * @tparam doing    What a warning calls that.
 */
template <auto Release, const char *doing>
class card_value {
public:
    card_value() = default;
    card_value(const card &of, uint64_t value) : card_(&of), value_(value) {}
    card_value(card_value &&other) noexcept { swap(other); }
    card_value &operator=(card_value &&other) noexcept
    {
        card_value(std::move(other)).swap(*this);
        return *this;
    }
    ~card_value()
    {
        const int ret = close();
        if (ret != 0) {
            util::warn("%s %#lx of card %s failed: %s", doing, value_,
                       card_->bus_id().c_str(), std::strerror(-ret));
        }
    }

    /** Give it back now. @return 0 or -errno (then it is still owned). */
    [[nodiscard]] int close()
    {
        /* What a lost card had went with it. */
        int ret =
            ((value_ == 0) || card_->is_lost()) ? 0 : (card_->*Release)(value_);
        if ((ret != 0) && card_->is_lost()) {
            ret = 0; /* as was found out now */
        }
        if (ret == 0) {
            value_ = 0;
        }
        return ret;
    }

    /** Forget it without giving it back. */
    void release() { value_ = 0; }

    /** The card, while it owns something. */
    [[nodiscard]] const card &owner() const { return *card_; }

    void swap(card_value &other) noexcept
    {
        std::swap(card_, other.card_);
        std::swap(value_, other.value_);
    }

protected:
    [[nodiscard]] uint64_t get() const { return value_; }

private:
    const card *card_ = nullptr;
    uint64_t value_   = 0;
};

inline constexpr char freeing_memory[] = "freeing device memory";
inline constexpr char unmapping[]      = "unmapping";

/** Memory that a card's engines reach: see card::register_host and
 *  card::import_dmabuf. */
class registration : public card_value<&card::unmap, unmapping> {
public:
    using card_value::card_value;

    /** What a queue of the card takes for the first byte; 0 when empty. */
    [[nodiscard]] uint64_t address() const { return get(); }
};

/** Memory of a card, mapped: see card::allocate. It cannot be given back while
 *  a dma-buf of it is alive. */
class allocation {
public:
    allocation() = default;
    /** @param handle  The driver's name of the memory. */
    allocation(const card &of, uint64_t handle) : memory_(of, handle) {}
    allocation(allocation &&other) = default;
    allocation &operator=(allocation &&other) noexcept
    {
        mapping_ = std::move(other.mapping_);
        memory_  = std::move(other.memory_);
        return *this;
    }

    /** The mapping of its memory. */
    void add(registration mapping) { mapping_ = std::move(mapping); }

    /** Device address of the first byte; 0 when empty. */
    [[nodiscard]] uint64_t address() const { return mapping_.address(); }

    /** Give it back now. @return 0 or -errno (then it is still owned, but
     *  perhaps not mapped any more). */
    [[nodiscard]] int close()
    {
        const int ret = mapping_.close();
        return (ret == 0) ? memory_.close() : ret;
    }

    /** Forget it without giving it back. */
    void release()
    {
        mapping_.release();
        memory_.release();
    }

private:
    card_value<&card::free_memory, freeing_memory> memory_;
    registration mapping_; /* goes first */
};

/** Zeroed pages of host memory on the card's NUMA node, pinned for that card;
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
    [[nodiscard]] static int create(const card &of, size_t size,
                                    pinned_buffer &buffer_p);

    [[nodiscard]] char *data() const { return data_; }
    [[nodiscard]] size_t size() const { return size_; }
    [[nodiscard]] uint64_t address() const { return registration_.address(); }

    /** Forget the memory, leaving it pinned: for a card that still uses it. */
    void abandon();

    void swap(pinned_buffer &other) noexcept
    {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        registration_.swap(other.registration_);
    }

private:
    char *data_  = nullptr;
    size_t size_ = 0;
    registration registration_;
};

} // namespace gaudi::shim
