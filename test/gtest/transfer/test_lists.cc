/* SPDX-License-Identifier: BSD-3-Clause */
/* Zero copies that are started by one call, and the records that all take. */
#include "gtest/transfer/fixture.h"

#include "common/ucx_logs.h"
#include "uct/gaudi/base/transfer/rma.h"
#include "uct/gaudi/base/ucx/pending.h"

#include <algorithm>

namespace gaudi::test {

namespace {

constexpr size_t piece     = 100000;
constexpr unsigned records = 8;
constexpr size_t longest   = records / 2;

/* Of what is on a card of ours. A key is what comes of looking for it. */
struct plain_transport : base::rma<plain_transport> {
    struct interface {
        uct_iface_t super;
        base::transfer_engine *engine;
    };
    struct endpoint {
        uct_ep_t super;
        base::flush_domain domain;
        base::pending_group pending;
    };

    static ucs_status_t find_remote(uct_ep_h, uct_rkey_t rkey, base::side &,
                                    uct_completion_t *)
    {
        return static_cast<ucs_status_t>(static_cast<int64_t>(rkey));
    }
};

constexpr auto bad_key = static_cast<uct_rkey_t>(UCS_ERR_REJECTED);

class lists : public transfers {
protected:
    void SetUp() override
    {
        transfers::SetUp();
        ASSERT_FALSE(HasFatalFailure());
        base::transfer_options options;
        options.max_ops = records;
        remake(options);
        at_card.emplace(card(0), (longest + 1) * piece);
        fill_pattern(host.data(), host.size(), 1);
        for (size_t i = 0; i <= longest; ++i) {
            buffers[i] = host.data() + i * piece;
            remotes[i] =
                reinterpret_cast<uintptr_t>(at_card->data()) + i * piece;
        }
        std::ranges::fill(lengths, piece);
        near.engine    = engine.get();
        ep.super.iface = &near.super;
        base::transfer_engine::open(ep.domain);
        const std::vector<char> zeros(host.size());
        write_device(at_card->data(), zeros.data(), zeros.size());
    }
    void TearDown() override
    {
        engine->close(ep.domain);
        at_card.reset();
        transfers::TearDown();
    }

    ucs_status_t put(size_t count, uct_completion_t *completion)
    {
        return plain_transport::zcopy_list(&ep.super, true, buffers, lengths,
                                           remotes, keys, count, completion);
    }

    /* Whether so many have come, and no more. */
    void expect_put(size_t count)
    {
        std::vector<char> there(host.size());
        std::vector<char> wanted(host.size());
        read_device(there.data(), at_card->data(), there.size());
        std::memcpy(wanted.data(), host.data(), count * piece);
        EXPECT_EQ(wanted, there);
    }

    guarded_buffer host{(longest + 1) * piece};
    std::optional<device_buffer> at_card;
    void *buffers[longest + 1];
    size_t lengths[longest + 1];
    uint64_t remotes[longest + 1];
    uct_rkey_t keys[longest + 1] = {};
    counted_completion done;

private:
    plain_transport::interface near {};
    plain_transport::endpoint ep{};
};

TEST_F(lists, end_together)
{
    ASSERT_EQ(longest, engine->longest_list());
    ASSERT_EQ(UCS_INPROGRESS, put(longest, &done));
    wait_for(done);
    EXPECT_EQ(UCS_OK, done.status);
    EXPECT_TRUE(engine->is_idle());
    expect_put(longest);
}

TEST_F(lists, that_fail_in_the_middle_end_once_with_that_error)
{
    keys[2] = bad_key;
    pause(card(0), true);
    ASSERT_EQ(UCS_INPROGRESS, put(longest, &done));
    engine->progress();
    EXPECT_EQ(0u, done.calls) << "what was started has not ended";
    pause(card(0), false);
    wait_for(done);
    flush();
    EXPECT_EQ(1u, done.calls);
    EXPECT_EQ(UCS_ERR_REJECTED, done.status);
    expect_put(2);
}

TEST_F(lists, that_fail_without_a_completion_say_so_at_once)
{
    keys[2] = bad_key;
    EXPECT_EQ(UCS_ERR_REJECTED, put(longest, nullptr));
    flush();
    expect_put(2);
}

TEST_F(lists, whose_first_element_fails_start_nothing)
{
    keys[0] = bad_key;
    EXPECT_EQ(UCS_ERR_REJECTED, put(longest, &done));
    EXPECT_TRUE(engine->is_idle());
    EXPECT_EQ(1, done.count) << "it can be used again";
    expect_put(0);
}

TEST_F(lists, longer_than_the_longest_are_refused)
{
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, put(longest + 1, &done));
    EXPECT_TRUE(engine->is_idle());
    expect_put(0);
}

TEST_F(lists, wait_for_room_for_all_of_them)
{
    pause(card(0), true);
    ASSERT_EQ(UCS_INPROGRESS, put(longest, nullptr));
    ASSERT_EQ(UCS_INPROGRESS, put(1, nullptr));
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, put(longest, &done));
    pause(card(0), false);
    flush();
    EXPECT_EQ(0u, done.calls);
    ASSERT_EQ(UCS_INPROGRESS, put(longest, &done));
    wait_for(done);
    EXPECT_EQ(UCS_OK, done.status);
}

/* Of operations that end well, and of those that are refused. */
TEST_F(lists, give_all_their_records_back)
{
    for (unsigned round = 0; round < 3; ++round) {
        SCOPED_TRACE(round);
        pause(card(0), true);
        ASSERT_EQ(UCS_INPROGRESS, put(longest, nullptr));
        for (unsigned i = longest; i < records; ++i) {
            ASSERT_TRUE(engine->has_room(1));
            ASSERT_EQ(UCS_INPROGRESS, put(1, nullptr));
        }
        EXPECT_FALSE(engine->has_room(1));
        EXPECT_EQ(UCS_ERR_NO_RESOURCE, put(1, nullptr));
        pause(card(0), false);
        flush();
        ASSERT_TRUE(engine->has_room(records));
        char *const behind = at_card->data() + (1ul << 40);
        EXPECT_EQ(UCS_ERR_INVALID_ADDR,
                  engine->start(domain, behind, host.data(), 1, nullptr));
        (void)take_logs();
        ASSERT_TRUE(engine->has_room(records));
    }
}

} // namespace

} // namespace gaudi::test
