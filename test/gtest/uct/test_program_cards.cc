/* SPDX-License-Identifier: BSD-3-Clause */
/* Which cards a program has that allocates memory without UCX: all in children,
 * which have opened none yet. */
#include "gtest/uct/fixture.h"

#include "common/process_state.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>

#include <unistd.h>

namespace gaudi::test {

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr size_t size = 100000;

/* In such a child: SynapseAI has one card, and all of its memory. */
bool is_by_synapse()
{
    return std::getenv("UCX_GAUDI_ENGINE") != nullptr;
}

void *allocate(const char *card, ucs_status_t expected = UCS_OK)
{
    void *address = nullptr;
    const ucs_status_t status =
        GAUDI_CALL(ucx_gaudi_mem_alloc)(size, card, &address);
    if (status != expected) {
        std::fprintf(stderr, "allocation on %s: %s\n",
                     (card != nullptr) ? card : "any card",
                     ucs_status_string(status));
        std::abort();
    }
    return address;
}

ucs_status_t release(void *address)
{
    return GAUDI_CALL(ucx_gaudi_mem_free)(address);
}

ucs_status_t close_cards()
{
    return GAUDI_CALL(ucx_gaudi_close)();
}

ucs_status_t copy(void *dst, const void *src, size_t length)
{
    return GAUDI_CALL(ucx_gaudi_mem_copy)(dst, src, length);
}

ucs_status_t fill(void *address, const char *byte)
{
    return GAUDI_CALL(ucx_gaudi_mem_fill)(address, size, byte, 1);
}

void meet(const char *fault)
{
    ASSERT_EQ(0, emulator::instance().hlthunk_emu_fault(fault));
}

ucs_status_t query(ucx_gaudi_card_attr_t *first_card)
{
    return GAUDI_CALL(ucx_gaudi_card_query)(0, first_card);
}

ucs_status_t query(const void *address, ucx_gaudi_mem_attr_t *attr)
{
    return GAUDI_CALL(ucx_gaudi_mem_query)(address, size, attr);
}

std::string card_of(const void *address)
{
    ucx_gaudi_mem_attr_t attr{};
    attr.field_mask = UCX_GAUDI_MEM_ATTR_FIELD_CARD;
    (void)query(address, &attr);
    return attr.card;
}

ucx_gaudi_card_attr_t card(unsigned number, ucs_status_t expected = UCS_OK)
{
    ucx_gaudi_card_attr_t attr{};
    attr.field_mask = UINT64_MAX;
    if (GAUDI_CALL(ucx_gaudi_card_query)(number, &attr) != expected) {
        std::abort();
    }
    return attr;
}

/* Names and states: "gaudi0 free, gaudi1 open". */
std::string cards()
{
    static const char *const states[] = {"unknown", "free", "open", "taken",
                                         "unusable"};
    std::string text;
    ucx_gaudi_card_attr_t attr{};
    attr.field_mask = UINT64_MAX;
    for (unsigned i = 0; GAUDI_CALL(ucx_gaudi_card_query)(i, &attr) == UCS_OK;
         ++i) {
        text += std::string(i == 0 ? "" : ", ") + attr.name + " " +
                states[attr.state];
    }
    return text;
}

/* Whether bytes go from one to the other and come back. */
bool copies_between(void *one, void *other)
{
    std::vector<char> host(size);
    std::vector<char> seen(size);
    fill_pattern(host.data(), size, 1);
    return (copy(one, host.data(), size) == UCS_OK) &&
           (copy(other, one, size) == UCS_OK) && (fill(one, "-") == UCS_OK) &&
           (copy(one, other, size) == UCS_OK) &&
           (copy(seen.data(), one, size) == UCS_OK) && (seen == host);
}

} // namespace

