/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A card that a framework has acquired, adopted by a driver for one test.
 */
#pragma once

#include "synapse/synapse_library.h"
#include "gtest/shim/fixture.h"

namespace gaudi::test {

/** The stand-in, with a card, until it goes. */
class framework {
public:
    explicit framework(unsigned card = 0)
    {
        synDeviceId id = 7;
        EXPECT_EQ(synapse().synInitialize(), synSuccess);
        EXPECT_EQ(synapse().synDeviceAcquire(&id, bus_id(card).c_str()),
                  synSuccess);
        EXPECT_EQ(id, 0u);
    }
    ~framework() { (void)synapse().synDestroy(); }
    framework(const framework &)            = delete;
    framework &operator=(const framework &) = delete;

    [[nodiscard]] static int fd()
    {
        synDeviceInfoV2 info{};
        EXPECT_EQ(synapse().synDeviceGetInfoV2(0, &info), synSuccess);
        return static_cast<int>(info.fd);
    }
};

class synapse_test : public card_test {
protected:
    void SetUp() override { adopt({}); }

    void adopt(const shim::driver_options &options)
    {
        dev.reset();
        driver = std::make_unique<shim::driver>(emulator_path(), options);
        driver->look_for_frameworks();
        ASSERT_EQ(driver->adopt(framework::fd(), dev), 0);
    }

    void TearDown() override
    {
        dev.reset();
        EXPECT_EQ(synapse().syn_stand_in_mappings(), 0u);
    }

    shim::allocation allocate(uint64_t size) const
    {
        shim::allocation memory;
        EXPECT_EQ(dev->allocate(size, 0, memory), 0);
        return memory;
    }

    /** Host memory that the card reaches. */
    shim::pinned_buffer pin(size_t size) const
    {
        shim::pinned_buffer buffer;
        EXPECT_EQ(shim::pinned_buffer::create(*dev, size, buffer), 0);
        return buffer;
    }

    framework running;
    std::unique_ptr<shim::driver> driver;
};

/** With a queue to the card, and memory at both of its ends. */
class synapse_queue_test : public synapse_test {
protected:
    static constexpr size_t some = 100001;

    void SetUp() override
    {
        synapse_test::SetUp();
        host   = pin(some);
        memory = allocate(some);
        queue  = make_queue(shim::dma_direction::host_to_device);
    }

    void TearDown() override
    {
        queue.reset();
        memory = {};
        host   = {};
        synapse_test::TearDown();
    }

    int submit(uint64_t length = some, void *cookie = nullptr)
    {
        return queue->submit(memory.address(), host.address(), length, cookie,
                             last_id);
    }

    shim::pinned_buffer host;
    shim::allocation memory;
    std::unique_ptr<shim::dma_queue> queue;
    uint64_t last_id = 0;
};

} // namespace gaudi::test
