/* SPDX-License-Identifier: BSD-3-Clause */
/* Host memory of other processes. */
#include "common/host_memory.h"
#include "common/memory_child.h"
#include "util/other_process.h"

#include <gtest/gtest.h>

#include <cerrno>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

constexpr size_t size = 1 << 20;
constexpr size_t page = 4096;

uint64_t number(const void *address)
{
    return reinterpret_cast<uintptr_t>(address);
}

/* Pages that end before one that nobody may touch. */
struct two_pages {
    two_pages()
        : data(static_cast<char *>(mmap(nullptr, 2 * page,
                                        PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)))
    {
        EXPECT_EQ(0, mprotect(data + page, page, PROT_NONE));
    }
    ~two_pages() { munmap(data, 2 * page); }

    char *data;
};

} // namespace

TEST(process_memory, reads_and_writes_another_process)
{
    auto child = memory_child::create(size);
    guarded_buffer ours(size);
    guarded_buffer seen(size);
    fill_pattern(ours.data(), size, 1);
    ASSERT_EQ(0, child->host()->write(child->start, ours.data(), size));
    child->read(seen.data(), 0, size);
    EXPECT_TRUE(has_pattern(seen.data(), size, 1));

    fill_pattern(ours.data(), size, 2);
    child->write(ours.data(), 0, size);
    ASSERT_EQ(0, child->host()->read(seen.data(), child->start, size));
    EXPECT_TRUE(has_pattern(seen.data(), size, 2));
    ASSERT_EQ(0, child->host()->read(seen.data(), child->start + 77, 5));
    EXPECT_TRUE(has_pattern(seen.data(), 5, 2, 77));
}

TEST(process_memory, that_is_not_there_is_an_error_on_either_side)
{
    const util::process_memory self(getpid(), -1);
    two_pages bad;
    guarded_buffer good(2 * page);
    EXPECT_EQ(-EFAULT, self.read(good.data(), number(bad.data), 2 * page));
    EXPECT_EQ(-EFAULT, self.write(number(bad.data), good.data(), 2 * page));
    EXPECT_EQ(-EFAULT, self.read(bad.data, number(good.data()), 2 * page));
    EXPECT_EQ(-EFAULT, self.write(number(good.data()), bad.data, 2 * page));
    EXPECT_EQ(-EFAULT, self.read(good.data(), 0, 1));
    EXPECT_EQ(-EFAULT, self.read(good.data(), UINT64_MAX - 1, 1));
}

TEST(process_memory, goes_with_its_process)
{
    auto child = memory_child::create(size);
    EXPECT_FALSE(util::has_ended(child->pidfd()));
    EXPECT_EQ(0, child->host()->probe());
    child->kill();
    int data = 0;
    EXPECT_TRUE(util::has_ended(child->pidfd()));
    EXPECT_EQ(-ESRCH, child->host()->probe());
    EXPECT_EQ(-ESRCH, child->host()->read(&data, child->start, sizeof(data)));
    EXPECT_EQ(-ESRCH, child->host()->write(child->start, &data, sizeof(data)));
}

TEST(process_memory, is_not_that_of_a_later_process_with_the_pid)
{
    /* The pid of a process that lives, and the pidfd of one that does not. */
    auto dead       = memory_child::create(size);
    const int pidfd = dup(dead->pidfd());
    dead->kill();
    const util::process_memory reused(getpid(), pidfd);
    int theirs = 1;
    int ours   = 2;
    EXPECT_EQ(-ESRCH, reused.read(&ours, number(&theirs), sizeof(ours)));
    EXPECT_EQ(-ESRCH, reused.write(number(&theirs), &ours, sizeof(ours)));
    EXPECT_EQ(1, theirs);
    close(pidfd);
}

TEST(process_memory, probe_tells_when_the_kernel_forbids_it)
{
    /* Nobody but root may look into a process that says so, and a root that is
     * not root any more may look into none of root's. */
    ASSERT_EQ(0, prctl(PR_SET_DUMPABLE, 0));
    const pid_t parent = getpid();
    forked_process stranger([&] {
        if ((geteuid() == 0) && (setresuid(1, 1, 1) != 0)) {
            return 2;
        }
        const util::process_memory memory(parent, -1);
        char byte = 0;
        return ((memory.probe() == -EPERM) &&
                (memory.read(&byte, number(&byte), 1) == -EPERM))
                   ? 0
                   : 1;
    });
    EXPECT_EQ(0, stranger.wait().exit_code);
    EXPECT_EQ(0, prctl(PR_SET_DUMPABLE, 1));
}

} // namespace gaudi::test
