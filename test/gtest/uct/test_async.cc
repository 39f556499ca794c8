/* SPDX-License-Identifier: BSD-3-Clause */
/* Zero copy is asynchronous: nothing ends early, each ends once, a fence keeps
 * the order, and what finds no room waits for it. */
#include "gtest/uct/fixture.h"

#include <optional>

namespace gaudi::test {

namespace {

constexpr size_t block = 65536;

class async : public uct {
protected:
    async() { fill_pattern(host.data(), size, 1); }

    static constexpr size_t size = 300 * block;
    guarded_buffer host{size};
    device_buffer device{md, size};
    std::optional<registration> memh{std::in_place, md, host.data(), size};
};

class fence : public uct {
protected:
    static constexpr size_t size = 1 << 20;
    device_buffer device{md, size};
    guarded_buffer host{size};
    guarded_buffer back{size};
};

class resources : public uct {
protected:
    /* Operations that an interface can have outstanding. */
    static constexpr unsigned most = 65536;

    void fill_up()
    {
        ucs_status_t status;
        unsigned started = 0;
        while ((status = tl->put_zcopy(host.data(), 8, device.remote(),
                                       nullptr)) == UCS_INPROGRESS) {
            ++started;
        }
        ASSERT_EQ(UCS_ERR_NO_RESOURCE, status);
        ASSERT_EQ(most, started);
    }

    /* A request that puts once, and notes when it was its turn. */
    pending_request &wait_to_put(uct_ep_h ep)
    {
        requests.push_back(std::make_unique<pending_request>(nullptr));
        pending_request &request = *requests.back();
        request.operation        = [this, &request] {
            const ucs_status_t status =
                tl->put_zcopy(host.data(), block, device.remote(), nullptr);
            if (status == UCS_ERR_NO_RESOURCE) {
                return status;
            }
            order.push_back(&request);
            return UCS_OK;
        };
        EXPECT_EQ(UCS_OK, uct_ep_pending_add(ep, &request, 0));
        return request;
    }