TEST_IN_CHILD_SAYING(program_cards, are_those_that_the_program_chooses,
                     IsEmpty(), logging({{"HLTHUNK_EMU_DEVICES", "3"}}))
{
    load_module();
    EXPECT_EQ("gaudi0 free, gaudi1 free, gaudi2 free", cards());
    void *const second = allocate("gaudi1");
    EXPECT_EQ("gaudi1", card_of(second));
    EXPECT_EQ("gaudi0 free, gaudi1 open, gaudi2 free", cards());
    if (!is_by_synapse()) {
        void *const third = allocate(card(2).bus_id);
        void *const first = allocate("0");
        EXPECT_EQ("gaudi2", card_of(third));
        EXPECT_EQ("gaudi0", card_of(first));
        EXPECT_EQ("gaudi0 open, gaudi1 open, gaudi2 open", cards());
        ASSERT_TRUE(copies_between(first, third));
        ASSERT_TRUE(copies_between(third, second));
        EXPECT_EQ(UCS_OK, release(first));
        EXPECT_EQ(UCS_OK, release(third));
    }
    void *const any = allocate(nullptr);
    EXPECT_EQ("gaudi1", card_of(any)); /* opened first */
    EXPECT_EQ(UCS_OK, release(any));
    EXPECT_EQ(UCS_OK, release(second));
    EXPECT_EQ(UCS_OK, close_cards());
    EXPECT_EQ("gaudi0 free, gaudi1 free, gaudi2 free", cards());
}

TEST_IN_CHILD_SAYING(
    program_cards, are_none_that_the_settings_exclude,
    AllOf(HasSubstr("'gaudi7' is none of the 2 cards of this machine"),
          HasSubstr("'auto' does not name one card"),
          HasSubstr("no card is listed"),
          HasSubstr("'0,1' does not name one card"),
          HasSubstr("UCX_GAUDI_DEVICES=1: gaudi0 is not among them"),
          Not(HasSubstr("WARN"))),
    logging({{"HLTHUNK_EMU_DEVICES", "2"}, {"UCX_GAUDI_DEVICES", "1"}}))
{
    load_module();
    for (const char *name : {"gaudi7", "auto", "", "0,1", "gaudi0"}) {
        (void)allocate(name, UCS_ERR_NO_DEVICE);
        ASSERT_TRUE(!engine_hooks::any_card());
    }
    ASSERT_EQ("gaudi1", card_of(allocate(nullptr)));
    (void)allocate("gaudi0", UCS_ERR_NO_DEVICE);
    ASSERT_EQ("gaudi1", card_of(allocate("1")));
}

GAUDI_CHILD(holds_a_card_for_itself)
{
    load_module();
    void *const address = allocate("gaudi0");
    tell_parent("open");
    wait_for_parent();
    EXPECT_EQ(UCS_ERR_BUSY, close_cards());
    EXPECT_EQ(UCS_OK, release(address));
    EXPECT_EQ(UCS_OK, close_cards());
    tell_parent("closed");
    wait_for_parent();
    EXPECT_EQ(UCS_ERR_BUSY, GAUDI_CALL(ucx_gaudi_open)(nullptr));
    return 0;
}

GAUDI_CHILD(gets_the_card_when_it_is_free)
{
    load_module();
    EXPECT_EQ("gaudi0 taken", cards());
    (void)allocate("gaudi0", UCS_ERR_BUSY);
    (void)allocate(nullptr, UCS_ERR_BUSY);
    tell_parent("busy");
    wait_for_parent();
    EXPECT_EQ("gaudi0", card_of(allocate("gaudi0")));
    tell_parent("open");
    wait_for_parent();
    return 0; /* with the allocation, and the card open */
}

TEST(program_cards, are_free_for_others_when_the_program_has_closed_them)
{
    const child_options one_card = logging({{"HLTHUNK_EMU_DEVICES", "1"}});
    child_process first("holds_a_card_for_itself", one_card);
    ASSERT_EQ("open", first.read_line());
    child_process second("gets_the_card_when_it_is_free", one_card);
    ASSERT_EQ("busy", second.read_line());
    first.write_line("close");
    ASSERT_EQ("closed", first.read_line());
    second.write_line("again");
    ASSERT_EQ("open", second.read_line());
    first.write_line("open");
    EXPECT_THAT(first.wait(),
                ended(0, AllOf(HasSubstr("the cards are in use: 1 allocations"),
                               HasSubstr("1 of 1 cards are in use"))));
    second.write_line("end");
    EXPECT_THAT(second.wait(),
                ended(0, HasSubstr("card gaudi0 was not opened: gaudi0 (" +
                                   bus_id(0) + ") is in use")));
}

TEST_IN_CHILD_SAYING(
    program_cards, are_none_without_a_driver_which_is_said_once,
    MatchesRegex("[^\n]*/nonexistent/libhl-thunk.so[^\n]*\n"),
    logging({{"UCX_GAUDI_DRIVER", "/nonexistent/libhl-thunk.so"}}))
{
    load_module();
    (void)card(0, UCS_ERR_NO_ELEM);
    (void)allocate(nullptr, UCS_ERR_NO_DEVICE);
    (void)allocate("gaudi0", UCS_ERR_NO_DEVICE);
    ASSERT_EQ(UCS_OK, close_cards());
    char host;
    auto *const device = reinterpret_cast<void *>(0x1001001800000000);
    ASSERT_EQ(UCS_ERR_NO_DEVICE, copy(&host, device, 1));
}

