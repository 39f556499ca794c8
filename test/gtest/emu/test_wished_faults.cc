/* SPDX-License-Identifier: BSD-3-Clause */
/* Faults on demand, and what they leave of a card. */
#include "gtest/emu/fixture.h"

#include "common/child.h"
#include "common/process_state.h"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include <unistd.h>

using namespace gaudi::test;
using namespace gaudi::shim;

namespace {

int wish(const char *faults)
{
    return api().hlthunk_emu_fault(faults);
}

class emu_wishes : public emu {
protected:
    void SetUp() override
    {
        emu::SetUp();
        device = card.allocate_mapped(1);
        host   = card.map_host(data, sizeof(data));
        good   = card.copy_chunk(pdma0, device, host, 64);
    }

    void TearDown() override { (void)wish(nullptr); }

    int submit()
    {
        uint64_t seq = 0;
        return card.submit({good}, seq);
    }

    int map_host()
    {
        errno = 0;
        return (hl().hlthunk_host_memory_map(card.fd(), data, 0, 64) != 0)
                   ? 0
                   : -errno;
    }

    int status() const
    {
        return hl().hlthunk_get_device_status_info(card.fd());
    }

    char data[4096] = {};
    uint64_t device = 0;
    uint64_t host   = 0;
    hl_cs_chunk good{};
};

/* --- the text ------------------------------------------------------------- */

TEST_F(emu_wishes, bad_ones_are_refused)
{
    for (const char *text :
         {"fire=EIO",    "alloc",        "alloc=",       "alloc=12",
          "alloc#0=EIO", "alloc#1-=EIO", "alloc=EIO@64", "alloc=EIO,",
          ",alloc=EIO",  "alloc=abort",  "alloc=EAGAIN", "job=EIO",
          "job=delay",   "job=delay:1h", "job=lose:x",   "job=abort:1",
          "job=reset:x", "close=remove", "packet=lose",  "now=EIO",
          "now#1=reset", "reset",        "reset=-1",     "reset#1=1"}) {
        EXPECT_EQ(wish(text), -EINVAL) << text;
    }
    EXPECT_EQ(map_host(), 0);
    EXPECT_EQ(submit(), 0);
}

TEST_F(emu_wishes, come_true_for_the_call_the_number_and_the_card)
{
    ASSERT_EQ(wish("map#2=ENOMEM@0,map=EIO@1,map#4+=EFAULT"), 0);
    EXPECT_EQ(map_host(), 0);
    EXPECT_EQ(map_host(), -ENOMEM);
    EXPECT_EQ(map_host(), 0);
    EXPECT_EQ(map_host(), -EFAULT);
    EXPECT_EQ(map_host(), -EFAULT);
    EXPECT_EQ(submit(), 0) << "is another call";
    ASSERT_EQ(wish(""), 0);
    EXPECT_EQ(map_host(), 0);
}

struct failing {
    const char *name;
    int (*call)(raw_card &, uint64_t device, void *data);
};

int result_of(uint64_t value)
{
    return (value != 0) ? 0 : -errno;
}

const failing calls[] = {
    {"alloc",
     [](raw_card &card, uint64_t, void *) {
         return result_of(
             hl().hlthunk_device_memory_alloc(card.fd(), 1, 0, false, true));
     }},
    {"free",
     [](raw_card &card, uint64_t, void *) {
         return hl().hlthunk_device_memory_free(card.fd(), 1);
     }},
    {"map",
     [](raw_card &card, uint64_t, void *) {
         return result_of(hl().hlthunk_device_memory_map(card.fd(), 1, 0));
     }},
    {"unmap", [](raw_card &card, uint64_t device,
                 void *) { return unmap(card, device); }},
    {"export",
     [](raw_card &card, uint64_t device, void *) {
         return hl().hlthunk_device_mapped_memory_export_dmabuf_fd(
             card.fd(), device, 4096, 0, 02000002);
     }},
    {"import",
     [](raw_card &card, uint64_t, void *) {
         hl_mem_args arguments{};
         arguments.in.op = memory_op_import;
         return (hl().hlthunk_sys_ioctl(card.fd(), memory_ioctl, &arguments) ==
                 0)
                    ? 0
                    : -errno;
     }},
    {"submit",
     [](raw_card &card, uint64_t, void *) {
         uint64_t seq = 0;
         return card.submit({card.raw_chunk(pdma0, "12345678", 8)}, seq);
     }},
    {"wait",
     [](raw_card &card, uint64_t, void *) {
         uint32_t status = 0;
         return hl().hlthunk_wait_for_cs(card.fd(), 1, 0, &status);
     }},
};

/* On a card for each: it is reset in the end. */
TEST_F(emu_wishes, every_call_answers_as_wished)
{
    unsigned number = 0;
    for (const failing &each : calls) {
        SCOPED_TRACE(each.name);
        raw_card own(++number % 8); /* card 0 is taken */
        raw_card &used   = (own.fd() >= 0) ? own : card;
        const auto fails = [&](const std::string &what) {
            EXPECT_EQ(wish((each.name + ("=" + what)).c_str()), 0);
            const int ret = each.call(used, device, data);
            EXPECT_EQ(wish(nullptr), 0);
            return ret;
        };
        EXPECT_EQ(fails("ENOMEM"), -ENOMEM);
        EXPECT_EQ(fails("reset"), -EBUSY);
        EXPECT_EQ(hl().hlthunk_get_device_status_info(used.fd()),
                  device_in_reset);
        EXPECT_EQ(each.call(used, device, data), -EBUSY) << "it lasts";
    }
}

TEST_F(emu_wishes, an_open_fails_as_wished)
{
    ASSERT_EQ(wish("open#2=EIO,open#3=EAGAIN"), 0);
    int fd = open_card(1);
    EXPECT_GE(fd, 0);
    EXPECT_EQ(hl().hlthunk_close(fd), 0);
    EXPECT_EQ(open_card(1), -EIO);
    EXPECT_EQ(open_card(1), -EAGAIN);
    fd = open_card(1);
    EXPECT_GE(fd, 0);
    EXPECT_EQ(hl().hlthunk_close(fd), 0);
}

/* --- jobs ----------------------------------------------------------------- */

TEST_F(emu_wishes, a_job_is_aborted_and_the_next_one_is_not)
{
    ASSERT_EQ(wish("job#1=abort"), 0);
    EXPECT_EQ(card.wait(card.start({good})), aborted);
    EXPECT_EQ(card.counters().jobs_aborted, 1u);
    EXPECT_EQ(card.wait(card.start({good})), completed);
    EXPECT_EQ(status(), device_operational);
}

TEST_F(emu_wishes, a_delayed_job_ends_at_its_time)
{
    using clock = std::chrono::steady_clock;
    ASSERT_EQ(wish("job#1=delay:50ms"), 0);
    const auto before  = clock::now();
    const uint64_t seq = card.start({good});
    EXPECT_EQ(card.wait(seq), completed);
    EXPECT_GE(clock::now() - before, std::chrono::milliseconds(50));
}

TEST_F(emu_wishes, a_lost_job_times_out_and_the_card_is_reset)
{
    ASSERT_EQ(wish("job#1=lose:50ms"), 0);
    const uint64_t lost = card.start({good});
    EXPECT_EQ(card.wait(card.start({good})), completed);
    EXPECT_EQ(card.wait(lost, 0), busy);
    EXPECT_EQ(card.wait(lost), (outcome{-ETIMEDOUT, cs_timed_out}));
    EXPECT_EQ(status(), device_in_reset);
    EXPECT_EQ(card.wait(lost), in_reset(lost));
    EXPECT_EQ(submit(), -EBUSY);
}

TEST_F(emu_wishes, who_sleeps_for_another_job_sees_it_aborted)
{
    ASSERT_EQ(wish("job#1=lose:50ms,job#2=lose"), 0);
    (void)card.start({good});
    EXPECT_EQ(card.wait(card.start({good})), aborted);
    EXPECT_EQ(card.counters().jobs_aborted, 2u);
}

/* --- resets and removal --------------------------------------------------- */

TEST_F(emu_wishes, a_reset_ends_the_sleep_of_those_who_wait)
{
    card.pause(true);
    const uint64_t seq = card.start({good});
    std::atomic<pid_t> id{0};
    std::thread waiter([&] {
        id = gettid();
        EXPECT_EQ(card.wait(seq), aborted);
    });
    EXPECT_TRUE(eventually([&] { return (id != 0) && is_blocked(id); }));
    EXPECT_EQ(wish("now=reset@0"), 0);
    EXPECT_NE(status(), device_operational);
    waiter.join();
}

TEST_F(emu_wishes, a_reset_lasts_for_some_opens_and_the_context_is_gone)
{
    ASSERT_EQ(wish("now=reset:3@0"), 0);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(submit(), -EBUSY);
        EXPECT_EQ(map_host(), -EBUSY);
        EXPECT_EQ(status(), device_in_reset);
        (void)info_of(card.fd());
        EXPECT_EQ(open_card(0), -EAGAIN);
    }
    EXPECT_EQ(status(), device_operational);
    EXPECT_EQ(submit(), -ENODEV);
    EXPECT_EQ(map_host(), -ENODEV);
    EXPECT_EQ(unmap(card, device), -ENODEV);
    EXPECT_EQ(open_card(0), -EBUSY) << "until it is closed";
    close_card(card);

