/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages over links, and what ends those. */
#include "gtest/ipc/fixture.h"

#include "common/process_state.h"
#include "common/ucx_logs.h"
#include "uct/gaudi/ipc/service.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include <signal.h>
#include <unistd.h>

namespace gaudi::test {

using ipc::interface_address;
using ipc::link;

namespace {

class links : public ipc_test {
protected:
    /* A child that is told where this process is, and where the child is. */
    void start(const std::string &name)
    {
        child = std::make_unique<told_child>(name, box.address());
        ASSERT_TRUE(from_line(child->read_line(), there));
    }

    /* Children that send so many numbers each, until they are told to end. */
    void start_senders(const std::string &name, uint64_t count)
    {
        for (unsigned i = 0; i < sender_count; ++i) {
            senders.push_back(
                std::make_unique<told_child>(name, box.address()));
            senders.back()->write_line(std::to_string(count));
        }
    }
    void end_senders()
    {
        for (auto &each : senders) {
            each->write_line("");
            expect_end(*each);
        }
        EXPECT_TRUE(eventually([] { return count_links() == 0; }));
    }

    static constexpr unsigned sender_count = 3;
    inbox box;
    received_numbers received;
    std::unique_ptr<child_process> child;
    interface_address there{};
    std::vector<std::unique_ptr<told_child>> senders;
};

std::vector<uint64_t> numbers_up_to(size_t count)
{
    std::vector<uint64_t> result(count);
    std::iota(result.begin(), result.end(), uint64_t{0});
    return result;
}

/* Send until the ring is full. @return How many. */
uint64_t fill(link &to)
{
    uint64_t sent = 0;
    while (to.send(0, sent, nullptr, 0) == UCS_OK) {
        ++sent;
    }
    return sent;
}

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

GAUDI_CHILD(sends_numbers)
{
    const auto sender = open_link(from_parent<interface_address>());
    GAUDI_CHILD_REQUIRE(sender != nullptr);
    const uint64_t count = std::stoull(line_of_parent());
    for (uint64_t i = 0; i < count; ++i) {
        GAUDI_CHILD_REQUIRE(send_number(*sender, i) == UCS_OK);
    }
    return 0;
}

GAUDI_CHILD(comes_and_goes)
{
    const auto address   = from_parent<interface_address>();
    const uint64_t count = std::stoull(line_of_parent());
    for (uint64_t i = 0; i < count; ++i) {
        const auto sender = open_link(address);
        GAUDI_CHILD_REQUIRE(sender != nullptr);
        GAUDI_CHILD_REQUIRE(send_number(*sender, i) == UCS_OK);
    }
    wait_for_parent();
    return 0;
}

TEST_F(links, lose_no_message_where_senders_come_and_go)
{
    constexpr uint64_t count = 1000;
    start_senders("comes_and_goes", count);
    EXPECT_TRUE(received.wait(box, sender_count * count));
    end_senders();
    std::vector<uint64_t> expected;
    for (uint64_t i = 0; i < count; ++i) {
        expected.insert(expected.end(), sender_count, i);
    }
    std::sort(received.numbers.begin(), received.numbers.end());
    EXPECT_EQ(expected, received.numbers);
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

/* The first message may come before its link does. */
TEST_F(links, wake_a_receiver_for_each_message)
{
    constexpr uint64_t count = 20000;
    start_senders("sends_numbers_now_and_then", count);
    EXPECT_TRUE(sleep_for(box, received, sender_count * count));
    end_senders();
}

TEST_F(links, are_opened_and_used_within_a_handler)
{
    auto sender   = open_link(box.address());
    unsigned left = 100;
    unsigned came = 0;
    ASSERT_EQ(UCS_OK, sender->send(0, left, nullptr, 0));
    EXPECT_TRUE(eventually([&] {
        box.box->poll(16, [&](uint8_t, void *, size_t) {
            ++came;
            sender = open_link(box.address());
            ASSERT_NE(nullptr, sender);
            ASSERT_EQ(UCS_OK, sender->send(0, --left, nullptr, 0));
        });
        return came >= 100;
    }));
}

/* --- how they end ---------------------------------------------------------*/

TEST_F(links, to_an_interface_that_is_closed_are_closed_not_lost)
{
    auto wakes      = std::make_shared<ipc::event>();
    const auto sent = open_link(box.address(), wakes);
    ASSERT_EQ(UCS_OK, send_number(*sent, 0));
    ASSERT_TRUE(received.wait(box, 1));
    ASSERT_FALSE(sent->is_closed());
    ASSERT_EQ(UCS_OK, send_number(*sent, 1));
    const uint64_t unread = sent->sent();
    box.close();
    EXPECT_TRUE(sent->is_closed());
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, sent->send(0, 0, nullptr, 0));
    EXPECT_TRUE(sent->is_delivered(unread)) << "or never will be";
    EXPECT_TRUE(is_readable(wakes->fd()));
    EXPECT_TRUE(eventually([&] { return sent->is_over(); }));
    EXPECT_FALSE(sent->is_lost());
}

TEST_F(links, to_no_interface_are_refused)
{
    interface_address nowhere = box.address();
    nowhere.number += 1000;
    auto wakes         = std::make_shared<ipc::event>();
    const auto refused = open_link(nowhere, wakes);
    if (refused != nullptr) {
        EXPECT_TRUE(is_readable(wakes->fd()));
        EXPECT_TRUE(eventually([&] { return refused->is_over(); }));
        EXPECT_TRUE(wakes->take_link_end());
        EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, refused->send(0, 0, nullptr, 0));
    }
    nowhere = box.address();
    nowhere.process ^= 2;
    EXPECT_EQ(UCS_ERR_UNREACHABLE, why_no_link(nowhere));
}

/* Answers each number with the next one. */
GAUDI_CHILD(answers_numbers)
{
    const auto out = open_link(from_parent<interface_address>());
    GAUDI_CHILD_REQUIRE(out != nullptr);
    inbox box;
    tell_parent(to_line(box.address()));
    received_numbers received;
    for (size_t done = 0;;) {
        while (done < received.numbers.size()) {
            GAUDI_CHILD_REQUIRE(
                send_number(*out, received.numbers[done++] + 1) == UCS_OK);
        }
        if ((received.poll(box) == 0) && box.arm()) {
            GAUDI_CHILD_REQUIRE(is_readable(box.fd()));
        }
    }
}

/* Which has what the parent has open. */
GAUDI_CHILD(has_a_child_of_its_own)
{
    const auto out = open_link(from_parent<interface_address>());
    inbox box;
    GAUDI_CHILD_REQUIRE(out && (send_number(*out, 7) == UCS_OK));
    tell_parent(to_line(box.address()));
    received_numbers received;
    GAUDI_CHILD_REQUIRE(received.wait(box, 1));
    const pid_t child = fork();
    if (child == 0) {
        wait_for_parent();
        _exit(0);
    }
    tell_parent(std::to_string(child));
    for (;;) {
        pause();
    }
}

TEST_F(links, to_and_from_a_process_end_before_its_children)
{
    start("has_a_child_of_its_own");
    const auto to = open_link(there);
    ASSERT_EQ(UCS_OK, send_number(*to, 5));
    ASSERT_TRUE(received.wait(box, 1));
    const pid_t grandchild = std::stoi(child->read_line());
    ASSERT_EQ(1u, count_links());
    child->kill(SIGKILL);
    EXPECT_TRUE(eventually([&] { return to->is_lost(); }));
    EXPECT_TRUE(eventually([] { return count_links() == 0; }));
    (void)child->wait();
    EXPECT_EQ(UCS_ERR_UNREACHABLE, why_no_link(there));
    EXPECT_EQ(0, kill(grandchild, 0));
}

TEST_F(links, to_a_stopped_process_hold_up_nobody)
{
    start("answers_numbers");
    told_child second("answers_numbers", box.address());
    interface_address seconds{};
    ASSERT_TRUE(from_line(second.read_line(), seconds));
    child->stop();
    std::vector<std::shared_ptr<link>> out;
    size_t sent = 0;
    for (unsigned i = 0; i < 50; ++i) {
        out.push_back(open_link(there));
        ASSERT_NE(nullptr, out.back());
        ASSERT_EQ(UCS_OK, out.back()->send(0, i, nullptr, 0));
        ++sent;
    }
    sent += fill(*out.back());
    out.pop_back(); /* it is gone before it was accepted */

    const auto to = open_link(seconds);
    for (uint64_t i = 1; i <= 100; ++i) {
        ASSERT_EQ(UCS_OK, send_number(*to, i));
        ASSERT_TRUE(received.wait(box, i));
        EXPECT_EQ(i + 1, received.numbers.back());
    }
    for (const auto &each : out) {
        EXPECT_FALSE(each->is_closed());
    }
    child->kill(SIGCONT);
    EXPECT_TRUE(received.wait(box, 100 + sent));
    child->kill(SIGKILL);
    second.kill(SIGKILL);
}

/* --- senders that die, or write nonsense ----------------------------------*/

/* Messages of all lengths, in all ways, until it is killed. */
GAUDI_CHILD(sends_until_it_dies)
{
    const auto address = from_parent<interface_address>();
    tell_parent("ready");
    std::mt19937 random(static_cast<unsigned>(getpid()));
    for (;;) {
        const auto sender = open_link(address);
        GAUDI_CHILD_REQUIRE(sender != nullptr);
        const unsigned count = random() % 300;
        for (unsigned i = 0; i < count; ++i) {
            std::string text(8 + random() % 8000, static_cast<char>(i));
            const ucs_status_t status = sender->send(
                static_cast<uint8_t>(i), text.size(), text.data(), text.size());
            GAUDI_CHILD_REQUIRE((status == UCS_OK) ||
                                (status == UCS_ERR_NO_RESOURCE));
        }
    }
}

TEST_F(links, of_killed_senders_end_and_leave_no_half_message)
{
    constexpr unsigned rounds = 40;
    std::mt19937 random{4};
    const auto other = open_link(box.address());
    uint64_t others  = 0;
    uint64_t came    = 0;
    for (unsigned round = 0; round < rounds; ++round) {
        told_child sender("sends_until_it_dies", box.address(), "ready");
        const auto end = std::chrono::steady_clock::now() +
                         std::chrono::microseconds(random() % 3000);
        bool killed           = false;
        const uint64_t before = came;
        const uint64_t wanted = others + 1;
        const auto take       = [&](uint8_t id, void *data, size_t length) {
            uint64_t header;
            ASSERT_GE(length, sizeof(header));
            std::memcpy(&header, data, sizeof(header));
            const auto *text = static_cast<char *>(data) + sizeof(header);
            if (length == sizeof(header)) {
                EXPECT_EQ(others++, header);
                return;
            }
            ASSERT_EQ(header + sizeof(header), length);
            EXPECT_EQ(static_cast<char>(id), text[0]);
            EXPECT_EQ(static_cast<char>(id), text[header - 1]);
            ++came;
        };
        ASSERT_TRUE(eventually([&] {
            do {
                box.box->poll(16, take);
                /* In every other round not before it has sent a few. */
            } while (!killed && ((std::chrono::steady_clock::now() < end) ||
                                 ((round % 2 != 0) && (came < before + 3))));
            if (!killed) {
                sender.kill(SIGKILL);
                killed = true;
            }
            return count_links() == 1;
        })) << "round "
            << round;
        ASSERT_EQ(UCS_OK, send_number(*other, others));
        EXPECT_TRUE(eventually([&] {
            box.box->poll(1000, take);
            return others == wanted;
        }));
        sender.wait();
    }
    EXPECT_GT(came, rounds);
}

GAUDI_CHILD(fills_its_ring)
{
    const auto sender = open_link(from_parent<interface_address>());
    GAUDI_CHILD_REQUIRE(sender != nullptr);
    tell_parent(std::to_string(fill(*sender)));
    wait_for_parent();
    return 0;
}

TEST_F(links, of_killed_senders_deliver_what_they_sent)
{
    told_child sender("fills_its_ring", box.address());
    const size_t sent = std::stoul(sender.read_line());
    sender.kill(SIGKILL);
    (void)sender.wait();
    EXPECT_TRUE(eventually([] { return count_links() == 0; }));
    for (size_t i = 0; i < sent; ++i) { /* one by one */
        ASSERT_TRUE(eventually([&] { return received.poll(box, 1) == 1; }));
    }
    EXPECT_EQ(numbers_up_to(sent), received.numbers);
    EXPECT_EQ(0u, received.poll(box));
}

TEST_F(links, with_nonsense_are_closed_alone)
{
    const auto bad  = open_link(box.address());
    const auto good = open_link(box.address());
    ASSERT_EQ(UCS_OK, bad->send(0, 0, nullptr, 0));
    ASSERT_EQ(UCS_OK, good->send(0, 0, nullptr, 0));
    ASSERT_TRUE(received.wait(box, 2));
    auto *ring = reinterpret_cast<char *>(&bad->control()) + ipc::ring_offset;
    std::memset(ring + ipc::ring_line, 0x77, 64);
    received.poll(box);
    const auto told = take_logs();
    ASSERT_EQ(1u, told.size());
    EXPECT_THAT(told[0],
                ::testing::HasSubstr("process " + std::to_string(getpid())));
    EXPECT_TRUE(bad->is_closed());
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, bad->send(0, 0, nullptr, 0));
    EXPECT_TRUE(eventually([] { return count_links() == 1; }));
    EXPECT_FALSE(good->is_closed());
    ASSERT_EQ(UCS_OK, good->send(0, 1, nullptr, 0));
    EXPECT_TRUE(received.wait(box, 3));
}

