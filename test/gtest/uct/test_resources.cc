/* "No resource", and the requests that wait for it. */
#include "gtest/uct/fixture.h"

#include <cstring>
#include <vector>

namespace gaudi::test {

namespace {

constexpr size_t block = 65536;

/* A request that puts once, when it is its turn. */
struct waiting_put : uct_pending_req_t {
    waiting_put() : uct_pending_req_t()
    {
        func = [](uct_pending_req_t *self) {
            auto *request = static_cast<waiting_put *>(self);
            ++request->tries;
            ucs_status_t status = request->tl->put_zcopy(
                request->local, block, request->remote, nullptr);
            if (status == UCS_ERR_NO_RESOURCE) {
                return status;
            }
            request->order = ++*request->counter;
            return UCS_OK;
        };
    }

    transport *tl     = nullptr;
    void *local       = nullptr;
    uint64_t remote   = 0;
    unsigned tries    = 0;
    unsigned order    = 0;
    unsigned *counter = nullptr;
};

class resources : public uct {
protected:
    void SetUp() override
    {
        uct::SetUp();
        device = std::make_unique<device_buffer>(md, 64 * block);
        reopen({{"MAX_OPS", "4"}});
    }
    void TearDown() override
    {
        device.reset();
        uct::TearDown();
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

    void prepare(waiting_put &request)
    {
        request.tl      = tl.get();
        request.local   = host.data();
        request.remote  = device->remote();
        request.counter = &order;
    }

    std::unique_ptr<device_buffer> device;
    guarded_buffer host{block};
    unsigned order = 0;
};

} // namespace

TEST_F(resources, pending_requests_go_out_in_order_when_there_is_room)
{
    std::vector<waiting_put> requests(10);

    engine_hooks::pause(true);
    fill_up();
    for (auto &request : requests) {
        prepare(request);
        ASSERT_EQ(UCS_OK, uct_ep_pending_add(tl->ep, &request, 0));
    }
    for (unsigned i = 0; i < 100; ++i) {
        tl->progress();
    }
    EXPECT_EQ(0u, order);
    engine_hooks::pause(false);
    while (order < requests.size()) {
        tl->progress();
    }
    for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(i + 1, requests[i].order);
    }
    tl->flush();
}

TEST_F(resources, pending_add_says_busy_when_trying_again_would_work)
{
    waiting_put request;
    prepare(request);
    EXPECT_EQ(UCS_ERR_BUSY, uct_ep_pending_add(tl->ep, &request, 0));
}

TEST_F(resources, purge_hands_back_the_requests_of_one_endpoint)
{
    uct_ep_h other = tl->make_ep();
    std::vector<waiting_put> requests(4);

    engine_hooks::pause(true);
    fill_up();
    for (size_t i = 0; i < requests.size(); ++i) {
        prepare(requests[i]);
        ASSERT_EQ(UCS_OK, uct_ep_pending_add((i % 2 == 0) ? tl->ep : other,
                                             &requests[i], 0));
    }
    std::vector<uct_pending_req_t *> purged;
    uct_ep_pending_purge(
        other,
        [](uct_pending_req_t *self, void *arg) {
            static_cast<std::vector<uct_pending_req_t *> *>(arg)->push_back(
                self);
        },
        &purged);
    EXPECT_THAT(purged, ::testing::ElementsAre(&requests[1], &requests[3]));
    engine_hooks::pause(false);
    while (order < 2) {
        tl->progress();
    }
    EXPECT_EQ(1u, requests[0].order);
    EXPECT_EQ(2u, requests[2].order);
    tl->flush();
    uct_ep_destroy(other);
}

TEST_F(resources, bcopy_runs_out_of_staging_memory_and_recovers)
{
    reopen({{"STAGING_COUNT", "3"}});
    auto pack = [](void *dst, void *) -> size_t {
        std::memset(dst, 5, 100);
        return 100;
    };
    char byte = 0;

    engine_hooks::pause(true);
    EXPECT_EQ(100, uct_ep_put_bcopy(tl->ep, pack, nullptr, device->remote(),
                                    UCT_INVALID_RKEY));
    EXPECT_EQ(UCS_ERR_NO_RESOURCE,
              uct_ep_put_bcopy(tl->ep, pack, nullptr, device->remote(),
                               UCT_INVALID_RKEY));
    waiting_put request;
    prepare(request);
    EXPECT_EQ(UCS_OK, uct_ep_pending_add(tl->ep, &request, 0));
    engine_hooks::pause(false);
    tl->flush();
    tl->read_back(&byte, device->remote(99), 1);
    EXPECT_EQ(1u, request.order);
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
        ASSERT_EQ(UCS_INPROGRESS, tl->put_zcopy(host.data(), 16,
                                                device->remote(), &completion));
    }
    char byte = 9;
    EXPECT_EQ(UCS_OK, uct_ep_put_short(second.ep, &byte, 1, device->remote(),
                                       UCT_INVALID_RKEY));
    tl->flush();
    for (const auto &completion : done) {
        EXPECT_EQ(1u, completion.calls);
        EXPECT_EQ(UCS_OK, completion.status);
    }
}

} // namespace gaudi::test