/* Such as those of a later header, whose structures are larger. */
TEST_IN_CHILD_SAYING(program_cards, fields_that_are_unknown_are_left, IsEmpty(),
                     logging({{"UCX_GAUDI_DEVICES", "all"}}))
{
    constexpr uint64_t card_bits =
        2 * UCX_GAUDI_CARD_ATTR_FIELD_FREE_MEMORY - 1;
    constexpr uint64_t mem_bits = 2 * UCX_GAUDI_MEM_ATTR_FIELD_IMPORTED - 1;
    struct {
        ucx_gaudi_card_attr_t card;
        char behind_card[64];
        ucx_gaudi_mem_attr_t mem;
        char behind_mem[64];
    } asked{};
    const std::string_view bytes(reinterpret_cast<const char *>(&asked),
                                 sizeof(asked));
    load_module();
    void *const address = allocate(nullptr);

    std::memset(&asked, 'x', sizeof(asked));
    asked.card.field_mask = ~card_bits;
    asked.mem.field_mask  = ~mem_bits;
    const std::string before(bytes);
    ASSERT_EQ(UCS_OK, query(&asked.card));
    ASSERT_EQ(UCS_OK, query(address, &asked.mem));
    ASSERT_TRUE(bytes == before);

    asked.card.field_mask = UINT64_MAX;
    asked.mem.field_mask  = UINT64_MAX;
    ASSERT_EQ(UCS_OK, query(&asked.card));
    ASSERT_EQ(UCS_OK, query(address, &asked.mem));
    ASSERT_TRUE(asked.card.name == card_of(address));
    ASSERT_TRUE(asked.mem.base == address);
    const std::string behind(64, 'x');
    ASSERT_TRUE(behind == std::string_view(asked.behind_card, 64));
    ASSERT_TRUE(behind == std::string_view(asked.behind_mem, 64));
}

TEST_IN_CHILD(program_cards, are_listed_with_their_memory,
              logging({{"HLTHUNK_EMU_DEVICES", "4"},
                       {"UCX_GAUDI_DEVICES", "all"},
                       {"GAUDI_MAPPING_TABLE",
                        R"([{"index":0,"module_id":2,"bus_id":")" + bus_id(2) +
                            R"("},{"index":1,"module_id":3,"bus_id":")" +
                            bus_id(3) + R"("}])"}}))
{
    load_module();
    const ucx_gaudi_card_attr_t seen = card(0);
    ASSERT_TRUE(seen.name == std::string("gaudi0"));
    ASSERT_TRUE(seen.bus_id == bus_id(2));
    ASSERT_TRUE(seen.state == UCX_GAUDI_CARD_FREE);
    ASSERT_TRUE(seen.total_memory >= device_bytes());
    ASSERT_TRUE(card(1).bus_id == bus_id(3));
    (void)card(2, UCS_ERR_NO_ELEM);
    ASSERT_EQ("gaudi0", card_of(allocate(nullptr)));
    const ucx_gaudi_card_attr_t now = card(0);
    ASSERT_TRUE(now.state == UCX_GAUDI_CARD_OPEN);
    ASSERT_TRUE(now.total_memory == seen.total_memory);
    if (!is_by_synapse()) {
        ASSERT_TRUE(now.free_memory == seen.free_memory - device_page());
    }
    ucx_gaudi_card_attr_t nothing;
    std::memset(&nothing, 'x', sizeof(nothing));
    nothing.field_mask = 0;
    ASSERT_EQ(UCS_OK, query(&nothing));
    ASSERT_TRUE(nothing.name[0] == 'x');
    ASSERT_EQ(UCS_ERR_INVALID_PARAM,
              GAUDI_CALL(ucx_gaudi_card_query)(0, nullptr));
}

