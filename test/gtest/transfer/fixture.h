/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Transfer engines on a box of two cards, both open, and memory that stands for
 * another process's: host memory of a child, and memory of the second card,
 * which an engine of its own copies as that process would. Where a process has
 * one card (Gaudi3) it is that card's.
 *
 * Every test fails on a warning or error of UCX that it did not announce, and
 * on memory that is held more often than it is released.
 */
#pragma once

#include "common/child.h"
#include "common/emulator.h"
#include "common/host_memory.h"
#include "common/memory_child.h"
#include "uct/gaudi/base/transfer/engine.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gaudi::test {

/** A completion that counts its calls. */
struct counted_completion : uct_completion_t {
    counted_completion();
    unsigned calls = 0;
};

/** What UCP passes with get_bcopy. */
inline uct_unpack_callback_t unpack_by_memcpy()
{
    void *(*const function)(void *, const void *, size_t) = &memcpy;
    return reinterpret_cast<uct_unpack_callback_t>(
        reinterpret_cast<void *>(function));
}

/** Remote memory that counts, and refuses when it is told to. */
class counted_memory : public base::remote_memory {
public:
    counted_memory(uint64_t first, size_t bytes) : start(first), size(bytes) {}

    ucs_status_t check(uint64_t address, size_t length) override;
    [[nodiscard]] bool has(uint64_t address, size_t length) const override;
    ucs_status_t hold() override;
    void release() override;

    [[nodiscard]] base::side at(size_t offset)
    {
        return {*this, start + offset};
    }

    const uint64_t start;
    const size_t size;
    ucs_status_t hold_status = UCS_OK;
    unsigned checks          = 0;
    unsigned holds           = 0;
    unsigned releases        = 0;
};

/** Host memory of a child of the test, zeroed, which lives until then. */
class child_memory final : public counted_memory {
public:
    static std::unique_ptr<child_memory> create(size_t bytes)
    {
        return std::make_unique<child_memory>(memory_child::create(bytes));
    }
    explicit child_memory(std::unique_ptr<memory_child> child)
        : counted_memory(child->start, child->size), child_(std::move(child))
    {}
    ~child_memory() override;

    const util::process_memory *host() override { return child_->host(); }
    void read(void *data, size_t offset, size_t length) const
    {
        child_->read(data, offset, length);
    }
    void write(const void *data, size_t offset, size_t length) const
    {
        child_->write(data, offset, length);
    }
    void kill() { child_->kill(); }

private:
    const std::unique_ptr<memory_child> child_;
};

/** A process that has memory of a card, and copies when it is asked. Stays
 *  while it is connected to. */
struct owner_process {
    std::unique_ptr<base::transfer_engine> by;
    int refuses = 0;                       /**< -errno of connections, */
    std::chrono::milliseconds patience{0}; /**< which take so long */
    bool is_stopped = false;               /**< it copies nothing now */
    unsigned asked  = 0;                   /**< for connections, */
    unsigned made   = 0;
    unsigned queues = 0; /**< that there are */
    unsigned over   = 0; /**< connections up to this one, */
    unsigned looks  = 0; /**< after so many looks at any */
};

/** Memory of a card, whose owner copies. */
class card_memory final : public counted_memory {
public:
    /** Of a card of this process. */
    card_memory(base::card &owner, size_t bytes);
    ~card_memory() override;

    const util::process_memory *host() override { return nullptr; }
    uint64_t owner() const override
    {
        return reinterpret_cast<uintptr_t>(process.get());
    }
    int connect(const base::owner_queue_options &wished,
                std::unique_ptr<base::owner_queue> &queue_p) override;

    /** What is there, from its first byte on. */
    void read(void *data, size_t bytes);
    void write(const void *data, size_t bytes);

    const std::shared_ptr<owner_process> process =
        std::make_shared<owner_process>();

private:
    explicit card_memory(base::device_memory &memory);
    [[nodiscard]] void *here() const { return reinterpret_cast<void *>(start); }

    base::device_memory &memory_;
};

/** Memory of a card of ours. */
class device_buffer {
public:
    device_buffer(base::card &owner, size_t size);
    ~device_buffer();
    device_buffer(const device_buffer &)            = delete;
    device_buffer &operator=(const device_buffer &) = delete;

    [[nodiscard]] char *data() const
    {
        return reinterpret_cast<char *>(memory_->start);
    }

private:
    base::device_memory *memory_ = nullptr;
};

/** Registered host memory. */
class registration {
public:
    registration(void *address, size_t size);
    ~registration();
    registration(const registration &)            = delete;
    registration &operator=(const registration &) = delete;

private:
    base::memory_handle *handle_ = nullptr;
};

/** What the module does when it is loaded, as far as engines need it. */
void prepare_process();

class transfers : public ::testing::Test {
protected:
    void SetUp() override;
    void TearDown() override;
    transfers();
    ~transfers() override;

    [[nodiscard]] static base::card &card(size_t index);

    /** Memory of the second card, if there is one. */
    [[nodiscard]] static std::unique_ptr<card_memory> far_memory(size_t bytes);

    static void pause(base::card &which, bool paused);

    /** Make the engine anew. */
    void remake(const base::transfer_options &options);
    void remake_without_card(const base::transfer_options &options = {});

    /** Progress until a completion was called, or fail at a deadline. */
    void wait_for(const counted_completion &completion);
    /** Progress until everything was. */
    void flush();

    /** Access device memory with an engine that the test does not look at. */
    void write_device(void *device, const void *data, size_t size);
    void read_device(void *data, const void *device, size_t size);

    /** Demand that exactly one line was logged, and forget it. */
    void expect_log(const std::string &text);

    std::unique_ptr<base::transfer_engine> engine;
    base::flush_domain domain{};

private:
    base::held_cards cards_;
    std::unique_ptr<base::transfer_engine> other_;
};

} // namespace gaudi::test
