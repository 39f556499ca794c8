/* SPDX-License-Identifier: BSD-3-Clause */
/* Who keeps a dma-buf alive: other processes, and after the card's close. */
#include "gtest/emu/fixture.h"

#include "common/child.h"
#include "common/process_state.h"

#include <csignal>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace gaudi::test;

namespace {

GAUDI_CHILD(holds_a_dmabuf)
{
    GAUDI_CHILD_REQUIRE(fcntl(child_fd, F_GETFD) >= 0);
    GAUDI_CHILD_REQUIRE(
        mmap(nullptr, 4096, PROT_READ, MAP_SHARED, child_fd, 0) == MAP_FAILED);
    tell_parent("holding");
    wait_for_parent();
    close(child_fd);
    tell_parent("closed");
    wait_for_parent();
    return 0;
}

class emu_dmabuf_lifetime : public emu {
protected:
    void SetUp() override
    {
        ASSERT_NO_FATAL_FAILURE(emu::SetUp());
        va  = card.allocate_mapped(1);
        buf = export_range(card, va, 4096);
        ASSERT_GE(buf, 0);
    }

    uint64_t va = 0;
    int buf     = -1;
};

TEST_F(emu_dmabuf_lifetime, another_process_keeps_it_alive)
{
    child_process holder("holds_a_dmabuf", {{}, buf});
    ASSERT_EQ(holder.read_line(), "holding");
    close(buf);
    EXPECT_EQ(unmap(card, va), -EINVAL);

    holder.write_line("close it");
    ASSERT_EQ(holder.read_line(), "closed");
    EXPECT_EQ(unmap(card, va), 0);
    holder.write_line("exit");
    EXPECT_EQ(holder.wait().exit_code, 0);
}

TEST_F(emu_dmabuf_lifetime, it_ends_with_the_process_that_held_it_last)
{
    child_process holder("holds_a_dmabuf", {{}, buf});
    ASSERT_EQ(holder.read_line(), "holding");
    close(buf);
    EXPECT_EQ(unmap(card, va), -EINVAL);
    holder.kill(SIGKILL);
    EXPECT_EQ(holder.wait().signal, SIGKILL);
    EXPECT_EQ(unmap(card, va), 0);
}

/* The driver: an export holds the device open, or its importer would read what
 * the next user of the card writes. */
TEST_F(emu_dmabuf_lifetime, the_card_stays_taken_while_it_is_alive)
{
    close_card(card);
    {
        raw_card early;
        EXPECT_EQ(early.fd(), -EBUSY);
    }
    close(buf);
    own_card late;
}

TEST_F(emu_dmabuf_lifetime, closing_the_card_leaves_no_descriptors)
{
    close(buf);
    buf                   = export_range(card, va, 4096);
    const unsigned before = count_open_fds();
    close_card(card);
    close(buf);
    const unsigned after = count_open_fds();
    EXPECT_LT(after, before);

    own_card again;
    close_card(again);
    EXPECT_EQ(count_open_fds(), after);
}

} // namespace