    device_buffer device{md, 64 * block};
    guarded_buffer host{block};
    std::vector<std::unique_ptr<pending_request>> requests;
    std::vector<uct_pending_req_t *> order; /* in which they had their turn */
};

} // namespace

TEST_F(async, a_paused_engine_keeps_zcopy_and_flushes_pending)
{
    counted_completion copied;
    counted_completion ep_flushed;
    counted_completion iface_flushed;

    engine_hooks::pause(true);
    tl->start_put(host.data(), size, device.remote(), &copied);
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
    tl->start_put(host.data(), block, device.remote(), &copied);
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
    tl->start_put(host.data(), block, device.remote(), &first);
    ASSERT_EQ(UCS_INPROGRESS, uct_ep_flush(tl->ep, 0, &flushed));
    for (auto &completion : later) {
        tl->start_put(host.data(), block, device.remote(), &completion);
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
        tl->start_put(host.data() + i * block, block, device.remote(i * block),
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

    EXPECT_TRUE(tl->holds(device.remote(), count * block, 1));
}

TEST_F(async, unregistered_memory_is_staged_in_the_background)
{
    memh.reset();
    drop_idle_registrations(md);
    counted_completion put;
    guarded_buffer back(size);

    engine_hooks::pause(true);
    const uint64_t maps = engine_hooks::counters().mappings;
    tl->start_put(host.data(), size, device.remote(), &put);
    tl->progress_much();
    EXPECT_EQ(0u, put.calls);
    EXPECT_EQ(maps, engine_hooks::counters().mappings)
        << "staging must not map per call";
    engine_hooks::pause(false);
    tl->flush();
    EXPECT_EQ(1u, put.calls);
    tl->get(back.data(), size, device.remote());
    EXPECT_TRUE(has_pattern(back.data(), size, 1));
}

TEST_F(async, short_operations_go_past_a_full_engine)
{
    std::vector<counted_completion> done(100);
    for (auto &completion : done) {
        tl->start_put(host.data(), block, device.remote(), &completion);
    }
    uint64_t value       = 42;
    uint64_t back        = 0;
    const uint64_t place = device.remote(size - sizeof(value));
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
    ASSERT_EQ(UCS_INPROGRESS, uct_ep_put_zcopy(doomed, &iov, 1, device.remote(),
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
        tl->start_put(host.data(), block, device.remote(), &completion);
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
    link.remote = device.remote();
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
    tl->start_put(host.data(), block, device.remote(), &link);
    tl->flush();
    EXPECT_EQ(1001u, link.calls);
}

/* --- what comes after a fence happens after what came before it ----------- */

TEST_F(fence, a_get_behind_it_sees_the_put_before_it)
{
    /* Different engines: without the fence the get would overtake. */
    for (bool whole_iface : {false, true}) {
        fill_pattern(host.data(), size, whole_iface ? 3 : 2);
        tl->start_put(host.data(), size, device.remote());
        ASSERT_EQ(UCS_OK, whole_iface ? uct_iface_fence(tl->iface, 0)
                                      : uct_ep_fence(tl->ep, 0));
        tl->start_get(back.data(), size, device.remote());
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
    tl->start_put(host.data(), size, device.remote(), &before);
    ASSERT_EQ(UCS_OK, uct_ep_fence(tl->ep, 0));
    for (auto &completion : after) {
        tl->start_put(host.data(), size, device.remote(), &completion);
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
        tl->start_put(host.data(), size, device.remote(), &done);
        ASSERT_EQ(UCS_OK, uct_ep_fence(tl->ep, 0));
        ASSERT_EQ(UCS_OK, tl->get_short(back.data(), size, device.remote()));
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
    EXPECT_EQ(UCS_OK, tl->put_short(&byte, 1, device.remote()));
}

/* --- "no resource", and the requests that wait for it --------------------- */

TEST_F(resources, pending_requests_go_out_in_order_when_there_is_room)
{
    std::vector<uct_pending_req_t *> waiting;

    engine_hooks::pause(true);
    fill_up();
    for (unsigned i = 0; i < 10; ++i) {
        waiting.push_back(&wait_to_put(tl->ep));
    }
    tl->progress_much();
    EXPECT_THAT(order, ::testing::IsEmpty());
    engine_hooks::pause(false);
    EXPECT_TRUE(tl->progress_until([&] { return order.size() == 10; }));
    EXPECT_EQ(waiting, order);
    tl->flush();
}

TEST_F(resources, pending_add_says_busy_when_trying_again_would_work)
{
    pending_request request(nullptr);
    EXPECT_EQ(UCS_ERR_BUSY, uct_ep_pending_add(tl->ep, &request, 0));
}

TEST_F(resources, purge_hands_back_the_requests_of_one_endpoint)
{
    uct_ep_h other = tl->make_ep();
    std::vector<uct_pending_req_t *> stay;
    std::vector<uct_pending_req_t *> go;

    engine_hooks::pause(true);
    fill_up();
    for (unsigned i = 0; i < 2; ++i) {
        stay.push_back(&wait_to_put(tl->ep));
        go.push_back(&wait_to_put(other));
    }
    EXPECT_EQ(go, purge_pending(other));
    engine_hooks::pause(false);
    EXPECT_TRUE(tl->progress_until([&] { return order.size() == 2; }));
    EXPECT_EQ(stay, order);
    tl->flush();
    uct_ep_destroy(other);
}

TEST_F(resources, bcopy_runs_out_of_staging_memory_and_recovers)
{
    reopen({{"STAGING_COUNT", "3"}});
    const char bytes[100] = {5};
    char byte             = 0;

    engine_hooks::pause(true);
    EXPECT_EQ(100, tl->put_bcopy(bytes, sizeof(bytes), device.remote()));
    EXPECT_EQ(UCS_ERR_NO_RESOURCE,
              tl->put_bcopy(bytes, sizeof(bytes), device.remote()));
    wait_to_put(tl->ep);
    engine_hooks::pause(false);
    tl->flush();
    tl->read_device(&byte, device.remote(99), 1);
    EXPECT_EQ(1u, order.size());
    tl->flush();
}

TEST_F(resources, a_flush_completion_needs_a_resource_too)
{
    counted_completion flushed;
    engine_hooks::pause(true);
    fill_up();
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, uct_ep_flush(tl->ep, 0, &flushed));
    EXPECT_EQ(UCS_INPROGRESS, uct_ep_flush(tl->ep, 0, nullptr));
    engine_hooks::pause(false);
    tl->flush();
    EXPECT_EQ(0u, flushed.calls);
}

TEST_F(resources, two_interfaces_share_a_card_without_starving)
{
    transport second(md);
    std::vector<counted_completion> done(64);

    /* All slots of the driver are taken by jobs that nobody collects. */
    for (auto &completion : done) {
        tl->start_put(host.data(), 16, device.remote(), &completion);
    }
    char byte = 9;
    EXPECT_EQ(UCS_OK, second.put_short(&byte, 1, device.remote()));
    tl->flush();
    for (const auto &completion : done) {
        EXPECT_TRUE(ended_once(completion));
    }
}

} // namespace gaudi::test
