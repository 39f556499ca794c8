/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages between mailboxes and connections that behave. */
#include "uct/gaudi/ipc/process/file_service.h"
#include "gtest/ipc/fixture.h"

#include "common/process_state.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <sys/resource.h>

namespace gaudi::test {

using gaudi::ipc::connection;
using gaudi::ipc::mailbox;
using gaudi::ipc::mailbox_address;
using gaudi::ipc::mailbox_options;

namespace {

class messages : public ipc_test {
protected:
    std::unique_ptr<mailbox> box = make_mailbox();
    received_numbers received;
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

} // namespace

TEST_F(messages, come_as_they_were_sent)
{
    const auto sender = connect_to(box->address());
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
    std::string packed(connection::max_payload, 'p');
    ssize_t length = -1;
    ASSERT_EQ(UCS_OK, sender->send_packed(11, pack_bytes, &packed, length));
    ASSERT_EQ(static_cast<ssize_t>(packed.size()), length);
    std::string nothing;
    ASSERT_EQ(UCS_OK, sender->send_packed(11, pack_bytes, &nothing, length));
    ASSERT_EQ(0, length);

    EXPECT_EQ(1u, box->poll(1, take));
    EXPECT_EQ(3u, box->poll(100, take));
    EXPECT_EQ(0u, box->poll(100, take));
    EXPECT_THAT(came, ::testing::ElementsAre("12345678abc", "leftright", packed,
                                             nothing));
}

GAUDI_CHILD(sends_numbers)
{
    const auto sender = connect_to(from_parent<mailbox_address>());
    GAUDI_CHILD_REQUIRE(sender != nullptr);
    const uint64_t count = std::stoull(line_of_parent());
    for (uint64_t i = 0; i < count; ++i) {
        GAUDI_CHILD_REQUIRE(send_number(*sender, i) == UCS_OK);
    }
    return 0;
}

TEST_F(messages, come_from_another_process_in_order)
{
    constexpr size_t count = 200000;
    told_child child("sends_numbers", box->address());
    child.write_line(std::to_string(count));
    ASSERT_TRUE(received.wait(*box, count));
    EXPECT_EQ(numbers_up_to(count), received.numbers);
    expect_end(child);
    EXPECT_TRUE(eventually([&] {
        received.poll(*box);
        return box->senders() == 0;
    }));
}

TEST_F(messages, do_not_get_lost_when_a_ring_is_full)
{
    const auto sender = connect_to(box->address());
    ASSERT_NE(nullptr, sender);
    uint64_t sent = 0;
    for (unsigned round = 0; round < 20; ++round) {
        while (sender->send(0, sent, nullptr, 0) == UCS_OK) {
            ++sent;
        }
        EXPECT_FALSE(sender->has_room());
        EXPECT_EQ(UCS_ERR_NO_RESOURCE, sender->send(0, sent, nullptr, 0));
        received.poll(*box, 1 + round * 50);
    }
    ASSERT_TRUE(received.wait(*box, sent));
    EXPECT_TRUE(sender->has_room());
    EXPECT_EQ(numbers_up_to(sent), received.numbers);
}

TEST_F(messages, of_a_destroyed_connection_come_all_the_same)
{
    auto sender = connect_to(box->address());
    ASSERT_NE(nullptr, sender);
    ASSERT_EQ(UCS_OK, sender->send(0, 0, nullptr, 0));
    sender.reset();
    ASSERT_TRUE(received.wait(*box, 1));
    received.poll(*box);
    EXPECT_EQ(0u, box->senders());
}

GAUDI_CHILD(comes_and_goes)
{
    const auto address   = from_parent<mailbox_address>();
    const uint64_t count = std::stoull(line_of_parent());
    for (uint64_t i = 0; i < count; ++i) {
        const auto sender = connect_to(address);
        GAUDI_CHILD_REQUIRE(sender != nullptr);
        GAUDI_CHILD_REQUIRE(send_number(*sender, i) == UCS_OK);
    }
    return 0;
}

/* Rings are left, taken over and freed at the same time. */
TEST_F(messages, do_not_get_lost_where_senders_come_and_go)
{
    constexpr uint64_t count   = 3000;
    constexpr unsigned senders = 3;
    std::vector<std::unique_ptr<told_child>> children;
    for (unsigned i = 0; i < senders; ++i) {
        children.push_back(
            std::make_unique<told_child>("comes_and_goes", box->address()));
        children.back()->write_line(std::to_string(count));
    }
    EXPECT_TRUE(received.wait(*box, senders * count));
    for (auto &child : children) {
        expect_end(*child);
    }
    std::vector<uint64_t> expected;
    for (uint64_t i = 0; i < count; ++i) {
        expected.insert(expected.end(), senders, i);
    }
    std::sort(received.numbers.begin(), received.numbers.end());
    EXPECT_EQ(expected, received.numbers);
    received.poll(*box);
    EXPECT_EQ(0u, box->senders());
}

TEST_F(messages, are_refused_where_there_is_no_room_for_a_sender)
{
    mailbox_options options;
    options.max_senders = 4;
    box                 = make_mailbox(options);
    std::vector<std::unique_ptr<connection>> senders;
    for (unsigned i = 0; i < options.max_senders; ++i) {
        senders.push_back(connect_to(box->address()));
        ASSERT_NE(nullptr, senders.back());
    }
    std::unique_ptr<connection> more;
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, connection::open(box->address(), more));
    senders.pop_back();
    EXPECT_EQ(UCS_OK, connection::open(box->address(), more));
}

GAUDI_CHILD(may_not_make_long_files)
{
    const rlimit limit{16 << 20, 16 << 20};
    GAUDI_CHILD_REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    const auto box = make_mailbox();
    GAUDI_CHILD_REQUIRE(box != nullptr);
    const auto sender = connect_to(box->address());
    GAUDI_CHILD_REQUIRE(sender != nullptr);
    GAUDI_CHILD_REQUIRE(send_number(*sender, 1) == UCS_OK);
    received_numbers received;
    GAUDI_CHILD_REQUIRE(received.wait(*box, 1));
    return 0;
}

TEST_F(messages, come_to_a_process_that_may_not_make_long_files)
{
    expect_success("may_not_make_long_files");
}

TEST_F(messages, may_be_sent_and_connections_made_in_a_handler)
{
    auto sender   = connect_to(box->address());
    unsigned left = 100;
    unsigned came = 0;
    ASSERT_EQ(UCS_OK, sender->send(0, left, nullptr, 0));
    for (unsigned i = 0; (i < 1000) && (came < 100); ++i) {
        box->poll(16, [&](uint8_t, void *, size_t) {
            ++came;
            sender = connect_to(box->address());
            ASSERT_NE(nullptr, sender);
            ASSERT_EQ(UCS_OK, sender->send(0, --left, nullptr, 0));
            EXPECT_EQ(0u, received.poll(*box)) << "a poll in a handler";
        });
    }
    EXPECT_EQ(100u, came);
}

TEST_F(messages, are_refused_when_the_mailbox_is_closed)
{
    const auto used    = connect_to(box->address());
    const auto unheard = connect_to(box->address());
    ASSERT_EQ(UCS_OK, used->send(0, 0, nullptr, 0));
    ASSERT_TRUE(received.wait(*box, 1));
    EXPECT_TRUE(used->peer_alive());
    const mailbox_address address = box->address();
    box.reset();
    for (const auto &sender : {used.get(), unheard.get()}) {
        EXPECT_TRUE(sender->is_closed());
        EXPECT_FALSE(sender->peer_alive());
        EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, sender->send(0, 0, nullptr, 0));
    }
    std::unique_ptr<connection> late;
    EXPECT_EQ(UCS_ERR_NO_ELEM, connection::open(address, late));
}

} // namespace gaudi::test
