/* SPDX-License-Identifier: BSD-3-Clause */
/* Receivers that sleep in poll() until there is something to do. */
#include "gtest/ipc/fixture.h"

#include <random>
#include <thread>

#include <poll.h>
#include <signal.h>

namespace gaudi::test {

using gaudi::ipc::mailbox;
using gaudi::ipc::mailbox_address;

namespace {

constexpr int deadline_ms = 10000;

bool is_readable(const mailbox &box, int timeout_ms)
{
    pollfd wanted{box.event_fd(), POLLIN, 0};
    return ::poll(&wanted, 1, timeout_ms) == 1;
}

/* Receive so many numbers, and sleep whenever there is none.
 * @return false when a wakeup was lost. */
bool sleep_for(mailbox &box, received_numbers &received, size_t count)
{
    while (received.numbers.size() < count) {
        if ((received.poll(box, 16) == 0) && box.arm() &&
            !is_readable(box, deadline_ms)) {
            return false;
        }
    }
    return true;
}

class sleepers : public ipc_test {
protected:
    std::unique_ptr<mailbox> box = make_mailbox();
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
    const auto sender = connect_to(box->address());
    ASSERT_EQ(UCS_OK, sender->send(0, 0, nullptr, 0));
    ASSERT_EQ(UCS_OK, sender->send(0, 1, nullptr, 0));
    EXPECT_FALSE(box->arm());
    EXPECT_EQ(1u, received.poll(*box, 1));
    EXPECT_FALSE(box->arm());
    EXPECT_EQ(1u, received.poll(*box, 1));
    EXPECT_TRUE(box->arm());
}

TEST_F(sleepers, are_woken_by_messages)
{
    const auto sender = connect_to(box->address());
    for (unsigned i = 0; i < 5; ++i) {
        ASSERT_TRUE(box->arm());
        ASSERT_FALSE(is_readable(*box, 0));
        ASSERT_EQ(UCS_OK, sender->send(0, 0, nullptr, 0));
        ASSERT_EQ(UCS_OK, sender->send(0, 0, nullptr, 0));
        EXPECT_TRUE(is_readable(*box, deadline_ms));
        EXPECT_EQ(2u, received.poll(*box));
    }
}

/* One thread sleeps, another one polls without arming. */
TEST_F(sleepers, are_woken_although_others_poll)
{
    const auto sender = connect_to(box->address());
    for (unsigned i = 0; i < 5; ++i) {
        ASSERT_TRUE(box->arm());
        EXPECT_EQ(0u, received.poll(*box));
        EXPECT_FALSE(is_readable(*box, 0));
        ASSERT_EQ(UCS_OK, sender->send(0, 0, nullptr, 0));
        EXPECT_EQ(1u, received.poll(*box));
        EXPECT_TRUE(is_readable(*box, deadline_ms));
    }
}

GAUDI_CHILD(sends_numbers_now_and_then)
{
    const auto sender    = connect_to(from_parent<mailbox_address>());
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
            "sends_numbers_now_and_then", box->address()));
        children.back()->write_line(std::to_string(count));
    }
    EXPECT_TRUE(sleep_for(*box, received, senders * count));
    for (auto &child : children) {
        child->write_line("");
        expect_end(*child);
    }
}

TEST_F(sleepers, are_woken_by_the_death_of_a_sender)
{
    told_child child("sends_numbers_now_and_then", box->address());
    child.write_line("10");
    ASSERT_TRUE(sleep_for(*box, received, 10));
    while (!box->arm()) {
        received.poll(*box);
    }
    EXPECT_FALSE(is_readable(*box, 0));
    child.kill(SIGKILL);
    EXPECT_TRUE(is_readable(*box, deadline_ms));
    received.poll(*box);
    EXPECT_EQ(0u, box->senders());
    EXPECT_TRUE(box->arm());
    EXPECT_FALSE(is_readable(*box, 0)) << "woken by a death for ever";
}

} // namespace gaudi::test
