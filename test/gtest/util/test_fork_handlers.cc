/* SPDX-License-Identifier: BSD-3-Clause */
/* What a forked child finds: no lock taken, nothing open that is not its own.
 */
#include "util/fork_handlers.h"

#include "common/child.h"
#include "util/made_once.h"
#include "util/process.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

int open_anything()
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

std::atomic<int> closed_by_us{-1};

int close_and_note(int fd)
{
    closed_by_us = fd;
    return close(fd);
}

} // namespace

TEST(fork_handlers, a_child_closes_what_it_is_to_close)
{
    const int kept   = open_anything();
    const int closed = open_anything();
    const int noted  = open_anything();
    const int past   = open_anything();
    const util::closed_in_children first(closed);
    const util::closed_in_children second(noted, close_and_note);
    {
        const util::closed_in_children over(past);
    }
    forked_process child([&] {
        GAUDI_CHILD_REQUIRE(is_open(kept));
        GAUDI_CHILD_REQUIRE(is_open(past));
        GAUDI_CHILD_REQUIRE(!is_open(closed));
        GAUDI_CHILD_REQUIRE(!is_open(noted));
        GAUDI_CHILD_REQUIRE(closed_by_us == noted);
        return 0;
    });
    EXPECT_EQ(0, child.wait().exit_code);
    for (const int fd : {kept, closed, noted, past}) {
        EXPECT_TRUE(is_open(fd));
        close(fd);
    }
}

TEST(fork_handlers, a_number_that_became_another_file_stays_open)
{
    const int fd = open_anything();
    const util::closed_in_children stale(fd);
    int ends[2];
    ASSERT_EQ(0, pipe2(ends, O_CLOEXEC));
    ASSERT_EQ(fd, dup3(ends[0], fd, O_CLOEXEC));
    forked_process child([&] {
        GAUDI_CHILD_REQUIRE(is_open(fd));
        return 0;
    });
    EXPECT_EQ(0, child.wait().exit_code);
    for (const int each : {fd, ends[0], ends[1]}) {
        close(each);
    }
}

TEST(fork_handlers, a_mutex_of_a_thread_that_stayed_behind_is_free)
{
    static util::child_mutex mutex;
    std::promise<void> held;
    std::promise<void> end;
    std::thread holder([&] {
        const std::lock_guard<util::child_mutex> guard(mutex);
        held.set_value();
        end.get_future().wait();
    });
    held.get_future().wait();
    forked_process child([] {
        const std::lock_guard<util::child_mutex> guard(mutex);
        return mutex.was_abandoned() ? 0 : 1;
    });
    EXPECT_EQ(0, child.wait().exit_code);
    end.set_value();
    holder.join();
    const std::lock_guard<util::child_mutex> guard(mutex);
    EXPECT_FALSE(mutex.was_abandoned()) << "in the parent";
}

TEST(fork_handlers, a_child_makes_what_its_parent_is_making)
{
    static util::made_once<int> object;
    std::promise<void> making;
    std::promise<void> end;
    std::thread maker([&] {
        (void)object.get([&] {
            making.set_value();
            end.get_future().wait();
            return 1;
        });
    });
    making.get_future().wait();
    forked_process child(
        [] { return (object.get([] { return 2; }) == 2) ? 0 : 1; });
    EXPECT_EQ(0, child.wait().exit_code);
    end.set_value();
    maker.join();
    EXPECT_EQ(1, object.get([] { return 3; }));
}

namespace {

struct counted {
    void after_fork_in_child() { is_parents = true; }

    unsigned value = 0;
    std::atomic<bool> is_parents{false};
};

} // namespace

TEST(process_context, of_a_child_is_another_one)
{
    counted &mine         = util::of_this_process<counted>();
    mine.value            = 1;
    const uint64_t parent = util::process_identity();
    forked_process child([&] {
        const counted &own = util::of_this_process<counted>();
        GAUDI_CHILD_REQUIRE((&own != &mine) && (own.value == 0));
        GAUDI_CHILD_REQUIRE(mine.is_parents && !own.is_parents);
        GAUDI_CHILD_REQUIRE(mine.value == 1);
        GAUDI_CHILD_REQUIRE(util::process_identity() != parent);
        forked_process grandchild([&] {
            GAUDI_CHILD_REQUIRE(own.is_parents);
            return (&util::of_this_process<counted>() != &own) ? 0 : 1;
        });
        return grandchild.wait().exit_code;
    });
    const child_result result = child.wait();
    EXPECT_EQ(0, result.exit_code) << result.error;
    EXPECT_EQ(&mine, &util::of_this_process<counted>());
    EXPECT_FALSE(mine.is_parents);
    EXPECT_EQ(parent, util::process_identity());
}

TEST(in_use, cuts_off_children_that_are_forked_meanwhile)
{
    const auto is_child_cut_off = [] {
        forked_process child([] { return util::is_cut_off() ? 1 : 0; });
        return child.wait().exit_code == 1;
    };
    EXPECT_FALSE(is_child_cut_off());
    {
        const util::in_use something;
        EXPECT_TRUE(is_child_cut_off());
        forked_process child([&] { return is_child_cut_off() ? 1 : 0; });
        EXPECT_EQ(1, child.wait().exit_code) << "and their children";
    }
    EXPECT_FALSE(is_child_cut_off());
    EXPECT_FALSE(util::is_cut_off());
}

} // namespace gaudi::test