    own_card again;
    EXPECT_EQ(again.counters().mappings, 0u);
    const uint64_t va  = again.allocate_mapped(1);
    const uint64_t to  = again.map_host(data, sizeof(data));
    const uint64_t seq = again.start({again.copy_chunk(pdma0, va, to, 64)});
    EXPECT_EQ(seq, 1u);
    EXPECT_EQ(again.wait(seq), completed);
}

TEST_F(emu_wishes, other_cards_go_on)
{
    own_card other(1);
    ASSERT_EQ(wish("now=reset@0"), 0);
    const uint64_t va = other.allocate_mapped(1);
    const uint64_t to = other.map_host(data, sizeof(data));
    EXPECT_EQ(other.copy(pdma0, va, to, 64), completed);
    EXPECT_EQ(hl().hlthunk_get_device_status_info(other.fd()),
              device_operational);
}

TEST_F(emu_wishes, a_close_is_followed_by_a_reset)
{
    ASSERT_EQ(wish("close=reset@1"), 0);
    for (int round = 0; round < 2; ++round) {
        const int fd = open_card(1);
        ASSERT_GE(fd, 0);
        const int control = hl().hlthunk_open_control(1, nullptr);
        EXPECT_EQ(hl().hlthunk_get_device_status_info(control),
                  device_operational);
        EXPECT_EQ(hl().hlthunk_close(fd), 0);
        EXPECT_EQ(hl().hlthunk_get_device_status_info(control),
                  device_resets_after_release);
        EXPECT_EQ(open_card(1), -EAGAIN);
        EXPECT_EQ(open_card(1), -EAGAIN);
        EXPECT_EQ(hl().hlthunk_get_device_status_info(control),
                  device_operational);
        EXPECT_EQ(hl().hlthunk_close(control), 0);
    }
}