TEST_IN_CHILD_SAYING(program_cards, are_lost_by_a_reset_until_they_are_closed,
                     HasSubstr("gaudi0 was reset or removed"),
                     logging({{"HLTHUNK_EMU_DEVICES", "1"}}))
{
    load_module();
    char host           = 'x';
    void *const address = allocate(nullptr);
    ASSERT_EQ(UCS_OK, copy(address, &host, 1));
    meet("now=reset@0");
    ASSERT_EQ(UCS_ERR_NO_DEVICE, copy(address, &host, 1));
    ASSERT_EQ(UCS_ERR_NO_DEVICE, fill(address, "x"));
    (void)allocate(nullptr, UCS_ERR_NO_DEVICE);
    (void)allocate("gaudi0", UCS_ERR_NO_DEVICE);
    ASSERT_EQ(UCS_OK, release(address));
    ASSERT_EQ(UCS_OK, close_cards());
    /* When the reset is over it is another card. */
    ASSERT_TRUE(copies_between(allocate(nullptr), allocate("gaudi0")));
}

/* With what a program may have there: allocations, copies from card to card,
 * dma-bufs and imports. */
TEST_IN_CHILD_SAYING(program_cards, that_are_removed_leave_no_descriptor,
                     HasSubstr("was removed"),
                     logging({{"HLTHUNK_EMU_DEVICES", "2"}}))
{
    GAUDI_NEEDS(imports);
    GAUDI_NEEDS(cards_of_ucx);
    load_module();
    void *near           = nullptr;
    void *far            = nullptr;
    const auto use_cards = [&] {
        near = allocate("gaudi0");
        far  = allocate("gaudi1");
        ASSERT_TRUE(copies_between(near, far));
        ASSERT_TRUE(copies_between(far, near));
    };
    use_cards(); /* what is made once per process is made */
    ASSERT_EQ(UCS_OK, release(near));
    ASSERT_EQ(UCS_OK, release(far));
    ASSERT_EQ(UCS_OK, close_cards());
    const unsigned before = count_open_fds();
    use_cards();
    int fd         = -1;
    size_t offset  = 0;
    void *imported = nullptr;
    ASSERT_EQ(UCS_OK,
              GAUDI_CALL(ucx_gaudi_dmabuf_export)(far, size, &fd, &offset));
    ASSERT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_dmabuf_import)(fd, offset, size,
                                                          "gaudi0", &imported));
    close(fd);
    meet("now=remove@0");
    ASSERT_EQ(UCS_ERR_NO_DEVICE, fill(near, "x"));
    ASSERT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_dmabuf_release)(imported));
    ASSERT_EQ(UCS_OK, release(near));
    ASSERT_EQ(UCS_OK, release(far));
    ASSERT_EQ(UCS_OK, close_cards());
    ASSERT_EQ(before, count_open_fds());
}

/* A thread that opens a card which is in reset, and waits for the end of that.
 */
class opening_in_reset {
public:
    explicit opening_in_reset(const char *card)
        : thread_([this, card] {
              tid_ = gettid();
              (void)allocate(card);
              has_ended_ = true;
          })
    {}
    opening_in_reset(const opening_in_reset &)            = delete;
    opening_in_reset &operator=(const opening_in_reset &) = delete;
    ~opening_in_reset()
    {
        if (thread_.joinable()) { /* a check has failed */
            finish();
        }
    }
    void await_sleep() const
    {
        ASSERT_TRUE(eventually([&] { return (tid_ != 0) && is_asleep(tid_); }));
    }
    /* It had to wait until now. */
    void end_reset()
    {
        EXPECT_FALSE(has_ended_);
        finish();
    }

private:
    void finish()
    {
        meet(nullptr);
        thread_.join();
    }

    std::atomic<pid_t> tid_{0};
    std::atomic<bool> has_ended_{false};
    std::thread thread_;
};

child_options reset_of_second(const char *cards, child_environment more = {})
{
    more.emplace_back("HLTHUNK_EMU_DEVICES", cards);
    more.emplace_back("HLTHUNK_EMU_FAULTS", "open=EAGAIN@1");
    more.emplace_back("UCX_GAUDI_RESET_TIMEOUT", "60s");
    return logging(std::move(more));
}

