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

class synapse_test : public ::testing::Test {
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
        EXPECT_EQ(synapse().syn_stand_in_blocking_calls(), 0u);
    }

    std::unique_ptr<shim::dma_queue>
    make_queue(shim::dma_direction direction,
               const shim::dma_queue_options &options = {}) const
    {
        std::unique_ptr<shim::dma_queue> queue;
        EXPECT_EQ(dev->make_queue(direction, options, queue), 0);
        return queue;
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

    void pause(bool paused) const
    {
        EXPECT_EQ(emulator::instance().hlthunk_emu_pause(dev->fd(), paused), 0);
    }

    warning_log warnings;
    framework running;
    std::unique_ptr<shim::driver> driver;
    std::unique_ptr<shim::card> dev;
};

} // namespace gaudi::test
