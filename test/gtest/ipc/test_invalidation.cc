/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that its owner takes back while others use it. */
#include "common/process_state.h"
#include "common/ucx_logs.h"
#include "gtest/ipc/exporter.h"
#include "gtest/ipc/fixture.h"

#include <csignal>
#include <memory>
#include <vector>

#include <unistd.h>

namespace gaudi::test {

namespace {

using invalidation = keys_test;

bool is_over(exporter_process &of)
{
    return of.progress_invalidation() != UCS_INPROGRESS;
}

TEST_F(invalidation, of_unused_memory_is_over_at_once)
{
    exporter_process other;
    const auto key = other.key(other.allocate(mebi, 1), mebi);
    EXPECT_TRUE(other.invalidate(key));
    const auto used = other.key(other.allocate(mebi, 1), mebi);
    unpacked remote(used);
    ASSERT_EQ(remote->hold(), UCS_OK);
    remote->release();
    EXPECT_TRUE(other.invalidate(used));
    EXPECT_EQ(remote->hold(), UCS_ERR_CONNECTION_RESET);
}

TEST_F(invalidation, waits_for_those_who_use_the_memory)
{
    exporter_process other;
    for (const bool of_device : {true, false}) {
        const uint64_t at =
            of_device ? other.allocate(mebi, 6) : other.allocate_host(mebi, 6);
        const auto key = other.key(at, mebi);
        unpacked remote(key);
        ASSERT_EQ(remote.status, UCS_OK);
        ASSERT_EQ(remote->hold(), UCS_OK);
        ASSERT_EQ(remote->hold(), UCS_OK);
        EXPECT_FALSE(other.invalidate(key));
        EXPECT_EQ(other.progress_invalidation(), UCS_INPROGRESS);
        EXPECT_EQ(remote->hold(), UCS_ERR_CONNECTION_RESET);
        remote->release();
        EXPECT_EQ(other.progress_invalidation(), UCS_INPROGRESS);
        remote->release();
        EXPECT_EQ(other.progress_invalidation(), UCS_OK);
    }
}

TEST_F(invalidation, does_not_wait_for_the_dead)
{
    exporter_process other;
    const auto key = other.key(other.allocate(mebi, 6), mebi);
    key_user user(key);
    EXPECT_FALSE(other.invalidate(key));
    EXPECT_FALSE(is_over(other));
    user.kill(SIGKILL);
    (void)user.wait();
    EXPECT_TRUE(eventually([&] { return is_over(other); }));
    EXPECT_EQ(other.progress_invalidation(), UCS_OK);
}

/* Neither the invalidation nor progress: the test would be over. */
TEST_F(invalidation, waits_for_no_answer_of_stopped_processes)
{
    child_options options;
    options.environment = {{"UCX_GAUDI_IPC_TIMEOUT", "1000s"}};
    exporter_process other(options);
    (void)other.ask("timeout", 1000000);
    const auto key = other.key(other.allocate(mebi, 6), mebi);
    std::vector<std::unique_ptr<key_user>> users;
    for (int i = 0; i < 3; ++i) {
        users.push_back(std::make_unique<key_user>(key));
        users.back()->stop();
    }
    /* Its thread of files may just be closing some. */
    const uint64_t before = other.ask_number("open_files");
    EXPECT_FALSE(other.invalidate(key));
    for (int i = 0; i < 10; ++i) {
        EXPECT_FALSE(is_over(other));
    }
    EXPECT_LE(other.ask_number("open_files"), before);
    for (const auto &user : users) {
        user->kill(SIGKILL);
        (void)user->wait();
    }
    EXPECT_TRUE(eventually([&] { return is_over(other); }));
    EXPECT_EQ(other.progress_invalidation(), UCS_OK);
}

TEST_F(invalidation, gives_up_after_a_time)
{
    exporter_process other;
    (void)other.ask("timeout", 100);
    const auto key = other.key(other.allocate(mebi, 6), mebi);
    unpacked remote(key);
    ASSERT_EQ(remote->hold(), UCS_OK);
    EXPECT_FALSE(other.invalidate(key));
    EXPECT_TRUE(eventually([&] { return is_over(other); }));
    EXPECT_EQ(other.progress_invalidation(), UCS_ERR_TIMED_OUT);
    EXPECT_THAT(other.ask("warning"),
                ::testing::HasSubstr("process " + std::to_string(getpid())));
    remote->release();
}

/* As UCP demands from 1.16 on. */
TEST_F(invalidation, can_be_over_when_the_deregistration_returns)
{
    exporter_process other;
    const auto unused = other.key(other.allocate(mebi, 6), mebi);
    other.start_invalidation(unused);
    EXPECT_EQ(other.end_invalidation(), UCS_OK);

    const auto key = other.key(other.allocate(mebi, 6), mebi);
    unpacked remote(key);
    ASSERT_EQ(remote->hold(), UCS_OK);
    other.start_invalidation(key);
    EXPECT_TRUE(eventually([&] {
        const ucs_status_t status = remote->hold();
        if (status == UCS_OK) {
            remote->release();
        }
        return status == UCS_ERR_CONNECTION_RESET;
    }));
    EXPECT_FALSE(other.process.has_output(100));
    remote->release();
    EXPECT_EQ(other.end_invalidation(), UCS_OK);
}

TEST_F(invalidation, gives_up_after_a_time_within_the_deregistration)
{
    exporter_process other;
    (void)other.ask("timeout", 100);
    const auto key = other.key(other.allocate(mebi, 6), mebi);
    key_user user(key);
    user.stop(); /* it does not answer */
    other.start_invalidation(key);
    EXPECT_EQ(other.end_invalidation(), UCS_ERR_TIMED_OUT);
    EXPECT_THAT(other.ask("warning"),
                ::testing::HasSubstr("process " + std::to_string(user.pid())));
    user.kill(SIGKILL);
    (void)user.wait();
}

TEST_F(invalidation, needs_a_completion)
{
    char bytes[64];
    ipc::wire_key key;
    uct_mem_h memh = register_with_key(md, bytes, sizeof(bytes), key);
    uct_md_mem_dereg_params_t params{};
    params.field_mask =
        UCT_MD_MEM_DEREG_FIELD_MEMH | UCT_MD_MEM_DEREG_FIELD_FLAGS;
    params.memh  = memh;
    params.flags = UCT_MD_MEM_DEREG_FLAG_INVALIDATE;
    EXPECT_EQ(uct_md_mem_dereg_v2(md, &params), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(uct_md_mem_dereg(md, memh), UCS_OK);
    for (const std::string &line : take_logs()) {
        EXPECT_THAT(line, ::testing::HasSubstr("completion"));
    }
}

} // namespace

} // namespace gaudi::test
