/* SPDX-License-Identifier: BSD-3-Clause */
/* Zero copy is asynchronous: nothing ends early, and what finds no room waits
 * for it. */
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

class resources : public uct {
protected:
    void fill_up()
    {
        ucs_status_t status;
        while ((status = tl->try_put_zcopy(host.data(), 8, device.remote(),
                                           nullptr)) == UCS_INPROGRESS) {}
        ASSERT_EQ(UCS_ERR_NO_RESOURCE, status);
    }

    /* A request that puts once, and notes when it was its turn. */
    pending_request &wait_to_put(uct_ep_h ep)
    {
        requests.push_back(std::make_unique<pending_request>(nullptr));
        pending_request &request = *requests.back();
        request.operation        = [this, &request] {
            const ucs_status_t status =
                tl->try_put_zcopy(host.data(), block, device.remote(), nullptr);
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

TEST_F(async, get_bcopy_passes_any_argument_to_another_callback)
{
    tl->put(host.data(), size, device.remote());
    static std::vector<char> data;
    static void *seen;
    auto unpack = [](void *arg, const void *bytes, size_t length) {
        const auto *first_byte = static_cast<const char *>(bytes);
        seen                   = arg;
        data.assign(first_byte, first_byte + length);
    };
    void *cookie = reinterpret_cast<void *>(0x4242000000000001);
    EXPECT_EQ(UCS_INPROGRESS,
              uct_ep_get_bcopy(tl->ep, unpack, cookie, 100, device.remote(),
                               UCT_INVALID_RKEY, nullptr));
    tl->flush();
    EXPECT_EQ(cookie, seen);
    ASSERT_EQ(100u, data.size());
    EXPECT_TRUE(has_pattern(data.data(), data.size(), 1));
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

/* A flush has ended with the copy that it waited for, and is not told yet when
 * that copy's completion destroys the endpoint. */
TEST_F(async, a_completion_that_destroys_its_endpoint_ends_a_flush_once)
{
    struct destroying : uct_completion_t {
        endpoint to;
    } done{};
    done.to     = {tl->make_ep(), tl->rkey};
    done.count  = 1;
    done.status = UCS_OK;
    done.func   = [](uct_completion_t *self) {
        uct_ep_destroy(static_cast<destroying *>(self)->to.ep);
    };
    counted_completion flushed;
    counted_completion behind;

    engine_hooks::pause(true);
    done.to.start_put(host.data(), block, device.remote(), &done);
    ASSERT_EQ(UCS_INPROGRESS, uct_ep_flush(done.to.ep, 0, &flushed));
    tl->start_put(host.data(), block, device.remote(block), &behind);
    engine_hooks::pause(false);
    tl->flush();
    EXPECT_TRUE(ended_once(flushed, UCS_ERR_CANCELED));
    EXPECT_TRUE(ended_once(behind));
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
