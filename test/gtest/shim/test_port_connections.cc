/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes between two cards over their ports. */
#include "hlthunk_shim/ports/connection.h"
#include "gtest/shim/fixture.h"

#include "common/child.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>

#include <signal.h>
#include <unistd.h>

namespace gaudi::test {

using namespace shim;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

namespace {

using clock_type = std::chrono::steady_clock;

constexpr auto long_enough = std::chrono::seconds(20);

/* A peer that does not answer is given up after 3 s, not 8. */
[[maybe_unused]] const int with_ports =
    setenv("HLTHUNK_EMU_PORTS", "y", 0) +
    setenv("HLTHUNK_EMU_PORT_RETRIES", "90", 0);

const verbs_library &verbs_of_box()
{
    static const verbs_library lib(hl());
    return lib;
}

/* A card with its ports, and host memory that it reaches. */
struct port_end_of_test {
    explicit port_end_of_test(unsigned index)
        : card(open_card(hl(), index)), memory(*card, size)
    {
        EXPECT_EQ(open(index, ports), "");
    }

    std::string open(unsigned index, std::unique_ptr<port_device> &made) const
    {
        return port_device::open(hl(), verbs_of_box(), *card, index, made);
    }

    std::unique_ptr<connection> offer(unsigned peer,
                                      const connection_options &options = {})
    {
        std::unique_ptr<connection> made;
        EXPECT_EQ(connection::open(*ports, peer, options, made), "");
        return made;
    }

    void fill(unsigned seed)
    {
        for (size_t i = 0; i < size; ++i) {
            memory.data()[i] = static_cast<char>(i * 131 + i / 251 + seed);
        }
    }

    static constexpr size_t size = 4 * mebi;

    std::unique_ptr<shim::card> card;
    host_memory memory;
    std::unique_ptr<port_device> ports;
};

/* Collect all that is under way. @return How each ended, by cookie. */
std::multimap<const void *, int> collect(connection &from)
{
    std::multimap<const void *, int> ended;
    const auto deadline = clock_type::now() + long_enough;
    while (from.outstanding() > 0) {
        std::array<dma_completion, 16> some;
        const unsigned count = from.poll(some.data(), some.size());
        for (unsigned i = 0; i < count; ++i) {
            ended.emplace(some[i].cookie, some[i].status);
        }
        if ((count == 0) && (clock_type::now() > deadline)) {
            ADD_FAILURE() << from.outstanding() << " do not end";
            break;
        }
    }
    return ended;
}

std::vector<int> collect_statuses(connection &from)
{
    std::vector<int> statuses;
    for (const auto &[cookie, status] : collect(from)) {
        statuses.push_back(status);
    }
    return statuses;
}

/* A wire that carries nothing while this lives, or all of a card. */
class cut_wire {
public:
    explicit cut_wire(const std::string &which) : down_("port=down@" + which) {}
    ~cut_wire() { const wished_faults up("port=up"); }
    cut_wire(const cut_wire &)            = delete;
    cut_wire &operator=(const cut_wire &) = delete;

private:
    const wished_faults down_;
};

/* Two connected cards. */
class port_connections : public ::testing::Test {
protected:
    void SetUp() override
    {
        one   = std::make_unique<port_end_of_test>(0);
        other = std::make_unique<port_end_of_test>(1);
        ASSERT_NE(one->ports, nullptr);
        ASSERT_NE(other->ports, nullptr);
        connect();
    }

    void connect(const connection_options &options = {})
    {
        to_other = one->offer(other->card->module_id(), options);
        to_one   = other->offer(one->card->module_id(), options);
        ASSERT_EQ(to_one->connect(to_other->offer()), "");
        ASSERT_EQ(to_other->connect(to_one->offer()), "");
    }

    /* From one's memory to the other's. */
    int post(uint64_t to, uint64_t from, uint64_t size, void *cookie = nullptr)
    {
        return to_other->post(other->memory.va() + to, one->memory.va() + from,
                              size, cookie);
    }

    int write(uint64_t to, uint64_t from, uint64_t size)
    {
        EXPECT_EQ(post(to, from, size), 0);
        const std::vector<int> ended = collect_statuses(*to_other);
        EXPECT_THAT(ended, SizeIs(1));
        return ended.empty() ? -ENOENT : ended.front();
    }

