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

    inbox box;
    received_numbers received;
    std::unique_ptr<child_process> child;
    interface_address there{};
};

size_t pack_bytes(void *dest, void *arg)
{
    const auto *text = static_cast<const std::string *>(arg);
    std::memcpy(dest, text->data(), text->size());
    return text->size();
}

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

} // namespace

TEST_F(links, deliver_messages_as_they_were_sent)
{
    const auto sender = open_link(box.address());
    ASSERT_NE(nullptr, sender);
    std::vector<std::string> came;
    const auto take = [&](uint8_t id, void *data, size_t length) {
        EXPECT_EQ(11, id);
        came.emplace_back(static_cast<char *>(data), length);
    };

    const uint64_t header = 0x3837363534333231;
    ASSERT_EQ(UCS_OK, sender->send(11, header, "abc", 3));
    char left[]           = "left";
    char right[]          = "right";
    const uct_iov_t iov[] = {{left, 4, nullptr, 0, 1},
                             {right, 5, nullptr, 0, 1}};
    ASSERT_EQ(UCS_OK, sender->send_iov(11, iov, 2));
    std::string packed(link::max_payload, 'p');
    ssize_t length = -1;
    ASSERT_EQ(UCS_OK, sender->send_packed(11, pack_bytes, &packed, length));
    ASSERT_EQ(static_cast<ssize_t>(packed.size()), length);
    const uint64_t before = sender->sent();
    std::string nothing;
    ASSERT_EQ(UCS_OK, sender->send_packed(11, pack_bytes, &nothing, length));
    ASSERT_EQ(0, length);
    EXPECT_FALSE(sender->is_delivered(before));

    EXPECT_TRUE(eventually([&] { return box.box->poll(1, take) == 1; }));
    EXPECT_EQ(3u, box.box->poll(100, take));
    EXPECT_EQ(0u, box.box->poll(100, take));
    EXPECT_THAT(came, ::testing::ElementsAre("12345678abc", "leftright", packed,
                                             nothing));
    EXPECT_TRUE(sender->is_delivered(sender->sent()));
}

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

TEST_F(links, deliver_messages_of_another_process_in_order)
{
    constexpr size_t count = 200000;
    told_child sender("sends_numbers", box.address());
    sender.write_line(std::to_string(count));
    ASSERT_TRUE(received.wait(box, count));
    EXPECT_EQ(numbers_up_to(count), received.numbers);
    expect_end(sender);
    EXPECT_TRUE(eventually([] { return count_links() == 0; }));
}

TEST_F(links, lose_no_message_when_the_ring_is_full)
{
    const auto sender = open_link(box.address());
    ASSERT_NE(nullptr, sender);
    uint64_t sent = 0;
    for (unsigned round = 0; round < 20; ++round) {
        while (sender->send(0, sent, nullptr, 0) == UCS_OK) {
            ++sent;
        }
        EXPECT_FALSE(sender->has_room());
        EXPECT_EQ(UCS_ERR_NO_RESOURCE, sender->send(0, sent, nullptr, 0));
        EXPECT_TRUE(
            eventually([&] { return received.poll(box, 1 + round * 50) > 0; }));
    }
    ASSERT_TRUE(received.wait(box, sent));
    EXPECT_EQ(0u, received.poll(box));
    EXPECT_TRUE(sender->has_room());
    EXPECT_EQ(numbers_up_to(sent), received.numbers);
}

TEST_F(links, deliver_to_the_interface_that_they_are_to)
{
    inbox other;
    received_numbers others;
    for (const uint64_t round : {0, 1, 2}) {
        const auto one = open_link(box.address());
        const auto two = open_link(other.address());
        ASSERT_EQ(UCS_OK, send_number(*one, 2 * round));
        ASSERT_EQ(UCS_OK, send_number(*two, 2 * round + 1));
        ASSERT_TRUE(received.wait(box, round + 1));
        ASSERT_TRUE(others.wait(other, round + 1));
    }
    EXPECT_THAT(received.numbers, ::testing::ElementsAre(0, 2, 4));
    EXPECT_THAT(others.numbers, ::testing::ElementsAre(1, 3, 5));
}

