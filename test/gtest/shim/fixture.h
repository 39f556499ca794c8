/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The first card of the box, open through the shim for one test. A warning that
 * the test did not take fails it, and so does anything left on the card.
 */
#pragma once

#include "common/emulator.h"
#include "common/host_memory.h"
#include "hlthunk_shim/dma_queue.h"
#include "hlthunk_shim/engine/cs_engine.h"
#include "hlthunk_shim/hlthunk/library.h"
#include "hlthunk_shim/memory.h"
#include "util/warning.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

namespace gaudi::test {

inline constexpr uint64_t mebi = uint64_t{1} << 20;

/** Collects the shim's warnings. */
class warning_log {
public:
    warning_log()
    {
        texts().clear();
        util::set_warning_handler(
            [](const char *text) { texts().emplace_back(text); });
    }
    ~warning_log()
    {
        EXPECT_THAT(texts(), ::testing::IsEmpty());
        util::set_warning_handler(nullptr);
    }
    warning_log(const warning_log &)            = delete;
    warning_log &operator=(const warning_log &) = delete;

    /** The warnings so far; the test knows of them now. */
    std::vector<std::string> take() { return std::move(texts()); }

private:
    static std::vector<std::string> &texts()
    {
        static std::vector<std::string> result;
        return result;
    }
};

/** Device memory with its address. */
struct device_memory {
    device_memory(const shim::card &dev, uint64_t size)
    {
        EXPECT_EQ(dev.allocate(size, 0, memory), 0);
    }
    [[nodiscard]] uint64_t va() const { return memory.address(); }

    shim::allocation memory;
};

/** Host memory of the application, mapped for the card. */
struct host_memory {
    host_memory(const shim::card &dev, size_t size) : buffer(size)
    {
        EXPECT_EQ(dev.register_host(buffer.data(), size, map), 0);
    }
    [[nodiscard]] char *data() const { return buffer.data(); }
    [[nodiscard]] uint64_t va() const { return map.address(); }

    guarded_buffer buffer;
    shim::registration map;
};

/** Open a card. */
inline std::unique_ptr<shim::card> open_card(const shim::library &lib,
                                             unsigned index = 0)
{
    std::unique_ptr<shim::card> opened;
    EXPECT_EQ(shim::open_card(lib, bus_id(index), opened), 0);
    return opened;
}

class card_test : public ::testing::Test {
protected:
    void pause(bool paused) const
    {
        EXPECT_EQ(emulator::instance().hlthunk_emu_pause(dev->fd(), paused), 0);
    }

    std::unique_ptr<shim::dma_queue>
    make_queue(shim::dma_direction direction,
               const shim::dma_queue_options &options = {}) const
    {
        std::unique_ptr<shim::dma_queue> queue;
        EXPECT_EQ(dev->make_queue(direction, options, queue), 0);
        return queue;
    }

    warning_log warnings;
    std::unique_ptr<shim::card> dev;
};

class shim_test : public card_test {
protected:
    void SetUp() override
    {
        dev = open_card(hl());
        ASSERT_NE(dev, nullptr);
    }

    void TearDown() override
    {
        if (dev != nullptr) {
            EXPECT_EQ(counters().mappings, 0u);
            EXPECT_EQ(counters().allocations, 0u);
        }
    }

    /* What fails here are jobs, and not the card. */
    const wished_faults only_the_job{"packet=abort"};

    hlthunk_emu_counters counters() const
    {
        hlthunk_emu_counters result{};
        EXPECT_EQ(
            emulator::instance().hlthunk_emu_get_counters(dev->fd(), &result),
            0);
        return result;
    }
};

inline constexpr uint64_t patience_us = 20'000'000;

/** Start a copy. @return Its id. */
inline uint64_t start(shim::dma_queue &queue, uint64_t dst, uint64_t src,
                      uint64_t length, void *cookie = nullptr)
{
    uint64_t id = 0;
    EXPECT_EQ(queue.submit(dst, src, length, cookie, id), 0);
    return id;
}

/** Collect one copy, which has ended. @return How. */
inline int collect_one(shim::dma_queue &queue, const void *cookie = nullptr)
{
    shim::dma_completion done{};
    EXPECT_EQ(queue.poll(&done, 1), 1u);
    EXPECT_EQ(done.cookie, cookie);
    return done.status;
}

/** Copy, wait, collect. @return How it ended, or why it did not start. */
inline int copy(shim::dma_queue &queue, uint64_t dst, uint64_t src,
                uint64_t length)
{
    uint64_t id = 0;
    int cookie  = 0;
    int ret     = queue.submit(dst, src, length, &cookie, id);
    if (ret == 0) {
        ret = queue.wait(id, patience_us);
        EXPECT_EQ(collect_one(queue, &cookie), ret);
    }
    return ret;
}

} // namespace gaudi::test