GAUDI_CHILD(has_a_card_that_is_reset)
{
    const bool closes = std::getenv("CLOSES") != nullptr;
    const int fd      = open_card(0);
    GAUDI_CHILD_REQUIRE(fd >= 0);
    GAUDI_CHILD_REQUIRE(wish("now=kill@0") == 0);
    GAUDI_CHILD_REQUIRE(hl().hlthunk_get_device_status_info(fd) ==
                        device_in_reset);
    if (closes) {
        GAUDI_CHILD_REQUIRE(hl().hlthunk_close(fd) == 0);
    }
    /* The thread that may kill it looks once. */
    const auto has_killer = [] { return count_threads("hlthunk-emu") != 0; };
    GAUDI_CHILD_REQUIRE(eventually(has_killer));
    GAUDI_CHILD_REQUIRE(eventually([&] { return !has_killer(); }));
    return 0;
}

TEST(emu_kill, ends_a_process_that_keeps_its_card_open)
{
    EXPECT_EQ(run_child("has_a_card_that_is_reset").signal, SIGKILL);
}

/* In a process of its own: the card does not come back. */
GAUDI_CHILD(removes_a_card)
{
    used_card card;
    const hl_cs_chunk good = card.copy_chunk(pdma0, card.device, card.host, 64);
    const int control      = hl().hlthunk_open_control(0, nullptr);
    GAUDI_CHILD_REQUIRE(wish("job#2=remove") == 0);
    GAUDI_CHILD_REQUIRE(card.wait(card.start({good})) == completed);
    const uint64_t last = card.start({good});
    GAUDI_CHILD_REQUIRE(card.wait(last).result == -ENODEV);
    uint64_t seq = 0;
    GAUDI_CHILD_REQUIRE(card.submit({good}, seq) == -ENODEV);
    GAUDI_CHILD_REQUIRE(unmap(card, card.device) == -ENODEV);
    hlthunk_hw_ip_info info{};
    GAUDI_CHILD_REQUIRE(hl().hlthunk_get_hw_ip_info(control, &info) == -ENODEV);
    GAUDI_CHILD_REQUIRE(hl().hlthunk_get_device_status_info(control) ==
                        -ENODEV);
    GAUDI_CHILD_REQUIRE(hl().hlthunk_open_control(0, nullptr) == -ENODEV);
    GAUDI_CHILD_REQUIRE(open_card(0) == -ENODEV);
    tell_parent("removed");
    wait_for_parent();
    close_card(card);
    GAUDI_CHILD_REQUIRE(open_card(0) == -ENODEV);
    tell_parent("closed");
    wait_for_parent();
    return 0;
}

TEST(emu_removal, is_for_ever_and_for_others_until_it_is_closed)
{
    child_process remover("removes_a_card");
    EXPECT_EQ(remover.read_line(), "removed");
    EXPECT_EQ(open_card(0), -EBUSY);
    remover.write_line("");
    EXPECT_EQ(remover.read_line(), "closed");
    const int fd = open_card(0);
    EXPECT_GE(fd, 0) << "it was put back";
    EXPECT_EQ(hl().hlthunk_close(fd), 0);
    remover.write_line("");
    const child_result result = remover.wait();
    EXPECT_EQ(result.exit_code, 0) << result.error;
}

GAUDI_CHILD(meets_with_faults_of_the_variable)
{
    GAUDI_CHILD_REQUIRE(open_card(0) == -EAGAIN);
    own_card card;
    const auto allocate = [&] {
        return hl().hlthunk_device_memory_alloc(card.fd(), 1, 0, false, true);
    };
    GAUDI_CHILD_REQUIRE(allocate() != 0);
    GAUDI_CHILD_REQUIRE((allocate() == 0) && (errno == ENOMEM));
    GAUDI_CHILD_REQUIRE(allocate() != 0);
    return 0;
}

TEST(emu_fault_variable, is_a_list)
{
    EXPECT_TRUE(child_passes("meets_with_faults_of_the_variable",
                             {{{"HLTHUNK_EMU_FAULTS",
                                "reset=1@0,alloc#2=ENOMEM,job#9=lose:1s@3"}}}));
}

} // namespace
