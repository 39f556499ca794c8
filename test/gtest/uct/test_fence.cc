/* What comes after a fence happens after what came before it. */
#include "gtest/uct/fixture.h"

namespace gaudi::test {

namespace {

constexpr size_t size = 1 << 20;

class fence : public uct {
protected:
    void SetUp() override
    {
        uct::SetUp();
        device = std::make_unique<device_buffer>(md, size);
        fill_pattern(host.data(), size, 1);
    }

    std::unique_ptr<device_buffer> device;
    guarded_buffer host{size};
    guarded_buffer back{size};
};

} // namespace

TEST_F(fence, a_get_behind_it_sees_the_put_before_it)
{
    /* Different engines: without the fence the get would overtake. */
    for (bool whole_iface : {false, true}) {
        fill_pattern(host.data(), size, whole_iface ? 3 : 2);
        tl->start_put(host.data(), size, device->remote());
        ASSERT_EQ(UCS_OK, whole_iface ? uct_iface_fence(tl->iface, 0)
                                      : uct_ep_fence(tl->ep, 0));
        tl->start_get(back.data(), size, device->remote());
        tl->flush();
        EXPECT_TRUE(has_pattern(back.data(), size, whole_iface ? 3 : 2));
    }
}

TEST_F(fence, operations_behind_it_are_not_submitted_before_it_is_reached)
{
    counted_completion before;
    counted_completion after[2];

    engine_hooks::pause(true);
    const uint64_t jobs = engine_hooks::counters().jobs;
    registration memh(md, host.data(), size);
    tl->start_put(host.data(), size, device->remote(), &before);
    ASSERT_EQ(UCS_OK, uct_ep_fence(tl->ep, 0));
    for (auto &completion : after) {
        tl->start_put(host.data(), size, device->remote(), &completion);
    }
    tl->progress_much();
    EXPECT_EQ(jobs + 1, engine_hooks::counters().jobs);
    engine_hooks::pause(false);
    tl->flush();
    EXPECT_EQ(jobs + 3, engine_hooks::counters().jobs);
    EXPECT_EQ(1u, before.calls);
    EXPECT_EQ(1u, after[0].calls);
    EXPECT_EQ(1u, after[1].calls);
}

TEST_F(fence, a_short_operation_behind_it_waits_for_what_is_before_it)
{
    /* UCP packs and unpacks with short operations and cannot try again. */
    counted_completion done;
    for (uint64_t seed = 10; seed < 30; ++seed) {
        fill_pattern(host.data(), size, seed);
        tl->start_put(host.data(), size, device->remote(), &done);
        ASSERT_EQ(UCS_OK, uct_ep_fence(tl->ep, 0));
        ASSERT_EQ(UCS_OK, tl->get_short(back.data(), size, device->remote()));
        EXPECT_TRUE(has_pattern(back.data(), size, seed));
        EXPECT_EQ(0u, done.calls) << "completions belong to progress";
        tl->flush();
        EXPECT_EQ(1u, done.calls);
        done = counted_completion();
    }
}

TEST_F(fence, without_outstanding_operations_it_holds_nothing_back)
{
    char byte = 1;
    ASSERT_EQ(UCS_OK, uct_ep_fence(tl->ep, 0));
    EXPECT_EQ(UCS_OK, tl->put_short(&byte, 1, device->remote()));
}

} // namespace gaudi::test
