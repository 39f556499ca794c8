/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of other processes: what an engine does with the queue of a process
 * that copies, and what it can without a card. */
#include "gtest/transfer/fixture.h"

#include "common/process_state.h"
#include "common/ucx_logs.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>

namespace gaudi::test {

namespace {

constexpr size_t length = (3 << 20) + 1;

class owner_copies : public transfers {
protected:
    void TearDown() override
    {
        far.reset();
        transfers::TearDown();
    }

    void expect_far(uint64_t seed, size_t size)
    {
        std::vector<char> seen(size);
        far->read(seen.data(), size);
        EXPECT_TRUE(has_pattern(seen.data(), size, seed));
    }

    std::unique_ptr<card_memory> far;
};

using transfers_without_card = transfers;

} // namespace

TEST_F(owner_copies, that_are_refused_say_why)
{
    far       = far_memory(length);
    char byte = 0;
    for (const auto &[error, status] :
         {std::pair{-EOPNOTSUPP, UCS_ERR_UNSUPPORTED},
          {-ENOMEM, UCS_ERR_NO_MEMORY},
          {-EMFILE, UCS_ERR_IO_ERROR}}) {
        far->process->refuses = error;
        EXPECT_EQ(status, engine->copy(&byte, far->at(0), 1));
        expect_log(std::strerror(-error));
    }
    far->process->refuses = 0;
    EXPECT_EQ(UCS_OK, engine->copy(&byte, far->at(0), 1));
    EXPECT_EQ(4u, far->process->asked);
}

/* Which takes long. */
TEST_F(owner_copies, that_get_no_answer_do_not_ask_at_each_operation)
{
    constexpr unsigned many = 50;
    far                     = far_memory(length);
    far->process->refuses   = -ETIMEDOUT;
    far->process->patience  = std::chrono::milliseconds(50);
    char byte               = 0;
    for (unsigned i = 0; i < many; ++i) {
        EXPECT_EQ(UCS_ERR_TIMED_OUT, engine->copy(&byte, far->at(0), 1));
        expect_log(std::strerror(ETIMEDOUT));
    }
    EXPECT_GT(many / 2, far->process->asked);
    far->process->refuses = 0;
    EXPECT_TRUE(eventually([&] {
        const bool works = engine->copy(&byte, far->at(0), 1) == UCS_OK;
        (void)take_logs();
        return works;
    }));
}

/* A connection that is over stays as long as anything uses it. */
TEST_F(owner_copies, that_are_over_end_and_the_next_ones_connect_anew)
{
    far = far_memory(length);
    device_buffer near(card(0), length);
    std::vector<char> host(length);
    counted_completion done[4];
    far->process->is_stopped = true;
    EXPECT_EQ(UCS_INPROGRESS,
              engine->start(domain, far->at(0), near.data(), length, &done[0]));
    EXPECT_EQ(UCS_INPROGRESS,
              engine->start(domain, near.data(), far->at(0), length, &done[1]));
    EXPECT_EQ(UCS_INPROGRESS,
              engine->start(domain, far->at(0), host.data(), length, &done[2]));
    engine->progress();
    far->process->over       = 1;
    far->process->is_stopped = false;
    fill_pattern(host.data(), length, 5);
    EXPECT_EQ(UCS_INPROGRESS,
              engine->start(domain, far->at(0), host.data(), length, &done[3]));
    EXPECT_EQ(2u, far->process->queues);
    for (const counted_completion &each : done) {
        wait_for(each);
        EXPECT_EQ(1u, each.calls);
    }
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, done[0].status);
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, done[1].status);
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, done[2].status);
    EXPECT_EQ(UCS_OK, done[3].status);
    expect_far(5, length);

    far->process->over = 2;
    EXPECT_EQ(UCS_OK, engine->copy(host.data(), far->at(0), 1));
    EXPECT_EQ(1u, far->process->queues);
    EXPECT_EQ(3u, far->process->made);
}

/* What another process does not get on with holds up nobody else. */
TEST_F(owner_copies, that_are_stuck_leave_room_for_others)
{
    far = far_memory(length);
    device_buffer near(card(0), length);
    device_buffer free(card(0), length);
    std::vector<char> host(length);
    std::vector<char> more(length);
    counted_completion stuck[2];
    counted_completion done;
    far->process->is_stopped = true;
    EXPECT_EQ(UCS_INPROGRESS, engine->start(domain, far->at(0), near.data(),
                                            length, &stuck[0]));
    EXPECT_EQ(UCS_INPROGRESS, engine->start(domain, host.data(), far->at(0),
                                            length, &stuck[1]));
    EXPECT_EQ(UCS_INPROGRESS,
              engine->start(domain, free.data(), more.data(), length, &done));
    wait_for(done);
    EXPECT_EQ(0u, stuck[0].calls + stuck[1].calls);
    far->process->is_stopped = false;
    wait_for(stuck[0]);
    wait_for(stuck[1]);
}

TEST_F(transfers_without_card, reach_host_memory_of_another_process)
{
    constexpr size_t length = (3 << 20) + 1;
    remake_without_card();
    auto child = child_memory::create(length);
    guarded_buffer from(length);
    guarded_buffer to(length);
    fill_pattern(from.data(), length, 5);
    counted_completion done[2];
    ASSERT_EQ(UCS_INPROGRESS, engine->start(domain, child->at(0), from.data(),
                                            length, &done[0]));
    wait_for(done[0]);
    ASSERT_EQ(UCS_INPROGRESS,
              engine->start(domain, to.data(), child->at(0), length, &done[1]));
    wait_for(done[1]);
    EXPECT_TRUE(has_pattern(to.data(), length, 5));

    std::memset(to.data(), 0, length);
    ASSERT_EQ(UCS_OK, engine->copy(to.data(), from.data(), length));
    EXPECT_TRUE(has_pattern(to.data(), length, 5));
}

TEST_F(transfers_without_card, use_the_cards_that_are_open_by_then)
{
    remake_without_card();
    device_buffer near(card(0), 4096);
    char from[8] = "1234567";
    char to[8]   = {};
    EXPECT_EQ(UCS_OK, engine->copy(near.data(), from, sizeof(from)));
    EXPECT_EQ(UCS_OK, engine->copy(to, near.data(), sizeof(to)));
    EXPECT_STREQ(from, to);
}

} // namespace gaudi::test
