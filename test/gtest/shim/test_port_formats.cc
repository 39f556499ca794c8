/* SPDX-License-Identifier: BSD-3-Clause */
/* Formats of the ports, bit by bit, against the layouts as they are documented:
 * written down once more, field by field from the lowest bit on. */
#include "hlthunk_shim/ports/formats.h"

#include <gmock/gmock.h>

#include <map>
#include <sstream>
#include <string>

namespace gaudi::test {

namespace {

using namespace shim;

/* HabanaAI/perftest, hbl_lib.c. A line is a word: name:width. */
constexpr char gaudi2_send[] =
    "opcode:5 trace_data:1 trace:1 reserved:1 index:8 reduction:13 solicited:1 "
    "in_line:1 ack_request:1\n"
    "size:32\nlocal_low:32\nlocal_high:32\nremote_low:32\nremote_high:32\n"
    "tag:32\n"
    "remote_sob:27 sob_data:2 sob_command:1 completion:2";
constexpr char gaudi3_send[] =
    "opcode:5 local_class:2 sob_control:1 local_mcid:7 local_allocate:1 "
    "reduction:12 rc:1 solicited:1 in_line:1 ack_request:1\n"
    "size:32\nlocal_low:32\nlocal_high:32\nremote_low:32\nremote_high:32\n"
    "tag:32\n"
    "remote_sob:13 remote_sub_sm:1 remote_sm:3 remote_mcid:7 "
    "remote_allocate:1 remote_class:2 long_sob:1 sob_command:2 completion:2";
constexpr char gaudi2_receive[] =
    "opcode:5 reserved:3 index:8 reserved_high:15 sob_command:1\n"
    "local_sob:27 sob_data:3 completion:2\nsize:32\ntag:32";
constexpr char gaudi3_receive[] =
    "opcode:5 reserved:3 index:8 reserved_high:16\n"
    "local_sob:13 local_sub_sm:1 local_sm:3 reserved_sob:8 sob_fifo:2 "
    "long_sob:1 sob_command:2 completion:2\nsize:32\ntag:32";
constexpr char both_doorbells[] = "index:22 reserved:10\nqp:24 port:8";
constexpr char both_cqes[] =
    "qp:24 is_requester:1 reserved:6 is_valid:1\nindex:32\ntag:32\nsize:32";
constexpr char gaudi2_update[] = "cq:32\nconsumed:32";
constexpr char gaudi3_update[] = "consumed:32\nreserved:32";

template <size_t words>
using masks = std::map<std::string, entry<words>>;

template <size_t words>
masks<words> read_layout(const std::string &text)
{
    masks<words> result;
    std::istringstream lines(text);
    std::string line;
    for (size_t word = 0; std::getline(lines, line); ++word) {
        std::istringstream fields(line);
        std::string each;
        unsigned bit = 0;
        while (fields >> each) {
            const size_t colon   = each.find(':');
            const unsigned width = std::stoul(each.substr(colon + 1));
            for (unsigned i = 0; i < width; ++i) {
                result[each.substr(0, colon)].at(word) |= 1u << bit++;
            }
        }
        EXPECT_EQ(bit, 32u) << line;
    }
    return result;
}

/* What each field changes of an entry without any bit, and of one with all. */
template <generation which, size_t words, size_t count>
masks<words> try_fields(const std::array<field, count> &fields)
{
    masks<words> result;
    for (const field &each : fields) {
        entry<words> ones{};
        set<which>(ones, each, UINT32_MAX);
        entry<words> zeros;
        zeros.fill(UINT32_MAX);
        set<which>(zeros, each, 0);
        uint32_t all = 0;
        for (size_t word = 0; word < words; ++word) {
            EXPECT_EQ(ones[word], ~zeros[word]) << each.name;
            all |= ones[word];
        }
        if (all != 0) {
            EXPECT_TRUE(result.emplace(each.name, ones).second) << each.name;
            entry<words> one{};
            set<which>(one, each, 1);
            EXPECT_EQ(get<which>(one, each), 1u) << each.name;
        } else {
            EXPECT_EQ(get<which>(zeros, each), 0u) << each.name;
        }
    }
    return result;
}

template <size_t words, size_t count>
void expect_layout(const std::array<field, count> &fields, const char *gaudi2,
                   const char *gaudi3)
{
    EXPECT_EQ((try_fields<generation::gaudi2, words>(fields)),
              read_layout<words>(gaudi2));
    EXPECT_EQ((try_fields<generation::gaudi3, words>(fields)),
              read_layout<words>(gaudi3));
}

constexpr port_write sample = {0xfff0123456789abc, 0x1001002345678def,
                               0xa5b6c7d8, 0x1c9};

} // namespace

TEST(port_formats, have_each_bit_where_it_is_documented)
{
    expect_layout<8>(send_wqe::all, gaudi2_send, gaudi3_send);
    expect_layout<4>(receive_wqe::all, gaudi2_receive, gaudi3_receive);
    expect_layout<2>(doorbell::all, both_doorbells, both_doorbells);
    expect_layout<4>(cqe::all, both_cqes, both_cqes);
    expect_layout<2>(cq_update::all, gaudi2_update, gaudi3_update);
}

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
