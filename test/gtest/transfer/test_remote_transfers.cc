/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and gets of every kind between every kind of memory here and every kind
 * in another process: contents, and who moved how many bytes. */
#include "common/framework.h"
#include "common/process_state.h"
#include "gtest/transfer/fixture.h"

#include <cstring>
#include <tuple>
#include <vector>

namespace gaudi::test {

namespace {

enum class here { host, registered, device };
enum class there { host, device };
enum class way { copy, start, bcopy };

const char *name_of(here value)
{
    const char *names[] = {"host", "registered", "device"};
    return names[static_cast<size_t>(value)];
}

const char *name_of(there value)
{
    return (value == there::host) ? "host" : "device";
}

const char *name_of(way value)
{
    const char *names[] = {"copy", "start", "bcopy"};
    return names[static_cast<size_t>(value)];
}

using cell = std::tuple<here, there, way>;

std::string name_of_cell(const ::testing::TestParamInfo<cell> &info)
{
    const auto &[local, remote, how] = info.param;
    return std::string(name_of(how)) + "_" + name_of(local) + "_here_" +
           name_of(remote) + "_there";
}

constexpr size_t guard = 64; /* bytes on either side, to be left alone */

class remote_cells : public transfers,
                     public ::testing::WithParamInterface<cell> {
protected:
    void TearDown() override
    {
        of_card.reset();
        transfers::TearDown();
    }

    /* Memory here, of one of the kinds. */
    struct local_memory {
        local_memory(here what, size_t size) : host(size), kind(what)
        {
            if (kind == here::registered) {
                registered.emplace(host.data(), size);
            } else if (kind == here::device) {
                device.emplace(card(0), size);
            }
        }
        [[nodiscard]] char *data() const
        {
            return device ? device->data() : host.data();
        }

        guarded_buffer host;
        std::optional<registration> registered;
        std::optional<device_buffer> device;
        here kind;
    };

    void fill_here(const local_memory &local, uint64_t seed, size_t size)
    {
        fill_pattern(local.host.data(), size, seed);
        if (local.device) {
            write_device(local.data(), local.host.data(), size);
        }
    }

    void see_here(const local_memory &local, size_t size)
    {
        if (local.device) {
            read_device(local.host.data(), local.data(), size);
        }
    }

    void make_remote(size_t size)
    {
        if (std::get<there>(GetParam()) == there::host) {
            of_child = child_memory::create(size);
            memory   = of_child.get();
        } else {
            of_card = far_memory(size);
            memory  = of_card.get();
        }
    }

    void fill_there(uint64_t seed, size_t size)
    {
        std::vector<char> bytes(size);
        fill_pattern(bytes.data(), size, seed);
        if (of_child != nullptr) {
            of_child->write(bytes.data(), 0, size);
        } else {
            of_card->write(bytes.data(), size);
        }
    }

    std::vector<char> see_there(size_t size)
    {
        std::vector<char> bytes(size);
        if (of_child != nullptr) {
            of_child->read(bytes.data(), 0, size);
        } else {
            of_card->read(bytes.data(), size);
        }
        return bytes;
    }

    void put(char *from, size_t offset, size_t length)
    {
        counted_completion done;
        switch (std::get<way>(GetParam())) {
        case way::copy:
            EXPECT_EQ(UCS_OK, engine->copy(memory->at(offset), from, length));
            break;
        case way::start:
            ASSERT_EQ(UCS_INPROGRESS, engine->start(domain, memory->at(offset),
                                                    from, length, &done));
            EXPECT_EQ(0u, done.calls);
            wait_for(done);
            EXPECT_EQ(UCS_OK, done.status);
            break;
        case way::bcopy: {
            packed bytes{from, length};
            EXPECT_EQ(
                static_cast<ssize_t>(length),
                engine->start_packed(domain, memory->at(offset), pack, &bytes));
            flush();
            break;
        }
        }
    }

    void get(char *to, size_t offset, size_t length)
    {
        counted_completion done;
        switch (std::get<way>(GetParam())) {
        case way::copy:
            EXPECT_EQ(UCS_OK, engine->copy(to, memory->at(offset), length));
            break;
        case way::start:
            ASSERT_EQ(
                UCS_INPROGRESS,
                engine->start(domain, to, memory->at(offset), length, &done));
            EXPECT_EQ(0u, done.calls);
            wait_for(done);
            EXPECT_EQ(UCS_OK, done.status);
            break;
        case way::bcopy: {
            const ucs_status_t status =
                engine->start_unpacked(domain, memory->at(offset), length,
                                       unpack_by_memcpy(), to, &done);
            if (status == UCS_INPROGRESS) {
                wait_for(done);
                EXPECT_EQ(UCS_OK, done.status);
            } else {
                EXPECT_EQ(UCS_OK, status);
            }
            break;
        }
        }
    }

    /* Sizes that this way of copying takes. */
    [[nodiscard]] std::vector<size_t> sizes() const
    {
        std::vector<size_t> all{0, 1, 4097, 65536};
        if (std::get<way>(GetParam()) != way::bcopy) {
            all.push_back(1 << 20);
            all.push_back((1 << 20) + 3);
            all.push_back(64 << 20);
        }
        return all;
    }

    /* Bytes that the cards have to move: each all of them, once, where it has
     * memory at an end. Between host memory the kernel copies. */
    void expect_moved(size_t length, uint64_t before, uint64_t far_before)
    {
        const auto &[local, remote, how] = GetParam();
        const size_t own                 = (local == here::device) ? length : 0;
        const size_t far = (remote == there::device) ? length : 0;
        EXPECT_EQ(before + own + (has_one_card() ? far : 0),
                  moved_bytes(card(0)));
        EXPECT_EQ(far_before + (has_one_card() ? 0 : far), far_moved_bytes());
    }

    std::unique_ptr<child_memory> of_child;
    std::unique_ptr<card_memory> of_card;
    counted_memory *memory = nullptr;

private:
    struct packed {
        const char *data;
        size_t length;
    };
    static size_t pack(void *to, void *arg)
    {
        const auto &bytes = *static_cast<const packed *>(arg);
        std::memcpy(to, bytes.data, bytes.length);
        return bytes.length;
    }
};

using remote_puts      = remote_cells;
using remote_gets      = remote_cells;
using remote_transfers = remote_cells; /* several at a time */

const auto every_here =
    ::testing::Values(here::host, here::registered, here::device);
const auto every_there = ::testing::Values(there::host, there::device);

} // namespace

TEST_P(remote_puts, a_put_arrives_and_touches_nothing_else)
{
    for (size_t length : sizes()) {
        SCOPED_TRACE(length);
        const size_t whole = length + 2 * guard;
        make_remote(whole);
        fill_there(1, whole);
        local_memory local(std::get<here>(GetParam()),
                           std::max<size_t>(length, 1));
        fill_here(local, 2, length);
        const uint64_t before     = moved_bytes(card(0));
        const uint64_t far_before = far_moved_bytes();
        put(local.data(), guard, length);
        expect_moved(length, before, far_before);
        EXPECT_EQ(memory->holds, memory->releases);
        EXPECT_TRUE((length == 0) || (memory->holds == 1));

        const std::vector<char> seen = see_there(whole);
        EXPECT_TRUE(has_pattern(seen.data(), guard, 1));
        EXPECT_TRUE(has_pattern(seen.data() + guard, length, 2));
        EXPECT_TRUE(has_pattern(seen.data() + guard + length, guard, 1,
                                guard + length));
    }
}

TEST_P(remote_gets, a_get_brings_what_is_there)
{
    for (size_t length : sizes()) {
        SCOPED_TRACE(length);
        const size_t whole = length + 2 * guard;
        make_remote(whole);
        fill_there(1, whole);
        local_memory local(std::get<here>(GetParam()), whole);
        fill_here(local, 2, whole);
        const uint64_t before     = moved_bytes(card(0));
        const uint64_t far_before = far_moved_bytes();
        get(local.data() + guard, guard, length);
        expect_moved(length, before, far_before);
        EXPECT_EQ(memory->holds, memory->releases);

        see_here(local, whole);
        const char *seen = local.host.data();
        EXPECT_TRUE(has_pattern(seen, guard, 2));
        EXPECT_TRUE(has_pattern(seen + guard, length, 1, guard));
        EXPECT_TRUE(
            has_pattern(seen + guard + length, guard, 2, guard + length));
    }
}

TEST_P(remote_transfers, many_at_a_time_all_arrive)
{
    constexpr size_t count  = 100;
    constexpr size_t length = 100000;
    make_remote(count * length);
    local_memory local(std::get<here>(GetParam()), count * length);
    fill_here(local, 3, count * length);
    counted_completion done[count];
    for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(UCS_INPROGRESS,
                  engine->start(domain, memory->at(i * length),
                                local.data() + i * length, length, &done[i]));
    }
    flush();
    EXPECT_TRUE(
        has_pattern(see_there(count * length).data(), count * length, 3));
    for (const counted_completion &each : done) {
        EXPECT_EQ(1u, each.calls);
        EXPECT_EQ(UCS_OK, each.status);
    }
    EXPECT_EQ(1u, memory->holds); /* by all of them */
    EXPECT_EQ(1u, memory->releases);
}

