/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory of another process that this one has copied by the process that
 * has it: what an engine does with its queue. */
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
        next.reset();
        transfers::TearDown();
    }

    void expect_far(uint64_t seed, size_t size)
    {
        std::vector<char> seen(size);
        far->read(seen.data(), size);
        EXPECT_TRUE(has_pattern(seen.data(), size, seed));
    }

    /* Fill the far memory. */
    void fill_far(uint64_t seed)
    {
        std::vector<char> text(length);
        fill_pattern(text.data(), length, seed);
        far->write(text.data(), length);
    }

    std::unique_ptr<card_memory> far;
    std::unique_ptr<card_memory> next; /* of another process */
};

} // namespace

/* The other process's card copies, to and from chunks that ours reads and
 * writes. */
TEST_F(owner_copies, go_through_chunks_of_both)
{
    far = far_memory(length);
    device_buffer near(card(0), length);
    std::vector<char> text(length);
    std::vector<char> seen(length);
    uint64_t seed = 0;
    for (const size_t size : {size_t{1}, size_t{4097}, length}) {
        fill_pattern(text.data(), size, ++seed);
        write_device(near.data(), text.data(), size);
        counted_completion done[2];
        ASSERT_EQ(UCS_INPROGRESS, engine->start(domain, far->at(0), near.data(),
                                                size, &done[0]));
        wait_for(done[0]);
        EXPECT_EQ(UCS_OK, done[0].status);
        expect_far(seed, size);

        fill_far(++seed);
        EXPECT_EQ(UCS_OK, engine->copy(near.data(), far->at(0), size));
        read_device(seen.data(), near.data(), size);
        EXPECT_TRUE(has_pattern(seen.data(), size, seed));

        fill_pattern(text.data(), size, ++seed);
        EXPECT_EQ(UCS_OK, engine->copy(far->at(0), text.data(), size));
        expect_far(seed, size);
        fill_far(++seed);
        ASSERT_EQ(UCS_INPROGRESS, engine->start(domain, seen.data(), far->at(0),
                                                size, &done[1]));
        wait_for(done[1]);
        EXPECT_TRUE(has_pattern(seen.data(), size, seed));
    }
    EXPECT_EQ(1u, far->process->made);
}

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
    EXPECT_EQ(UCS_ERR_REJECTED, done[0].status);
    EXPECT_EQ(UCS_ERR_REJECTED, done[1].status);
    EXPECT_EQ(UCS_ERR_REJECTED, done[2].status);
    EXPECT_EQ(UCS_OK, done[3].status);
    expect_far(5, length);

    far->process->over = 2;
    EXPECT_EQ(UCS_OK, engine->copy(host.data(), far->at(0), 1));
    EXPECT_EQ(1u, far->process->queues);
    EXPECT_EQ(3u, far->process->made);
}

/* Channels are looked over when another process is met. */
TEST_F(owner_copies, may_be_over_while_that_is_found_out)
{
    char byte = 0;
    for (auto *const each : {&far, &next}) {
        *each = far_memory(length);
    }
    EXPECT_EQ(UCS_OK, engine->copy(far->at(0), &byte, 1));
    far->process->over  = 1;
    far->process->looks = 1;
    EXPECT_EQ(UCS_OK, engine->copy(&byte, next->at(0), 1));
    EXPECT_EQ(1u, far->process->queues); /* it is known yet */
    EXPECT_EQ(UCS_OK, engine->copy(&byte, far->at(0), 1));
    EXPECT_EQ(1u, far->process->queues);
    EXPECT_EQ(2u, far->process->made);
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

} // namespace gaudi::test