/* --- scarcity -------------------------------------------------------------*/

TEST_F(links, go_on_without_descriptors)
{
    const auto known = open_link(box.address());
    ASSERT_EQ(UCS_OK, send_number(*known, 0));
    ASSERT_TRUE(received.wait(box, 1));
    child_process sender("sends_numbers");
    {
        const no_new_descriptors limit;
        EXPECT_EQ(UCS_ERR_NO_RESOURCE, why_no_link(box.address()));
        sender.write_line(to_line(box.address())); /* cannot be accepted now */
        sender.write_line("3");
        ASSERT_EQ(UCS_OK, send_number(*known, 1));
        ASSERT_TRUE(received.wait(box, 2));
        EXPECT_FALSE(known->is_closed());
    }
    EXPECT_TRUE(received.wait(box, 5));
    expect_end(sender);
}

/* But for so many, as for an interface that is opened. */
GAUDI_CHILD(starts_without_descriptors)
{
    collect_logs();
    {
        const no_new_descriptors limit(from_parent<unsigned>());
        GAUDI_CHILD_REQUIRE(ipc::service::instance().start() ==
                            UCS_ERR_NO_RESOURCE);
    }
    EXPECT_THAT(take_logs(),
                ::testing::ElementsAre(::testing::HasSubstr("ulimit -n")));
    GAUDI_CHILD_REQUIRE_NO_FAILURE();
    GAUDI_CHILD_REQUIRE(ipc::service::instance().start() == UCS_OK);
    return 0;
}

TEST_F(links, can_be_had_once_there_are_descriptors)
{
    for (const unsigned free : {0u, 1u}) {
        expect_success("starts_without_descriptors", free);
    }
}

GAUDI_CHILD(may_not_make_long_files)
{
    rlimit limit{16 << 20, 16 << 20};
    GAUDI_CHILD_REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    inbox box;
    const auto sender = open_link(box.address());
    GAUDI_CHILD_REQUIRE(sender != nullptr);
    GAUDI_CHILD_REQUIRE(send_number(*sender, 1) == UCS_OK);
    received_numbers received;
    GAUDI_CHILD_REQUIRE(received.wait(box, 1));
    limit.rlim_cur = 65536;
    GAUDI_CHILD_REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    GAUDI_CHILD_REQUIRE(why_no_link(box.address()) == UCS_ERR_NO_MEMORY);
    return 0;
}

TEST_F(links, are_for_processes_that_may_not_make_long_files)
{
    EXPECT_TRUE(child_passes("may_not_make_long_files"));
}

} // namespace gaudi::test