TEST_P(remote_transfers, a_get_behind_a_fence_sees_the_put_before_it)
{
    constexpr size_t length = 5 << 20;
    make_remote(length);
    local_memory from(std::get<here>(GetParam()), length);
    local_memory to(std::get<here>(GetParam()), length);
    fill_here(from, 4, length);
    ASSERT_EQ(UCS_INPROGRESS, engine->start(domain, memory->at(0), from.data(),
                                            length, nullptr));
    engine->fence();
    ASSERT_EQ(UCS_INPROGRESS,
              engine->start(domain, to.data(), memory->at(0), length, nullptr));
    engine->fence();
    char last = 0;
    ASSERT_EQ(UCS_OK, engine->copy(&last, memory->at(length - 1), 1));
    flush();
    see_here(to, length);
    EXPECT_TRUE(has_pattern(to.host.data(), length, 4));
    EXPECT_TRUE(has_pattern(&last, 1, 4, length - 1));
}

INSTANTIATE_TEST_SUITE_P(every, remote_puts,
                         ::testing::Combine(every_here, every_there,
                                            ::testing::Values(way::copy,
                                                              way::start)),
                         name_of_cell);
/* The CPU packs. */
INSTANTIATE_TEST_SUITE_P(
    packed, remote_puts,
    ::testing::Combine(::testing::Values(here::host, here::registered),
                       every_there, ::testing::Values(way::bcopy)),
    name_of_cell);