TEST_F(links, that_were_destroyed_deliver_all_the_same)
{
    auto sender = open_link(box.address());
    ASSERT_NE(nullptr, sender);
    ASSERT_EQ(UCS_OK, sender->send(0, 0, nullptr, 0));
    sender.reset();
    ASSERT_TRUE(received.wait(box, 1));
    EXPECT_TRUE(eventually([] { return count_links() == 0; }));
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
    return 0;
}

TEST_F(links, lose_no_message_where_senders_come_and_go)
{
    constexpr uint64_t count   = 1000;
    constexpr unsigned senders = 3;
    std::vector<std::unique_ptr<told_child>> children;
    for (unsigned i = 0; i < senders; ++i) {
        children.push_back(
            std::make_unique<told_child>("comes_and_goes", box.address()));
        children.back()->write_line(std::to_string(count));
    }
    EXPECT_TRUE(received.wait(box, senders * count));
    for (auto &each : children) {
        expect_end(*each);
    }
    std::vector<uint64_t> expected;
    for (uint64_t i = 0; i < count; ++i) {
        expected.insert(expected.end(), senders, i);
    }
    std::sort(received.numbers.begin(), received.numbers.end());
    EXPECT_EQ(expected, received.numbers);
    EXPECT_TRUE(eventually([] { return count_links() == 0; }));
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

TEST_F(links, are_shared_by_the_endpoints_of_an_interface)
{
    constexpr ipc::link_options none{4096, 0};
    ipc::link_table table;
    std::shared_ptr<link> one;
    std::shared_ptr<link> same;
    const auto find = [&](std::shared_ptr<link> &link_p) {
        return table.find(box.address(), none, box.wakes, link_p);
    };
    ASSERT_EQ(UCS_OK, find(one));
    ASSERT_EQ(UCS_OK, find(same));
    EXPECT_EQ(one, same);
    table.put(*same);
    EXPECT_TRUE(table.take_unused().empty());

    /* The next endpoint's messages come behind those of the last one. */
    ASSERT_EQ(UCS_OK, send_number(*one, 0));
    table.put(*one);
    EXPECT_TRUE(table.take_unused().empty());
    ASSERT_EQ(UCS_OK, find(same));
    EXPECT_EQ(one, same);
    table.put(*same);
    ASSERT_TRUE(received.wait(box, 1));
    EXPECT_THAT(table.take_unused(), ::testing::ElementsAre(one));

    ASSERT_EQ(UCS_OK, find(same));
    EXPECT_NE(one, same);
    box.close();
    EXPECT_TRUE(eventually([&] { return same->is_closed(); }));
    EXPECT_THAT(table.take_unused(), ::testing::ElementsAre(same));
    table.put(*same); /* another one may be in its place */
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

TEST_F(links, to_a_process_that_is_killed_are_lost)
{
    start("answers_numbers");
    auto wakes    = std::make_shared<ipc::event>();
    const auto to = open_link(there, wakes);
    ASSERT_EQ(UCS_OK, send_number(*to, 5));
    ASSERT_TRUE(received.wait(box, 1));
    EXPECT_EQ(6u, received.numbers[0]);
    EXPECT_FALSE(to->is_closed());
    wakes->clear();
    child->kill(SIGKILL);
    EXPECT_TRUE(is_readable(wakes->fd()));
    EXPECT_TRUE(eventually([&] { return to->is_over(); }));
    EXPECT_TRUE(to->is_lost());
    EXPECT_TRUE(wakes->has_link_end());
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, to->send(0, 0, nullptr, 0));
    EXPECT_TRUE(eventually([] { return count_links() == 0; }));
    (void)child->wait();
    EXPECT_EQ(UCS_ERR_UNREACHABLE, why_no_link(there));
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
