/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of another process that refuses, goes away, or is given up. */
#include "gtest/transfer/fixture.h"

namespace gaudi::test {

namespace {

constexpr size_t large = 64 << 20;

using remote_errors = transfers;

} // namespace

TEST_F(remote_errors, memory_that_is_not_there_is_an_error)
{
    auto child           = child_memory::create(4096);
    child_memory *memory = child.get();
    device_buffer device(card(0), 4096);
    char host[4096] = {};
    /* The child maps whole pages; what is behind them nobody knows. */
    class elsewhere final : public counted_memory {
    public:
        explicit elsewhere(const util::process_memory *of)
            : counted_memory(0, 4096), of_(of)
        {}
        const util::process_memory *host() override { return of_; }

    private:
        const util::process_memory *of_;
    } gone(memory->host());

    for (void *local :
         {static_cast<void *>(host), static_cast<void *>(device.data())}) {
        EXPECT_EQ(UCS_ERR_INVALID_ADDR, engine->copy(gone.at(0), local, 8));
        expect_log("Bad address");
        EXPECT_EQ(UCS_ERR_INVALID_ADDR, engine->copy(local, gone.at(0), 8));
        expect_log("Bad address");
        counted_completion done;
        ASSERT_EQ(UCS_INPROGRESS,
                  engine->start(domain, gone.at(0), local, 4096, &done));
        wait_for(done);
        EXPECT_EQ(UCS_ERR_INVALID_ADDR, done.status);
        expect_log("Bad address");
    }
    EXPECT_EQ(6u, gone.holds);
    EXPECT_EQ(6u, gone.releases);
}

TEST_F(remote_errors, a_bad_pointer_here_is_an_error_and_lets_go)
{
    auto child = child_memory::create(4096);
    auto far   = far_memory(4096);
    void *none = reinterpret_cast<void *>(0x1001ffff00000000);
    for (counted_memory *memory : {static_cast<counted_memory *>(child.get()),
                                   static_cast<counted_memory *>(far.get())}) {
        EXPECT_EQ(UCS_ERR_INVALID_ADDR, engine->copy(memory->at(0), none, 8));
        expect_log("in no allocation");
        EXPECT_EQ(memory->holds, memory->releases);
    }
}

TEST_F(remote_errors, without_room_nothing_is_held)
{
    base::transfer_options options;
    options.max_ops = 1;
    remake(options);
    auto far        = far_memory(4096);
    char host[8]    = {};
    const auto pack = [](void *, void *) -> size_t { return 8; };
    ASSERT_EQ(UCS_INPROGRESS,
              engine->start(domain, far->at(0), host, 8, nullptr));
    EXPECT_EQ(UCS_ERR_NO_RESOURCE,
              engine->start(domain, far->at(0), host, 8, nullptr));
    EXPECT_EQ(UCS_ERR_NO_RESOURCE,
              engine->start_packed(domain, far->at(0), pack, nullptr));
    EXPECT_EQ(UCS_ERR_NO_RESOURCE,
              engine->start_unpacked(domain, far->at(0), 8, unpack_by_memcpy(),
                                     host, nullptr));
    EXPECT_EQ(far->releases + 1, far->holds);
    flush();
    EXPECT_EQ(far->releases, far->holds);
}

TEST_F(remote_errors, a_canceled_copy_ends_once_and_the_others_go_on)
{
    auto child = child_memory::create(large);
    auto far   = far_memory(large);
    guarded_buffer host(large);
    device_buffer device(card(0), large);
    base::flush_domain other;
    base::transfer_engine::open(other);

    counted_completion given_up[4];
    counted_completion kept;
    counted_completion flushed;
    far->process->is_stopped = true;
    pause(card(0), true);
    ASSERT_EQ(UCS_INPROGRESS, engine->start(domain, child->at(0), host.data(),
                                            large, &given_up[0]));
    ASSERT_EQ(UCS_INPROGRESS, engine->start(domain, far->at(0), host.data(),
                                            large, &given_up[1]));
    ASSERT_EQ(UCS_INPROGRESS, engine->start(domain, device.data(), far->at(0),
                                            large, &given_up[2]));
    engine->fence();
    ASSERT_EQ(UCS_INPROGRESS, engine->start(domain, child->at(0), device.data(),
                                            large, &given_up[3]));
    ASSERT_EQ(UCS_INPROGRESS, engine->flush(&domain, &flushed));
    ASSERT_EQ(UCS_INPROGRESS,
              engine->start(other, child->at(0), host.data(), 4096, &kept));
    engine->progress();
    engine->cancel(domain, UCS_ERR_ENDPOINT_TIMEOUT);
    engine->progress();
    EXPECT_EQ(1u, given_up[0].calls);
    EXPECT_EQ(0u, given_up[1].calls) << "the owner still has pieces of it";
    EXPECT_EQ(1u, given_up[3].calls);
    far->process->is_stopped = false;
    pause(card(0), false);
    flush();
    for (const counted_completion &each : given_up) {
        EXPECT_EQ(1u, each.calls);
        EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, each.status);
    }
    EXPECT_EQ(1u, flushed.calls);
    EXPECT_EQ(1u, kept.calls);
    EXPECT_EQ(UCS_OK, kept.status);
    EXPECT_EQ(child->holds, child->releases);
    EXPECT_EQ(far->holds, far->releases);
    engine->close(other);
}

TEST_F(remote_errors, an_engine_that_goes_lets_everything_go)
{
    auto child = child_memory::create(large);
    auto far   = far_memory(large);
    guarded_buffer host(large);
    device_buffer to_card(card(0), large);
    device_buffer from_card(card(0), large);
    counted_completion done[3];
    ASSERT_EQ(UCS_INPROGRESS, engine->start(domain, child->at(0), host.data(),
                                            large, &done[0]));
    ASSERT_EQ(UCS_INPROGRESS, engine->start(domain, to_card.data(),
                                            child->at(0), large, &done[1]));
    ASSERT_EQ(UCS_INPROGRESS, engine->start(domain, far->at(0),
                                            from_card.data(), large, &done[2]));
    engine->close(domain);
    engine.reset();
    for (const counted_completion &each : done) {
        EXPECT_EQ(1u, each.calls);
        EXPECT_EQ(UCS_ERR_CANCELED, each.status);
    }
    EXPECT_EQ(1u, child->releases);
    EXPECT_EQ(1u, far->releases);
}

} // namespace gaudi::test
