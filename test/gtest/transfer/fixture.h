/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Transfer engines on a box of two cards, both open, and memory that stands for
 * another process's: host memory of a child, and memory of the second card.
 * Where a process has one card (Gaudi3) a child has the second one.
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
    ucs_status_t check_status = UCS_OK;
    ucs_status_t hold_status  = UCS_OK;
    unsigned checks           = 0;
    unsigned holds            = 0;
    unsigned releases         = 0;
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
    int va_on(base::card &, uint64_t, size_t, uint64_t &) override;

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

/** Memory of a card, which other cards import. */
class card_memory : public counted_memory {
public:
    /** Of a card of this process. */
    static std::unique_ptr<card_memory> create(base::card &owner, size_t bytes);

    const util::process_memory *host() override { return nullptr; }
    uint64_t owner() const override { return number; }
    int va_on(base::card &user, uint64_t address, size_t length,
              uint64_t &va_p) override;
    bool wants_flush() const override;
    int connect(const base::owner_queue_options &wished,
                std::unique_ptr<base::owner_queue> &queue_p) override;

    /** As shim::card::flush, of its card. */
    virtual int flush() = 0;

    /** What is there, from its first byte on, by its own card. */
    virtual void read(void *data, size_t bytes)        = 0;
    virtual void write(const void *data, size_t bytes) = 0;

    int refusal     = 0; /**< what va_on says */
    uint64_t number = 0; /**< of its owner */

protected:
    using counted_memory::counted_memory;

private:
    virtual int start_on(base::card &user, uint64_t &start_p) = 0;
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
    base::host_memory &memory_;
};

class card_child;

/** What the module does when it is loaded, as far as engines need it. */
void prepare_process();

/** Bytes that the engines of a card moved so far. */
[[nodiscard]] uint64_t moved_bytes(base::card &by);

class transfers : public ::testing::Test {
protected:
    void SetUp() override;
    void TearDown() override;
    transfers();
    ~transfers() override;

    [[nodiscard]] static base::card &card(size_t index);

    /** Memory of the second card, of this process or a child. */
    [[nodiscard]] std::unique_ptr<card_memory> far_memory(size_t bytes);

    /** moved_bytes() of that card. */
    [[nodiscard]] uint64_t far_moved_bytes();
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
    std::unique_ptr<card_child> child_;
};

} // namespace gaudi::test
