/* SPDX-License-Identifier: BSD-3-Clause */
/* Which engine a card gets. */
#include "gtest/shim/synapse_fixture.h"

#include "common/child.h"

using namespace gaudi::test;
using namespace gaudi::shim;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

/* Command submissions see what SynapseAI does not: host memory of anybody. */
bool is_driven_by_synapse(const card &of)
{
    std::vector<char> buffer(4096);
    registration mapping;
    return of.register_host(buffer.data(), buffer.size(), mapping) ==
           -EOPNOTSUPP;
}

/* The card of the process's framework. */
std::unique_ptr<card> adopt_framework(const driver &by)
{
    std::unique_ptr<card> used;
    by.look_for_frameworks();
    EXPECT_EQ(by.adopt(framework::fd(), used), 0);
    return used;
}

const child_options gaudi3 = {
    {{"HLTHUNK_EMU_ASIC", "gaudi3"}, {"HLTHUNK_EMU_DRAM_PAGE", "32M"}}, -1};

} // namespace

TEST(engines, a_card_that_a_framework_has_is_driven_through_it)
{
    const warning_log warnings;
    const framework running(1);
    const driver by(emulator_path());
    const auto used = adopt_framework(by);
    EXPECT_TRUE(is_driven_by_synapse(*used));
    std::unique_ptr<card> other;
    ASSERT_EQ(by.open(bus_id(0), other), 0);
    EXPECT_FALSE(is_driven_by_synapse(*other));
    /* SynapseAI does not say where it has mapped host memory. */
    EXPECT_FALSE(used->capabilities().ports_read_host);
    EXPECT_TRUE(other->capabilities().ports_read_host);
}

TEST(engines, cs_is_never_anything_else)
{
    const warning_log warnings;
    const framework running;
    const driver by(emulator_path(), {.used = engine::cs});
    EXPECT_FALSE(is_driven_by_synapse(*adopt_framework(by)));
}

TEST(engines, a_card_is_not_taken_while_it_is_acquired)
{
    const warning_log warnings;
    const driver by(emulator_path());
    const int fd = hl().hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, nullptr);
    ASSERT_GE(fd, 0);
    by.framework_opened(fd);
    (void)synapse(); /* it is there, and does not know the descriptor yet */
    by.look_for_frameworks();
    std::unique_ptr<card> used;
    EXPECT_EQ(by.adopt(fd, used), -EINPROGRESS);
    by.application_closing(fd);
    EXPECT_EQ(by.adopt(fd, used), 0);
    EXPECT_FALSE(is_driven_by_synapse(*used));
    used.reset();
    hl().hlthunk_close(fd);
}

TEST(engines, a_new_acquisition_is_seen)
{
    const warning_log warnings;
    const driver by(emulator_path());
    for (int i = 0; i < 2; ++i) {
        const framework running;
        const auto used = adopt_framework(by);
        EXPECT_TRUE(is_driven_by_synapse(*used));
        std::unique_ptr<dma_queue> queue;
        EXPECT_EQ(used->make_queue(dma_direction::host_to_device, {}, queue),
                  0);
    }
    by.look_for_frameworks();
    std::unique_ptr<card> opened;
    ASSERT_EQ(by.open(bus_id(0), opened), 0);
    EXPECT_FALSE(is_driven_by_synapse(*opened));
}

/* SynapseAI of 1.17 and before does not fill the last of its facts; SCAL tells
 * where the memory is. */
TEST(engines, an_old_runtime_will_do)
{
    const warning_log warnings;
    const framework running;
    synapse().syn_stand_in_be_old(true);
    const driver by(emulator_path());
    const auto used = adopt_framework(by);
    synapse().syn_stand_in_be_old(false);
    ASSERT_NE(used, nullptr);
    EXPECT_TRUE(used->application_block().has_value());
}

TEST(engines, synapse_starts_a_framework_and_ends_it)
{
    const warning_log warnings;
    (void)synapse();
    const driver by(emulator_path(), {.used = engine::synapse});
    std::unique_ptr<card> first;
    std::unique_ptr<card> second;
    ASSERT_EQ(by.open(bus_id(2), first), 0);
    EXPECT_EQ(first->bus_id(), bus_id(2));
    EXPECT_TRUE(is_driven_by_synapse(*first));
    EXPECT_EQ(by.open(bus_id(1), second), -ENOTSUP);
    EXPECT_THAT(by.why_not_supported(), HasSubstr("another card"));
    first.reset();
    synDeviceInfoV2 info{};
    EXPECT_EQ(synapse().synDeviceGetInfoV2(0, &info), synUninitialized);
    EXPECT_EQ(by.open(bus_id(1), second), 0);
}

TEST(engines, gaudi3_has_no_other)
{
    const child_result child = run_child("uses_gaudi3", gaudi3);
    EXPECT_EQ(child.exit_code, 0) << child.error;
}

TEST(engines, gaudi3_is_refused_with_what_helps)
{
    const auto refusal = [](engine used) {
        return driver(emulator_path(), {.used = used}).why_not_supported();
    };
    EXPECT_THAT(refusal(engine::automatic), HasSubstr("have the framework"));
    EXPECT_THAT(refusal(engine::cs),
                HasSubstr("set UCX_GAUDI_ENGINE=synapse, or unset it"));
    EXPECT_THAT(refusal(engine::synapse), Not(HasSubstr("UCX_GAUDI_ENGINE")));
}

GAUDI_CHILD(uses_gaudi3)
{
    const driver by(emulator_path());
    std::unique_ptr<card> used;
    GAUDI_CHILD_REQUIRE(by.open(bus_id(0), used) == -ENOTSUP);
    GAUDI_CHILD_REQUIRE(by.why_not_supported().find(
                            "UCX_GAUDI_ENGINE=synapse") != std::string::npos);
    const framework running;
    by.look_for_frameworks();
    GAUDI_CHILD_REQUIRE(by.adopt(framework::fd(), used) == 0);
    GAUDI_CHILD_REQUIRE(is_driven_by_synapse(*used));
    std::unique_ptr<dma_queue> queue;
    GAUDI_CHILD_REQUIRE(
        used->make_queue(dma_direction::host_to_device, {}, queue) == 0);
    pinned_buffer host;
    GAUDI_CHILD_REQUIRE(pinned_buffer::create(*used, mebi, host) == 0);
    allocation memory;
    GAUDI_CHILD_REQUIRE(used->allocate(mebi, 0, memory) == 0);
    GAUDI_CHILD_REQUIRE(copy(*queue, memory.address(), host.address(), mebi) ==
                        0);
    return 0;
}