INSTANTIATE_TEST_SUITE_P(
    every, remote_gets,
    ::testing::Combine(every_here, every_there,
                       ::testing::Values(way::copy, way::start, way::bcopy)),
    name_of_cell);
INSTANTIATE_TEST_SUITE_P(every, remote_transfers,
                         ::testing::Combine(every_here, every_there,
                                            ::testing::Values(way::start)),
                         name_of_cell);

using transfers_without_card = transfers;

TEST_F(transfers_without_card, reach_host_memory_of_another_process)
{
    constexpr size_t length = (3 << 20) + 1;
    remake_without_card();
    auto child = child_memory::create(length);
    guarded_buffer from(length);
    guarded_buffer to(length);
    fill_pattern(from.data(), length, 5);
    counted_completion done[2];
    ASSERT_EQ(UCS_INPROGRESS, engine->start(domain, child->at(0), from.data(),
                                            length, &done[0]));
    wait_for(done[0]);
    ASSERT_EQ(UCS_INPROGRESS,
              engine->start(domain, to.data(), child->at(0), length, &done[1]));
    wait_for(done[1]);
    EXPECT_TRUE(has_pattern(to.data(), length, 5));

    std::memset(to.data(), 0, length);
    ASSERT_EQ(UCS_OK, engine->copy(to.data(), from.data(), length));
    EXPECT_TRUE(has_pattern(to.data(), length, 5));
}

TEST_F(transfers_without_card, use_the_cards_that_are_open_by_then)
{
    remake_without_card();
    device_buffer near(card(0), 4096);
    char from[8] = "1234567";
    char to[8]   = {};
    EXPECT_EQ(UCS_OK, engine->copy(near.data(), from, sizeof(from)));
    EXPECT_EQ(UCS_OK, engine->copy(to, near.data(), sizeof(to)));
    EXPECT_STREQ(from, to);
}

} // namespace gaudi::test
