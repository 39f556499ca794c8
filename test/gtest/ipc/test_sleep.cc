/* SPDX-License-Identifier: BSD-3-Clause */
/* Receivers that sleep in poll() until there is something to do. */
#include "gtest/ipc/fixture.h"

#include <random>
#include <thread>

#include <signal.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

/* Receive so many numbers, and sleep whenever there is none.
 * @return false when a wakeup was lost. */
bool sleep_for(inbox &box, received_numbers &received, size_t count)
{
    while (received.numbers.size() < count) {
        if ((received.poll(box, 16) == 0) && box.arm() &&
            !is_readable(box.fd())) {
            return false;
        }
    }
    return true;
}

class sleepers : public ipc_test {
protected:
    /* A link that the receiver knows. */
    std::shared_ptr<ipc::link> known_link()
    {
        auto made = open_link(box.address());
        EXPECT_EQ(UCS_OK, send_number(*made, 0));
        EXPECT_TRUE(received.wait(box, received.numbers.size() + 1));
        return made;
    }

    inbox box;
    received_numbers received;
};

/* A sender's pause: none, some turns, or longer than it takes to fall asleep.
 */
void pause_a_little(std::mt19937 &random)
{
    switch (random() % 4) {
    case 0:
        for (unsigned i = random() % 500; i > 0; --i) {
            random();
        }
        break;
    case 1:
        std::this_thread::yield();
        break;
    case 2:
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 50));
        break;
    default:
        break;
    }
}

} // namespace

TEST_F(sleepers, do_not_fall_asleep_over_messages)
{
    const auto sender = known_link();
    ASSERT_EQ(UCS_OK, send_number(*sender, 1));
    ASSERT_EQ(UCS_OK, send_number(*sender, 2));
    EXPECT_FALSE(box.arm());
    EXPECT_EQ(1u, received.poll(box, 1));
    EXPECT_FALSE(box.arm());
    EXPECT_EQ(1u, received.poll(box, 1));
    EXPECT_TRUE(box.arm());
}

TEST_F(sleepers, are_woken_by_messages_and_nothing_else)
{
    const auto sender = known_link();
    box.settle();
    for (unsigned i = 0; i < 5; ++i) {
        ASSERT_TRUE(box.arm());
        EXPECT_EQ(0u, received.poll(box)) << "which does not disarm it";
        box.settle(); /* other links, to another interface */
        ASSERT_FALSE(is_readable_now(box.fd()));
        ASSERT_EQ(UCS_OK, send_number(*sender, 0));
        ASSERT_EQ(UCS_OK, send_number(*sender, 0));
        EXPECT_TRUE(is_readable(box.fd()));
        EXPECT_EQ(2u, received.poll(box));
    }
}

/* The first message may come before its link does. */
TEST_F(sleepers, are_woken_by_the_first_message_of_a_link)
{
    for (unsigned i = 0; i < 20; ++i) {
        while (!box.arm()) {
            (void)received.poll(box);
        }
        const auto sender = open_link(box.address());
        ASSERT_EQ(UCS_OK, send_number(*sender, 0));
        EXPECT_TRUE(sleep_for(box, received, i + 1));
    }
}

GAUDI_CHILD(sends_numbers_now_and_then)
{
    const auto sender    = open_link(from_parent<ipc::interface_address>());
    const uint64_t count = std::stoull(line_of_parent());
    GAUDI_CHILD_REQUIRE(sender != nullptr);
    std::mt19937 random(static_cast<unsigned>(getpid()));
    for (uint64_t i = 0; i < count; ++i) {
        GAUDI_CHILD_REQUIRE(send_number(*sender, i) == UCS_OK);
        pause_a_little(random);
    }
    wait_for_parent();
    return 0;
}

TEST_F(sleepers, miss_no_message_of_several_senders)
{
    constexpr uint64_t count   = 20000;
    constexpr unsigned senders = 3;
    std::vector<std::unique_ptr<told_child>> children;
    for (unsigned i = 0; i < senders; ++i) {
        children.push_back(std::make_unique<told_child>(
            "sends_numbers_now_and_then", box.address()));
        children.back()->write_line(std::to_string(count));
    }
    EXPECT_TRUE(sleep_for(box, received, senders * count));
    for (auto &child : children) {
        child->write_line("");
        expect_end(*child);
    }
}

} // namespace gaudi::test
