/* "No resource", and the requests that wait for it. */
#include "gtest/uct/fixture.h"

#include <cstring>
#include <vector>

namespace gaudi::test {

namespace {

constexpr size_t block = 65536;

class resources : public uct {
protected:
    void SetUp() override
    {
        uct::SetUp();
        device = std::make_unique<device_buffer>(md, 64 * block);
        reopen({{"MAX_OPS", "4"}});
    }

    void fill_up()
    {
        ucs_status_t status;
        unsigned started = 0;
        while ((status = tl->put_zcopy(host.data(), block, device->remote(),
                                       nullptr)) == UCS_INPROGRESS) {
            ++started;
        }
        ASSERT_EQ(UCS_ERR_NO_RESOURCE, status);
        ASSERT_EQ(4u, started);
    }

    /* A request that puts once, and notes when it was its turn. */
    pending_request &wait_to_put(uct_ep_h ep)
    {
        requests.push_back(std::make_unique<pending_request>(nullptr));
        pending_request &request = *requests.back();
        request.operation        = [this, &request] {
            const ucs_status_t status =
                tl->put_zcopy(host.data(), block, device->remote(), nullptr);
            if (status == UCS_ERR_NO_RESOURCE) {
                return status;
            }
            order.push_back(&request);
            return UCS_OK;
        };
        EXPECT_EQ(UCS_OK, uct_ep_pending_add(ep, &request, 0));
        return request;
    }

    std::unique_ptr<device_buffer> device;
    guarded_buffer host{block};
    std::vector<std::unique_ptr<pending_request>> requests;
    std::vector<uct_pending_req_t *> order; /* in which they had their turn */
};

} // namespace

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
    EXPECT_EQ(100, tl->put_bcopy(bytes, sizeof(bytes), device->remote()));
    EXPECT_EQ(UCS_ERR_NO_RESOURCE,
              tl->put_bcopy(bytes, sizeof(bytes), device->remote()));
    wait_to_put(tl->ep);
    engine_hooks::pause(false);
    tl->flush();
    tl->read_back(&byte, device->remote(99), 1);
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
    reopen({});
    transport second(md);
    std::vector<counted_completion> done(64);

    /* All slots of the driver are taken by jobs that nobody collects. */
    for (auto &completion : done) {
        tl->start_put(host.data(), 16, device->remote(), &completion);
    }
    char byte = 9;
    EXPECT_EQ(UCS_OK, second.put_short(&byte, 1, device->remote()));
    tl->flush();
    for (const auto &completion : done) {
        EXPECT_TRUE(ended_once(completion));
    }
}

} // namespace gaudi::test
