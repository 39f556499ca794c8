/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies that are under way together: none waits for a longer one, nor sleeps
 * for ever. */
#include "gtest/transfer/fixture.h"

#include <cstdlib>

#include <poll.h>

namespace gaudi::test {

namespace {

constexpr size_t large  = 16 << 20;
constexpr size_t medium = 2 << 20;
constexpr size_t whole  = large + medium;

/* Copies beside one that begins at a side have memory of their own: nothing
 * says in which order the card accesses what both of them use. */
base::side beside_large(base::side of)
{
    of.address += large;
    return of;
}

/* Cards run when the engine asks them, and do not go on while this thread has
 * to wait for the processor. Before the cards are opened. */
struct no_engine_threads {
    no_engine_threads() { setenv("HLTHUNK_EMU_ENGINES", "0", 1); }
};

class scheduling : private no_engine_threads, public transfers {
protected:
    void SetUp() override
    {
        transfers::SetUp();
        ASSERT_FALSE(HasFatalFailure());
        child = child_memory::create(whole);
        far   = far_memory(whole);
        near  = std::make_unique<device_buffer>(card(0), whole);
        memory.emplace(host.data(), whole);
    }
    void TearDown() override
    {
        memory.reset();
        near.reset();
        far.reset();
        child.reset();
        transfers::TearDown();
    }

    /* Start a large copy, then another one: that ends first. */
    void expect_overtaken(const base::side &dst, const base::side &src,
                          size_t length)
    {
        counted_completion first;
        counted_completion second;
        pause(card(0), true);
        ASSERT_EQ(UCS_INPROGRESS,
                  engine->start(domain, dst, src, large, &first));
        ASSERT_EQ(UCS_INPROGRESS,
                  engine->start(domain, beside_large(dst), beside_large(src),
                                length, &second));
        pause(card(0), false);
        wait_for(second);
        EXPECT_EQ(0u, first.calls);
        wait_for(first);
        EXPECT_EQ(UCS_OK, first.status);
        EXPECT_EQ(UCS_OK, second.status);
    }

    std::unique_ptr<child_memory> child;
    std::unique_ptr<card_memory> far;
    std::unique_ptr<device_buffer> near;
    guarded_buffer host{whole};
    guarded_buffer plain{whole}; /* not registered */
    std::optional<registration> memory;
};

} // namespace

TEST_F(scheduling, a_shorter_copy_overtakes_a_large_one_on_every_way)
{
    for (size_t length : {size_t{8}, medium}) {
        SCOPED_TRACE(length);
        const std::pair<const char *, std::pair<base::side, base::side>>
            ways[] = {
                {"registered to card", {near->data(), host.data()}},
                {"card to registered", {host.data(), near->data()}},
                {"host to card", {near->data(), plain.data()}},
                {"card to host", {plain.data(), near->data()}},
                {"card to far card", {far->at(0), near->data()}},
                {"far card to card", {near->data(), far->at(0)}},
                {"registered to far card", {far->at(0), host.data()}},
                {"far card to registered", {host.data(), far->at(0)}},
                {"host to far card", {far->at(0), plain.data()}},
                {"far card to host", {plain.data(), far->at(0)}},
                {"card to far host", {child->at(0), near->data()}},
                {"far host to card", {near->data(), child->at(0)}},
                {"host to far host", {child->at(0), host.data()}},
                {"far host to host", {host.data(), child->at(0)}},
            };
        for (const auto &[name, sides] : ways) {
            SCOPED_TRACE(name);
            expect_overtaken(sides.first, sides.second, length);
        }
    }
}

TEST_F(scheduling, copies_of_both_directions_share_the_staging_memory)
{
    /* Which of the queues is looked at first must not matter. */
    const std::pair<base::side, base::side> ways[] = {
        {near->data(), plain.data()},
        {plain.data(), near->data()},
        {child->at(0), near->data()}};
    for (size_t first = 0; first < 3; ++first) {
        for (size_t second = 0; second < 3; ++second) {
            SCOPED_TRACE(std::to_string(first) + " " + std::to_string(second));
            counted_completion done[2];
            ASSERT_EQ(UCS_INPROGRESS,
                      engine->start(domain, ways[first].first,
                                    ways[first].second, large, &done[0]));
            ASSERT_EQ(UCS_INPROGRESS,
                      engine->start(domain, beside_large(ways[second].first),
                                    beside_large(ways[second].second), medium,
                                    &done[1]));
            wait_for(done[1]);
            EXPECT_EQ(0u, done[0].calls);
            flush();
        }
    }
}

/* Of operations that end well, and of those that are refused. */
TEST_F(scheduling, records_are_had_again)
{
    base::transfer_options options;
    options.max_ops = 8;
    remake(options);
    for (unsigned round = 0; round < 3; ++round) {
        SCOPED_TRACE(round);
        pause(card(0), true);
        for (unsigned i = 0; i < options.max_ops; ++i) {
            EXPECT_TRUE(engine->has_resources());
            EXPECT_EQ(UCS_INPROGRESS, engine->start(domain, near->data(),
                                                    host.data(), 8, nullptr));
        }
        EXPECT_FALSE(engine->has_resources());
        EXPECT_EQ(UCS_ERR_NO_RESOURCE,
                  engine->start(domain, near->data(), host.data(), 8, nullptr));
        pause(card(0), false);
        flush();
        EXPECT_EQ(UCS_ERR_INVALID_ADDR,
                  engine->start(domain, near->data() + (1ul << 40), host.data(),
                                1, nullptr));
        expect_log("no allocation");
    }
}

TEST_F(scheduling, copies_for_the_kernel_are_something_to_do_at_once)
{
    int fd;
    ASSERT_EQ(UCS_OK, engine->event_fd(fd));
    counted_completion done;
    ASSERT_EQ(UCS_INPROGRESS,
              engine->start(domain, child->at(0), host.data(), medium, &done));
    EXPECT_EQ(UCS_ERR_BUSY, engine->arm());
    wait_for(done);
    EXPECT_EQ(UCS_OK, engine->arm());
}

TEST_F(scheduling, every_piece_that_ends_is_an_event)
{
    /* What waits for room in the window must not wait for an event that never
     * comes. */
    int fd;
    ASSERT_EQ(UCS_OK, engine->event_fd(fd));
    counted_completion done[2];
    ASSERT_EQ(UCS_INPROGRESS, engine->start(domain, near->data(), host.data(),
                                            large, &done[0]));
    const device_buffer other(card(0), large);
    ASSERT_EQ(UCS_INPROGRESS, engine->start(domain, child->at(0), other.data(),
                                            large, &done[1]));
    while ((done[0].calls == 0) || (done[1].calls == 0)) {
        engine->progress();
        const ucs_status_t status = engine->arm();
        if (status == UCS_OK) {
            pollfd wanted{fd, POLLIN, 0};
            if (engine->is_idle()) {
                break;
            }
            ASSERT_EQ(1, poll(&wanted, 1, 20000)) << "a wakeup was lost";
        } else {
            ASSERT_EQ(UCS_ERR_BUSY, status);
        }
    }
    EXPECT_EQ(1u, done[0].calls);
    EXPECT_EQ(1u, done[1].calls);
}

} // namespace gaudi::test
