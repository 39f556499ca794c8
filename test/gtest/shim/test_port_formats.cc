/* SPDX-License-Identifier: BSD-3-Clause */
/* Formats of the ports, word by word. */
#include "hlthunk_shim/abi/port_formats.h"

#include <gmock/gmock.h>

namespace gaudi::test {

namespace {

using namespace shim;

constexpr port_write sample = {
    0xfff0123456789abc, 0x1001002345678def, 0xa5b6c7d8, 0x1c9, false, true};

} // namespace

TEST(port_formats, of_gaudi2_say_what_to_write_where)
{
    EXPECT_EQ(make_send_entry<generation::gaudi2>(sample),
              (send_entry{0x0000c902, 0xa5b6c7d8, 0x45678def, 0x10010023,
                          0x56789abc, 0xfff01234, 0, 0}));
    EXPECT_EQ(make_receive_entry<generation::gaudi2>(sample),
              (receive_entry{0x0000c902, 0x80000000, 0xa5b6c7d8, 0}));
}

TEST(port_formats, of_gaudi3_say_what_to_write_where)
{
    EXPECT_EQ(make_send_entry<generation::gaudi3>(sample),
              (send_entry{0x00000002, 0xa5b6c7d8, 0x45678def, 0x10010023,
                          0x56789abc, 0xfff01234, 0, 0}));
    EXPECT_EQ(make_receive_entry<generation::gaudi3>(sample),
              (receive_entry{0x0000c902, 0x80000000, 0xa5b6c7d8, 0}));
}

TEST(port_formats, ask_for_a_completion_in_the_send_entry)
{
    port_write other = sample;
    other.in_send    = true;
    other.in_receive = false;
    EXPECT_EQ(make_send_entry<generation::gaudi2>(other)[7], 0x80000000);
    EXPECT_EQ(make_send_entry<generation::gaudi3>(other)[7], 0x80000000);
    EXPECT_EQ(make_receive_entry<generation::gaudi2>(other)[1], 0u);
    EXPECT_EQ(make_receive_entry<generation::gaudi3>(other)[1], 0u);
}

TEST(port_formats, of_completions_name_queue_pair_and_entry)
{
    constexpr generation both = generation::gaudi2;
    const cq_entry found      = {0x80abcdef, 0x12345678, 0x9a, 0xbc};
    EXPECT_EQ(get<both>(found, cqe::qp), 0xabcdefu);
    EXPECT_EQ(get<both>(found, cqe::index), 0x12345678u);
    EXPECT_EQ(get<both>(found, cqe::is_valid), 1u);
    EXPECT_EQ(get<both>(cq_entry{0x7fffffff, 0, 0, 0}, cqe::is_valid), 0u);
}

TEST(port_formats, of_doorbells_and_updates_are_one_store)
{
    EXPECT_EQ(make_doorbell(0x15, 0x1abcd, 0x3ffffe), 0x1501abcd003ffffeu);
    EXPECT_EQ(make_doorbell(1, 2, 0x400003), 0x0100000200000003u)
        << "22 bits of the index count";
    EXPECT_EQ(make_cq_update<generation::gaudi2>(7, 0x12345678),
              0x1234567800000007u);
    EXPECT_EQ(make_cq_update<generation::gaudi3>(7, 0x12345678), 0x12345678u);
}

} // namespace gaudi::test
