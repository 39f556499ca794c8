/* Zero copy is asynchronous: nothing ends early, and each ends once. */
#include "gtest/uct/fixture.h"

#include <vector>

namespace gaudi::test {

namespace {

constexpr size_t block = 65536;

class async : public uct {
protected:
    void SetUp() override
    {
        uct::SetUp();
        device = std::make_unique<device_buffer>(md, size);
        memh   = std::make_unique<registration>(md, host.data(), size);
        fill_pattern(host.data(), size, 1);
    }

    static constexpr size_t size = 300 * block;
    guarded_buffer host{size};
    std::unique_ptr<device_buffer> device;
    std::unique_ptr<registration> memh;
};

} // namespace

TEST_F(async, a_paused_engine_keeps_zcopy_and_flushes_pending)
{
    counted_completion copied;
    counted_completion ep_flushed;
    counted_completion iface_flushed;

    engine_hooks::pause(true);
    tl->start_put(host.data(), size, device->remote(), &copied);
    EXPECT_EQ(UCS_INPROGRESS, uct_ep_flush(tl->ep, 0, &ep_flushed));
    EXPECT_EQ(UCS_INPROGRESS, uct_iface_flush(tl->iface, 0, &iface_flushed));
    tl->progress_much();
    EXPECT_EQ(0u, copied.calls + ep_flushed.calls + iface_flushed.calls);
    EXPECT_EQ(UCS_INPROGRESS, uct_ep_flush(tl->ep, 0, nullptr));
    EXPECT_EQ(UCS_INPROGRESS, uct_iface_flush(tl->iface, 0, nullptr));
    EXPECT_EQ(0u, engine_hooks::counters().host_to_device_bytes);

    engine_hooks::pause(false);
    tl->flush();
    EXPECT_EQ(1u, copied.calls);
    EXPECT_EQ(1u, ep_flushed.calls);
    EXPECT_EQ(1u, iface_flushed.calls);
    EXPECT_EQ(UCS_OK, uct_ep_flush(tl->ep, 0, nullptr));
    EXPECT_EQ(size, engine_hooks::counters().host_to_device_bytes);
}

TEST_F(async, a_flush_waits_for_its_own_endpoint_only)
{
    uct_ep_h idle = tl->make_ep();
    counted_completion copied;

    engine_hooks::pause(true);
    tl->start_put(host.data(), block, device->remote(), &copied);
    EXPECT_EQ(UCS_OK, uct_ep_flush(idle, 0, nullptr));
    EXPECT_EQ(UCS_INPROGRESS, uct_ep_flush(tl->ep, 0, nullptr));
    engine_hooks::pause(false);
    tl->flush();
    uct_ep_destroy(idle);
}

TEST_F(async, a_flush_does_not_wait_for_what_comes_after_it)
{
    counted_completion first;
    counted_completion flushed;
    std::vector<counted_completion> later(200);

    engine_hooks::pause(true);
    tl->start_put(host.data(), block, device->remote(), &first);
    ASSERT_EQ(UCS_INPROGRESS, uct_ep_flush(tl->ep, 0, &flushed));
    for (auto &completion : later) {
        tl->start_put(host.data(), block, device->remote(), &completion);
    }
    engine_hooks::pause(false);
    while (flushed.calls == 0) {
        tl->progress();
    }
    EXPECT_EQ(1u, first.calls);
    EXPECT_EQ(0u, later.back().calls) << "more than 64 jobs cannot have ended";
    tl->flush();
    EXPECT_EQ(1u, flushed.calls);
}

TEST_F(async, hundreds_of_jobs_are_in_flight_and_each_completes_once)
{
    constexpr size_t count = 250; /* far more than the driver takes */
    std::vector<counted_completion> done(count);

    engine_hooks::pause(true);
    for (size_t i = 0; i < count; ++i) {
        tl->start_put(host.data() + i * block, block, device->remote(i * block),
                      &done[i]);
    }
    tl->progress_much();
    for (const auto &completion : done) {
        EXPECT_EQ(0u, completion.calls);
    }
    engine_hooks::pause(false);
    tl->flush();
    tl->progress_much();
    for (const auto &completion : done) {
        EXPECT_TRUE(ended_once(completion));
    }

    EXPECT_TRUE(tl->holds(device->remote(), count * block, 1));
}

TEST_F(async, unregistered_memory_is_staged_in_the_background)
{
    memh.reset();
    drop_idle_registrations(md);
    counted_completion put;
    guarded_buffer back(size);

    engine_hooks::pause(true);
    const uint64_t maps = engine_hooks::counters().mappings;
    tl->start_put(host.data(), size, device->remote(), &put);
    tl->progress_much();
    EXPECT_EQ(0u, put.calls);
    EXPECT_EQ(maps, engine_hooks::counters().mappings)
        << "staging must not map per call";
    engine_hooks::pause(false);
    tl->flush();
    EXPECT_EQ(1u, put.calls);
    tl->get(back.data(), size, device->remote());
    EXPECT_TRUE(has_pattern(back.data(), size, 1));
}

TEST_F(async, short_operations_go_past_a_full_engine)
{
    std::vector<counted_completion> done(100);
    for (auto &completion : done) {
        tl->start_put(host.data(), block, device->remote(), &completion);
    }
    uint64_t value       = 42;
    uint64_t back        = 0;
    const uint64_t place = device->remote(size - sizeof(value));
    EXPECT_EQ(UCS_OK, tl->put_short(&value, sizeof(value), place));
    EXPECT_EQ(UCS_OK, tl->get_short(&back, sizeof(back), place));
    EXPECT_EQ(value, back);
    for (const auto &completion : done) {
        EXPECT_EQ(0u, completion.calls) << "completions belong to progress";
    }
    tl->flush();
}

TEST_F(async, a_destroyed_endpoint_leaves_its_operations_to_complete)
{
    uct_ep_h doomed = tl->make_ep();
    counted_completion done;
    const uct_iov_t iov{host.data(), block, UCT_MEM_HANDLE_NULL, 0, 1};

    engine_hooks::pause(true);
    ASSERT_EQ(UCS_INPROGRESS,
              uct_ep_put_zcopy(doomed, &iov, 1, device->remote(),
                               UCT_INVALID_RKEY, &done));
    uct_ep_destroy(doomed);
    engine_hooks::pause(false);
    tl->flush();
    EXPECT_EQ(1u, done.calls);
}

TEST_F(async, closing_the_interface_completes_what_is_outstanding)
{
    std::vector<counted_completion> done(200);
    for (auto &completion : done) {
        tl->start_put(host.data(), block, device->remote(), &completion);
    }
    tl.reset();
    for (const auto &completion : done) {
        EXPECT_EQ(1u, completion.calls);
    }
    EXPECT_EQ(UCS_ERR_CANCELED, done.back().status);
}

TEST_F(async, a_completion_may_start_the_next_operation)
{
    struct chain : uct_completion_t {
        transport *tl   = nullptr;
        void *local     = nullptr;
        uint64_t remote = 0;
        unsigned left   = 0;
        unsigned calls  = 0;
    } link;
    link.tl     = tl.get();
    link.local  = host.data();
    link.remote = device->remote();
    link.left   = 1000;
    link.func   = [](uct_completion_t *self) {
        auto *current = static_cast<chain *>(self);
        ++current->calls;
        if (current->left-- > 0) {
            current->count = 1;
            current->tl->start_put(current->local, block, current->remote,
                                     current);
        }
    };
    link.count = 1;
    tl->start_put(host.data(), block, device->remote(), &link);
    tl->flush();
    EXPECT_EQ(1001u, link.calls);
}

} // namespace gaudi::test
