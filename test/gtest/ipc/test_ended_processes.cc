/* SPDX-License-Identifier: BSD-3-Clause */
/* Exporters and importers that end, or become another program. */
#include "common/process_state.h"
#include "common/ucx_logs.h"
#include "gtest/ipc/exporter.h"
#include "gtest/ipc/fixture.h"

#include <signal.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

using ended_processes = keys_test;

} // namespace

GAUDI_CHILD(shares_memory_and_executes_another_program)
{
    uct_md_h md = open_md_of_child();
    static char shared[4096];
    ipc::wire_key key{};
    (void)register_with_key(md, shared, sizeof(shared), key);
    GAUDI_CHILD_REQUIRE_NO_FAILURE();
    tell_parent(to_line(key));
    wait_for_parent();
    execlp("sleep", "sleep", "60", nullptr);
    return 1;
}

/* The pid is the same, and so is the time when it started. */
TEST_F(ended_processes, that_execute_another_program_are_not_written_to)
{
    child_process child("shares_memory_and_executes_another_program");
    ipc::wire_key key{};
    ASSERT_TRUE(from_line(child.read_line(), key));
    {
        unpacked remote(key);
        ASSERT_EQ(remote.status, UCS_OK);
        ASSERT_EQ(remote->hold(), UCS_OK);
        remote->release();
        child.write_line("");
        ucs_status_t status = UCS_OK;
        EXPECT_TRUE(eventually([&] {
            status = remote->hold();
            if (status == UCS_OK) {
                remote->release();
            }
            return status != UCS_OK;
        }));
        EXPECT_EQ(status, UCS_ERR_ENDPOINT_TIMEOUT);
    }
    EXPECT_EQ(use_of(key), out_of_reach());
    (void)take_logs();
    child.kill(SIGKILL);
    (void)child.wait();
}

} // namespace gaudi::test