TEST_IN_CHILD(program_cards, in_reset_hold_up_nobody, reset_of_second("2"))
{
    GAUDI_NEEDS(cards_of_ucx);
    load_module();
    void *const known = allocate("gaudi0");
    auto *const other = static_cast<char *>(known) + (size_t{1} << 40);
    const opened_domain md;
    opening_in_reset opening("gaudi1");
    opening.await_sleep();
    for (unsigned i = 0; i < 1000; ++i) {
        ASSERT_EQ(UCS_OK, copy(known, &i, sizeof(i)));
    }
    uct_md_mem_attr_t attr{};
    attr.field_mask = UCT_MD_MEM_ATTR_FIELD_MEM_TYPE;
    for (void *address : {known, static_cast<void *>(other)}) {
        ASSERT_EQ(UCS_OK, uct_md_mem_query(md, address, 1, &attr));
        ASSERT_TRUE(attr.mem_type == GAUDI_CALL(ucx_gaudi_memory_type)());
    }
    opening.end_reset();
    /* with the allocations */
}

/* With a card open in the process, and with none. */
class card_in_reset : public ::testing::TestWithParam<const char *> {
protected:
    static child_options options()
    {
        return reset_of_second("3", {{"OPEN_CARD", GetParam()}});
    }
};

INSTANTIATE_TEST_SUITE_P(beside, card_in_reset,
                         ::testing::Values("gaudi0", "none"),
                         [](const auto &each) {
                             return std::string(each.param);
                         });

GAUDI_TEST_IN_CHILD(TEST_P, card_in_reset,
                    does_not_delay_hlthunk_open_and_hlthunk_close, IsEmpty(),
                    options())
{
    GAUDI_NEEDS(cards_of_ucx);
    load_module();
    (void)cards(); /* loads the driver */
    if (std::string(std::getenv("OPEN_CARD")) != "none") {
        (void)allocate("gaudi0");
    }
    opening_in_reset opening("gaudi1");
    opening.await_sleep();
    unsigned late = 0;
    /* The opener wakes up every 20 ms. */
    for (unsigned round = 0; round < 100; ++round) {
        int fd = emulator::instance().hlthunk_open_by_module_id(2);
        if (fd == -EBUSY) {
            /* A close takes effect a moment later where another thread reads
             * the link of that descriptor in /proc: the kernel holds the file.
             */
            ++late;
            ASSERT_TRUE(eventually([&] {
                fd = emulator::instance().hlthunk_open_by_module_id(2);
                return fd != -EBUSY;
            }));
        }
        ASSERT_GE(fd, 0);
        EXPECT_THAT(cards(), HasSubstr("gaudi2 open")) << "adopted";
        EXPECT_EQ(0, hl().hlthunk_close(fd));
    }
    EXPECT_LT(late, 5u);
    opening.end_reset();
}

/* UCX has opened the first of all cards, and waits for the second. */
TEST_IN_CHILD(program_cards, are_lent_while_another_one_is_in_reset,
              reset_of_second("2", {{"UCX_GAUDI_DEVICES", "all"}}))
{
    GAUDI_NEEDS(cards_of_ucx);
    load_module();
    opening_in_reset opening("gaudi0");
    ASSERT_TRUE(eventually(
        [] { return cards().find("gaudi0 taken") != std::string::npos; }));
    const int fd = emulator::instance().hlthunk_open_by_module_id(0);
    ASSERT_TRUE(fd >= 0);
    ASSERT_TRUE(hl().hlthunk_device_memory_alloc(fd, device_page(), 0, false,
                                                 true) != 0);
    ASSERT_EQ(0, hl().hlthunk_close(fd));
    opening.end_reset();
    ASSERT_EQ("gaudi0 open, gaudi1 open", cards());
}

TEST_IN_CHILD_SAYING(program_cards,
                     stay_open_as_long_as_the_program_or_ucx_has_them,
                     IsEmpty(), logging({{"HLTHUNK_EMU_DEVICES", "2"}}))
{
    load_module();
    void *const before = allocate("gaudi1");
    std::optional<opened_domain> md(std::in_place);
    {
        device_buffer of_ucx(*md, size);
        ASSERT_EQ("gaudi1", card_of(of_ucx.address));
        ASSERT_TRUE(copies_between(before, of_ucx.address));
    }
    void *const within = allocate(nullptr);
    md.reset();
    ASSERT_EQ("gaudi0 free, gaudi1 open", cards());
    ASSERT_TRUE(copies_between(before, within));
    md.emplace();
    ASSERT_EQ(UCS_OK, release(before));
    ASSERT_EQ(UCS_OK, release(within));
    ASSERT_EQ(UCS_OK, close_cards());
    ASSERT_EQ("gaudi0 free, gaudi1 open", cards());
    md.reset();
    ASSERT_EQ("gaudi0 free, gaudi1 free", cards());
}

} // namespace gaudi::test