    warning_log warnings;
    std::unique_ptr<port_end_of_test> one;
    std::unique_ptr<port_end_of_test> other;
    std::unique_ptr<connection> to_other; /* these go first */
    std::unique_ptr<connection> to_one;
};

/* Of cards with whichever ports, as many as a port has work queues. */
GAUDI_CHILD(has_many_connections)
{
    port_end_of_test one(0);
    port_end_of_test other(1);
    std::vector<std::unique_ptr<connection>> to_other;
    std::vector<std::unique_ptr<connection>> to_one;
    for (unsigned i = 0; i < queues_of_port; ++i) {
        to_other.push_back(one.offer(other.card->module_id()));
        to_one.push_back(other.offer(one.card->module_id()));
        GAUDI_CHILD_REQUIRE(to_one[i] && to_other[i]);
        GAUDI_CHILD_REQUIRE(to_one[i]->connect(to_other[i]->offer()) == "");
        GAUDI_CHILD_REQUIRE(to_other[i]->connect(to_one[i]->offer()) == "");
        GAUDI_CHILD_REQUIRE(to_other[i]->usable_ports() ==
                            std::strtoul(std::getenv("LINKS"), nullptr, 10));
    }
    one.fill(1);
    for (unsigned round = 0; round < 20; ++round) {
        for (size_t i = 0; i < queues_of_port; ++i) {
            for (size_t at = 0; at < 8; ++at) {
                const uint64_t place = (round * 128 + i * 8 + at) * 1024;
                GAUDI_CHILD_REQUIRE(to_other[i]->post(other.memory.va() + place,
                                                      one.memory.va() + place,
                                                      1024, nullptr) == 0);
            }
        }
        for (const auto &each : to_other) {
            for (const int status : collect_statuses(*each)) {
                GAUDI_CHILD_REQUIRE(status == 0);
            }
        }
    }
    for (unsigned round = 0; round < 20; ++round) {
        GAUDI_CHILD_REQUIRE(std::memcmp(one.memory.data() + round * 131072,
                                        other.memory.data() + round * 131072,
                                        queues_of_port * 8192) == 0);
    }
    return 0;
}

} // namespace

TEST(port_connections_of_cards, are_as_many_as_work_queues)
{
    for (const auto &[asic, links] : {std::pair("gaudi2", "3"),
                                      {"gaudi3", "3"},
                                      {"hl288", "6"},
                                      {"hl338", "6"}}) {
        EXPECT_TRUE(
            child_passes("has_many_connections",
                         {{{"HLTHUNK_EMU_ASIC", asic}, {"LINKS", links}}}))
            << asic;
    }
}

TEST_F(port_connections, move_any_number_of_bytes_and_none_beside_them)
{
    for (const uint64_t size :
         {uint64_t{1}, uint64_t{8}, uint64_t{4095}, uint64_t{4096},
          uint64_t{16} << 10, (uint64_t{64} << 10) + 1, mebi,
          2 * mebi + 12345}) {
        one->fill(static_cast<unsigned>(size));
        other->fill(77);
        std::vector<char> expected(other->memory.data(),
                                   other->memory.data() + other->size);
        std::copy_n(one->memory.data() + 3, size, expected.begin() + 5001);
        EXPECT_EQ(write(5001, 3, size), 0);
        EXPECT_EQ(
            0, std::memcmp(expected.data(), other->memory.data(), other->size))
            << size;
    }
}

/* Of cards that take copies, to see what is in that memory. */
TEST_F(port_connections, move_bytes_of_device_memory)
{
    const device_memory from(*one->card, mebi);
    const device_memory to(*other->card, mebi);
    one->fill(1);
    auto fill = std::unique_ptr<dma_queue>();
    auto look = std::unique_ptr<dma_queue>();
    ASSERT_EQ(one->card->make_queue(dma_direction::host_to_device, {}, fill),
              0);
    ASSERT_EQ(other->card->make_queue(dma_direction::device_to_host, {}, look),
              0);
    ASSERT_EQ(copy(*fill, from.va(), one->memory.va(), mebi), 0);
    ASSERT_EQ(to_other->post(to.va(), from.va(), mebi, nullptr), 0);
    ASSERT_THAT(collect_statuses(*to_other), ElementsAre(0));
    ASSERT_EQ(copy(*look, other->memory.va(), to.va(), mebi), 0);
    EXPECT_EQ(0, std::memcmp(one->memory.data(), other->memory.data(), mebi));
}

TEST_F(port_connections, take_what_fits_and_end_each_write_once)
{
    std::array<char, 2000> cookies{};
    std::map<const void *, unsigned> ended;
    one->fill(5);
    unsigned refused    = 0;
    const auto note_all = [&] {
        for (const auto &[cookie, status] : collect(*to_other)) {
            EXPECT_EQ(status, 0);
            ++ended[cookie];
        }
    };
    for (size_t i = 0; i < cookies.size();) {
        const int ret = post(8 * i, 8 * i, 8, &cookies[i]);
        if (ret == 0) {
            ++i;
            continue;
        }
        ASSERT_EQ(ret, -EAGAIN);
        ++refused;
        note_all();
    }
    note_all();
    EXPECT_GE(refused, 3u) << "512 at a time";
    EXPECT_THAT(ended, SizeIs(cookies.size()));
    for (const auto &[cookie, times] : ended) {
        EXPECT_EQ(times, 1u);
    }
    EXPECT_EQ(0, std::memcmp(one->memory.data(), other->memory.data(),
                             8 * cookies.size()));
}

TEST_F(port_connections, take_what_fits_of_parts_on_all_ports)
{
    unsigned started = 0;
    unsigned ended   = 0;
    const auto fill  = [&] {
        while (post(0, 0, 48 << 10) == 0) {
            ++started;
        }
    };
    fill();
    EXPECT_GT(started, 200u);
    /* Before the card's first answer a part may be repeated, which takes the
     * last place of a queue. */
    const auto until = clock_type::now() + std::chrono::milliseconds(300);
    while (clock_type::now() < until) {
        dma_completion next{};
        if (to_other->poll(&next, 1) > 0) {
            ++ended;
            ASSERT_EQ(next.status, 0);
        }
        fill();
    }
    const std::vector<int> rest = collect_statuses(*to_other);
    EXPECT_THAT(rest, Each(0));
    EXPECT_EQ(ended + rest.size(), started);
}

/* Of a peer that does not poll. */
TEST_F(port_connections, take_more_than_the_peers_queues_hold)
{
    static unsigned overrun;
    overrun = 0;
    verbs_library counting(hl());
    counting.ibv_get_async_event = [](ibv_context *of, ibv_async_event *next) {
        const int ret = verbs_of_box().ibv_get_async_event(of, next);
        overrun += (ret == 0) && (next->event_type == IBV_EVENT_CQ_ERR);
        return ret;
    };
    to_one.reset();
    other->ports.reset();
    ASSERT_EQ(port_device::open(hl(), counting, *other->card, 1, other->ports),
              "");
    connect();
    for (unsigned i = 0; i < 3 * 5000;) {
        if (post(8 * i, 8 * i, 8) == 0) {
            ++i;
            continue;
        }
        for (const int status : collect_statuses(*to_other)) {
            ASSERT_EQ(status, 0);
        }
    }
    EXPECT_THAT(collect_statuses(*to_other), Each(0));
    other->ports->look_for_events();
    EXPECT_EQ(overrun, 0u);
    to_one.reset();
    other->ports.reset();
}

TEST_F(port_connections, leave_out_a_port_that_is_down)
{
    {
        const cut_wire down("0." +
                            std::to_string(to_other->offer().ends[0].port));
        one->fill(1);
        ASSERT_EQ(post(0, 0, mebi), 0);
        const auto deadline = clock_type::now() + long_enough;
        while ((to_other->usable_ports() == 3) &&
               (clock_type::now() < deadline)) {
            dma_completion ended{};
            ASSERT_EQ(to_other->poll(&ended, 1), 0u) << "a third is missing";
        }
        EXPECT_EQ(to_other->usable_ports(), 2u);
        /* On the other two. */
        for (unsigned i = 0; i < 8; ++i) {
            EXPECT_EQ(post(2 * mebi, 0, mebi), 0);
        }
        std::array<dma_completion, 8> ended;
        unsigned count = 0;
        while ((count < 8) && (clock_type::now() < deadline)) {
            count += to_other->poll(&ended[count], 8 - count);
        }
        EXPECT_EQ(count, 8u);
        EXPECT_EQ(0, std::memcmp(one->memory.data(),
                                 other->memory.data() + 2 * mebi, mebi));
        EXPECT_EQ(to_other->outstanding(), 1u);
    }
    EXPECT_THAT(collect_statuses(*to_other), ElementsAre(0))
        << "it is up again";
    EXPECT_EQ(0, std::memcmp(one->memory.data(), other->memory.data(), mebi));
}

TEST_F(port_connections, fail_where_the_peer_has_nothing_mapped)
{
    /* Without it, that resets the peer's card. */
    const wished_faults only_the_write("packet=abort@1");
    EXPECT_TRUE(to_other->is_usable());
    EXPECT_EQ(to_other->post(0x1000, one->memory.va(), 8, nullptr), 0);
    EXPECT_THAT(collect_statuses(*to_other), ElementsAre(-EIO));
    EXPECT_EQ(to_other->usable_ports(), 2u);
    EXPECT_FALSE(to_other->is_usable()) << "the peer does not know which";
    one->fill(3);
    EXPECT_EQ(write(0, 0, 8), 0);
    EXPECT_EQ(0, std::memcmp(one->memory.data(), other->memory.data(), 8));
}

TEST_F(port_connections, fail_with_another_key)
{
    to_other          = one->offer(other->card->module_id());
    to_one            = other->offer(one->card->module_id());
    port_offer forged = to_one->offer();
    for (unsigned i = 0; i < forged.count; ++i) {
        forged.ends.at(i).address.key ^= 1;
    }
    ASSERT_EQ(to_one->connect(to_other->offer()), "");
    ASSERT_EQ(to_other->connect(forged), "");
    one->fill(1);
    other->fill(2);
    const std::string before(other->memory.data(), 8);
    EXPECT_EQ(write(0, 0, 8), -EIO);
    EXPECT_EQ(before, std::string(other->memory.data(), 8));
}

TEST_F(port_connections, end_what_is_under_way_when_they_are_closed)
{
    int cookies[3] = {};
    for (int &each : cookies) {
        ASSERT_EQ(post(0, 0, mebi, &each), 0);
    }
    to_other->close();
    EXPECT_EQ(to_other->outstanding(), 3u);
    const auto ended = collect(*to_other);
    for (int &each : cookies) {
        EXPECT_EQ(ended.count(&each), 1u);
    }
    EXPECT_EQ(post(0, 0, 8), -ENOTCONN);
}

TEST_F(port_connections, hear_of_a_write_by_the_next_ones_completion)
{
    connect();
    for (unsigned i = 0; i < 3; ++i) { /* one for each port */
        const wished_faults lost("wqe=lose@0");
        ASSERT_EQ(post(0, 0, 8), 0);
        dma_completion none;
        EXPECT_EQ(to_other->poll(&none, 1), 0u);
    }
    for (unsigned i = 0; i < 3; ++i) {
        ASSERT_EQ(post(0, 0, 8), 0);
    }
    EXPECT_THAT(collect_statuses(*to_other), ElementsAre(0, 0, 0, 0, 0, 0));
}

/* Whichever entry it is that the card answers. */
TEST_F(port_connections, ask_again_where_the_first_completion_does_not_come)
{
    {
        const wished_faults lost("wqe#1=lose@0");
        one->fill(1);
        EXPECT_EQ(write(8, 0, 4096), 0);
    }
    EXPECT_EQ(std::memcmp(other->memory.data() + 8, one->memory.data(), 4096),
              0);
    EXPECT_EQ(write(0, 0, mebi), 0);
}

TEST_F(port_connections, give_up_a_port_that_never_completes)
{
    connect({.patience = std::chrono::milliseconds(100)});
    {
        const wished_faults lost("wqe=lose@0");
        EXPECT_EQ(write(0, 0, 8), -ETIMEDOUT);
    }
    EXPECT_EQ(to_other->usable_ports(), 2u);
    EXPECT_EQ(write(0, 0, mebi), 0);
}

TEST_F(port_connections, are_refused_with_what_is_no_offer_to_them)
{
    const auto why = [&](auto &&spoil) {
        auto own         = one->offer(other->card->module_id());
        port_offer wrong = to_one->offer();
        spoil(wrong);
        return own->connect(wrong);
    };
    EXPECT_NE(why([](port_offer &of) { of.version = 2; }), "");
    EXPECT_NE(why([](port_offer &of) { of.kind ^= 1; }), "");
    EXPECT_NE(why([](port_offer &of) { of.own = 5; }), "");
    EXPECT_NE(why([](port_offer &of) { of.peer = 5; }), "");
    EXPECT_NE(why([](port_offer &of) { of.count = 25; }), "");
    EXPECT_NE(why([](port_offer &of) { of.count = 0; }), "");
    std::unique_ptr<connection> none;
    EXPECT_THAT(connection::open(*one->ports, 0, {}, none),
                HasSubstr("card 0"));
    EXPECT_EQ(none, nullptr);
}

TEST_F(port_connections, end_with_the_card)
{
    const cut_wire down("0");
    ASSERT_EQ(post(0, 0, mebi), 0);
    (void)one->card->lose();
    EXPECT_THAT(collect_statuses(*to_other), ElementsAre(-ENODEV));
    EXPECT_EQ(post(0, 0, 8), -ENODEV);
}

TEST_F(port_connections, are_one_at_a_time_of_a_card)
{
    std::unique_ptr<port_device> second;
    EXPECT_THAT(one->open(0, second), HasSubstr("INIT_HCCL_ON_ACQUIRE=false"));
    EXPECT_EQ(second, nullptr);
    EXPECT_EQ(write(0, 0, 8), 0);
    to_other.reset();
    one->ports.reset();
    EXPECT_EQ(one->open(0, one->ports), "") << "free again";
}

TEST_F(port_connections, name_the_call_that_failed)
{
    to_other.reset();
    one->ports.reset();
    verbs_library broken(hl());
    ASSERT_EQ(port_device::open(hl(), broken, *one->card, 0, one->ports), "");
    broken.hbldv_query_qp = [](ibv_qp *, hbldv_query_qp_attr *) { return EIO; };
    std::unique_ptr<connection> none;
    EXPECT_THAT(
        connection::open(*one->ports, other->card->module_id(), {}, none),
        HasSubstr("hbldv_query_qp: Input/output error"));
    one->ports.reset();
}

/* --- between processes -----------------------------------------------------*/

namespace {

std::string to_hex(const port_offer &offer)
{
    std::string text;
    for (const unsigned char byte :
         std::string(reinterpret_cast<const char *>(&offer), sizeof(offer))) {
        char digits[3];
        (void)std::snprintf(digits, sizeof(digits), "%02x", byte);
        text += digits;
    }
    return text;
}

port_offer from_hex(const std::string &text)
{
    std::array<unsigned char, sizeof(port_offer)> bytes{};
    for (size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<unsigned char>(
            std::stoul(text.substr(2 * i, 2), nullptr, 16));
    }
    port_offer offer;
    std::memcpy(&offer, bytes.data(), sizeof(offer));
    return offer;
}

constexpr size_t bytes_for_child = 100'000;

} // namespace

/* Owns card 1, and is written to. */
GAUDI_CHILD(is_written_to_over_ports)
{
    port_end_of_test own(1);
    GAUDI_CHILD_REQUIRE(own.ports != nullptr);
    const auto to_parent = own.offer(0);
    GAUDI_CHILD_REQUIRE(to_parent != nullptr);
    GAUDI_CHILD_REQUIRE(
        to_parent->connect(from_hex(getenv("OFFER_OF_PARENT"))).empty());
    tell_parent(to_hex(to_parent->offer()));
    tell_parent(std::to_string(own.memory.va()));
    wait_for_parent();
    EXPECT_TRUE(has_pattern(own.memory.data(), bytes_for_child, 4));
    return 0;
}

class port_connections_between_processes : public ::testing::Test {
protected:
    void SetUp() override
    {
        ASSERT_NE(one.ports, nullptr);
        to_child = one.offer(1, {.patience = std::chrono::milliseconds(500)});
        child.emplace(
            "is_written_to_over_ports",
            child_options{.environment = {
                              {"OFFER_OF_PARENT", to_hex(to_child->offer())}}});
        ASSERT_EQ(to_child->connect(from_hex(child->read_line())), "");
        remote = std::stoull(child->read_line());
        fill_pattern(one.memory.data(), bytes_for_child, 4);
    }

    warning_log warnings;
    port_end_of_test one{0};
    std::unique_ptr<connection> to_child;
    std::optional<child_process> child;
    uint64_t remote = 0;
};

TEST_F(port_connections_between_processes, move_bytes)
{
    EXPECT_EQ(to_child->usable_ports(), 3u);
    ASSERT_EQ(to_child->post(remote, one.memory.va(), bytes_for_child, nullptr),
              0);
    EXPECT_THAT(collect_statuses(*to_child), ElementsAre(0));
    child->write_line("look");
    EXPECT_EQ(child->wait().exit_code, 0);
}

TEST_F(port_connections_between_processes, fail_when_the_peer_is_killed)
{
    child->kill(SIGKILL);
    (void)child->wait();
    while (to_child->usable_ports() > 0) {
        ASSERT_EQ(to_child->post(remote, one.memory.va(), 8, nullptr), 0);
        EXPECT_THAT(collect_statuses(*to_child),
                    /* -EIO where this process stands still for so long that
                     * the port's retries end before it looks again. */
                    ElementsAre(AnyOf(-EIO, -ETIMEDOUT)));
    }
    EXPECT_EQ(to_child->post(remote, one.memory.va(), 8, nullptr), -ENOTCONN);
}

} // namespace gaudi::test
