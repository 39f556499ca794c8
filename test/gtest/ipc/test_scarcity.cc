/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that have run out of file descriptors. */
#include "common/ucx_logs.h"
#include "gtest/ipc/exporter.h"
#include "gtest/ipc/fixture.h"

#include "common/process_state.h"

#include <string>

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

namespace gaudi::test {

using gaudi::ipc::mailbox_address;
using gaudi::ipc::process_id;

namespace {

using scarcity = ipc_test;

/* While there is one, this process gets no new descriptor, or one at a time. */
class no_new_descriptors {
public:
    explicit no_new_descriptors(bool but_one = false)
    {
        EXPECT_EQ(0, getrlimit(RLIMIT_NOFILE, &before_));
        rlimit none   = before_;
        none.rlim_cur = 3; /* poll() of so many is still allowed */
        if (but_one) {
            const int lowest = dup(STDIN_FILENO);
            EXPECT_EQ(0, close(lowest));
            none.rlim_cur = static_cast<rlim_t>(lowest) + 1;
        }
        EXPECT_EQ(0, setrlimit(RLIMIT_NOFILE, &none));
    }
    ~no_new_descriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
    no_new_descriptors(const no_new_descriptors &)            = delete;
    no_new_descriptors &operator=(const no_new_descriptors &) = delete;

private:
    rlimit before_{};
};

} // namespace

/* Sends as many numbers as each line says, counting on. */
GAUDI_CHILD(sends_numbers_when_told)
{
    const auto sender = connect_to(from_parent<mailbox_address>());
    GAUDI_CHILD_REQUIRE(sender != nullptr);
    tell_parent("connected");
    uint64_t number = 0;
    for (std::string line; !(line = line_of_parent()).empty();) {
        for (auto count = std::stoul(line); count > 0; --count) {
            GAUDI_CHILD_REQUIRE(send_number(*sender, number++) == UCS_OK);
        }
        tell_parent("sent");
    }
    return 0;
}

TEST_F(scarcity, does_not_make_living_senders_dead_ones)
{
    const auto box = make_mailbox();
    received_numbers received;
    told_child child("sends_numbers_when_told", box->address(), "connected");
    {
        const no_new_descriptors limit;
        for (unsigned i = 0; i < 3; ++i) {
            received.poll(*box);
            (void)box->arm(); /* looks for the dead */
        }
    }
    EXPECT_EQ(1u, box->senders());
    for (unsigned round = 1; round <= 3; ++round) {
        child.write_line("100");
        ASSERT_TRUE(received.wait(*box, size_t{100} * round));
        ASSERT_EQ("sent", child.read_line());
    }
    for (size_t i = 0; i < received.numbers.size(); ++i) {
        ASSERT_EQ(i, received.numbers[i]);
    }

    child.kill(SIGKILL);
    (void)child.wait();
    EXPECT_TRUE(eventually([&] {
        received.poll(*box);
        return box->senders() == 0;
    }));
}

TEST_F(scarcity, is_not_taken_for_the_end_of_a_process)
{
    const auto box = make_mailbox();
    told_child child("sends_numbers_when_told", box->address(), "connected");
    const auto pid = static_cast<uint32_t>(child.pid());
    process_id id  = box->address().process;
    id.pid         = pid;
    id.start_time  = gaudi::util::process_start_time(pid);
    {
        const no_new_descriptors limit;
        EXPECT_EQ(gaudi::util::unknown_start_time,
                  gaudi::util::process_start_time(pid));
        EXPECT_FALSE(
            gaudi::util::process_has_ended(id.word_for(id.pid_namespace)));
    }
    const no_new_descriptors limit(true);
    EXPECT_FALSE(gaudi::util::process_has_ended(id.word_for(id.pid_namespace)));
}

GAUDI_CHILD(registers_with_and_without_descriptors)
{
    collect_logs();
    uct_md_h md = open_md_of_child();
    char bytes[64];
    uct_mem_h memh;
    {
        const no_new_descriptors limit;
        GAUDI_CHILD_REQUIRE(uct_md_mem_reg(md, bytes, sizeof(bytes),
                                           UCT_MD_MEM_ACCESS_ALL,
                                           &memh) == UCS_ERR_NO_RESOURCE);
    }
    GAUDI_CHILD_REQUIRE(take_logs().size() == 1);
    gaudi::ipc::wire_key key;
    memh = register_with_key(md, bytes, sizeof(bytes), key);
    GAUDI_CHILD_REQUIRE(uct_md_mem_dereg(md, memh) == UCS_OK);
    uct_md_close(md);
    tell_parent("done");
    wait_for_parent();
    return 0;
}

/* UCP ends the process when a key cannot be packed. */
TEST_F(scarcity, is_found_out_by_registrations_not_by_keys)
{
    child_process child("registers_with_and_without_descriptors");
    EXPECT_EQ("done", child.read_line());
    child.write_line("");
    EXPECT_EQ(0, child.wait().exit_code);
}

} // namespace gaudi::test
