/* SPDX-License-Identifier: BSD-3-Clause */
/* Wrong settings and wrong addresses: the exact status, the exact line. */
#include "gtest/uct/fixture.h"

#include "common/descriptor.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <thread>
#include <tuple>

#include <unistd.h>

namespace gaudi::test {

namespace {

/* A child that opens the memory domain and says how that went. UCX logs to
 * stderr there. */
child_result open_in_child(child_environment settings)
{
    settings.emplace_back("UCX_LOG_FILE", "stderr");
    settings.emplace_back("UCX_HANDLE_ERRORS", "none");
    return run_child("opens_the_domain", {std::move(settings), -1});
}

/* The same where it matters how UCX itself opens cards. */
child_result open_cards_in_child(child_environment settings)
{
    return run_child("opens_the_domain", logging(std::move(settings)));
}

/* The same of a box with one card, in which things go wrong as the emulator
 * logs. */
child_result open_one_card_with(const char *faults,
                                child_environment settings = {})
{
    settings.emplace_back("HLTHUNK_EMU_DEVICES", "1");
    settings.emplace_back("HLTHUNK_EMU_LOG", "1");
    settings.emplace_back("HLTHUNK_EMU_FAULTS", faults);
    return open_cards_in_child(std::move(settings));
}

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

} // namespace

constexpr int without_card = 99;

/* Exit code: the negated status, or without_card. */
GAUDI_CHILD(opens_the_domain)
{
    load_module();
    uct_md_h md;
    const ucs_status_t status = open_md(md);
    if (status != UCS_OK) {
        return -status;
    }
    const bool has = has_card(md);
    uct_md_close(md);
    return has ? 0 : without_card;
}

TEST(bad_input, without_a_card_there_is_no_domain_and_no_noise)
{
    EXPECT_THAT(open_in_child({{"UCX_GAUDI_DRIVER", "auto"}}),
                ended(-UCS_ERR_NO_DEVICE, IsEmpty()));
}

TEST(bad_input, a_wrong_driver_path_is_named)
{
    EXPECT_THAT(
        open_in_child({{"UCX_GAUDI_DRIVER", "/no/such.so"}}),
        ended(-UCS_ERR_NO_DEVICE,
              HasSubstr("(UCX_GAUDI_DRIVER=/no/such.so): /no/such.so: ")));
}

TEST(bad_input, a_word_that_is_no_driver_is_refused)
{
    EXPECT_THAT(
        open_in_child({{"UCX_GAUDI_DRIVER", "emulater"}}),
        ended(-UCS_ERR_NO_DEVICE, HasSubstr("UCX_GAUDI_DRIVER=emulater ")));
}

TEST(bad_input, a_library_without_the_symbols_is_refused_with_their_names)
{
    EXPECT_THAT(
        open_in_child({{"UCX_GAUDI_DRIVER",
                        GAUDI_BUILD_DIR "/lib/libucx_gaudi_preload.so"}}),
        ended(-UCS_ERR_NO_DEVICE, HasSubstr("hlthunk_open, hlthunk_close")));
}

TEST(bad_input, cards_that_are_all_busy_are_said_to_be)
{
    child_process other(
        "holds_its_cards",
        {with_cards_of_ucx({{"HLTHUNK_EMU_DEVICES", "1"}}), -1});
    ASSERT_EQ("open", other.read_line());
    EXPECT_THAT(open_cards_in_child(
                    {{"HLTHUNK_EMU_DEVICES", "1"}, {"UCX_LOG_LEVEL", "diag"}}),
                ended(without_card,
                      HasSubstr("1 of 1 cards are in use by other processes")));
    other.write_line("done");
    EXPECT_EQ(0, other.wait().exit_code);
    EXPECT_EQ(0, open_cards_in_child({{"HLTHUNK_EMU_DEVICES", "1"}}).exit_code);
}

/* --- cards in reset ------------------------------------------------------- */

/* How many lines of a log have a text. */
size_t count(const std::string &log, const std::string &text)
{
    return lines_with(log, text).size();
}

constexpr char in_reset[] = "accel0: in reset";
constexpr char refusal[]  = "in reset (UCX_GAUDI_RESET_TIMEOUT)";

TEST(bad_input, a_card_in_reset_is_waited_for)
{
    for (const char *devices : {"auto", "all", "0"}) {
        EXPECT_THAT(open_cards_in_child({{"UCX_GAUDI_DEVICES", devices},
                                         {"HLTHUNK_EMU_DEVICES", "1"},
                                         {"HLTHUNK_EMU_FAULTS", "reset=3"}}),
                    ended(0, IsEmpty()))
            << devices;
    }
}

TEST(bad_input, a_reset_that_does_not_end_is_waited_for_so_long)
{
    const auto result = open_one_card_with(
        "reset=4294967295", {{"UCX_GAUDI_RESET_TIMEOUT", "0.1s"}});
    EXPECT_EQ(without_card, result.exit_code);
    EXPECT_THAT(result.error, HasSubstr(refusal));
    EXPECT_GE(count(result.error, in_reset), 2u);
    EXPECT_LE(count(result.error, in_reset), 7u) << "20 ms apart";
}

TEST(bad_input, without_a_timeout_no_reset_is_waited_for)
{
    for (const char *none : {"0", "-1s", "nan"}) {
        const auto result =
            open_one_card_with("reset=1", {{"UCX_GAUDI_RESET_TIMEOUT", none}});
        EXPECT_EQ(without_card, result.exit_code) << none;
        EXPECT_THAT(result.error, HasSubstr(refusal)) << none;
        EXPECT_EQ(1u, count(result.error, in_reset)) << none;
    }
}

/* Three cards, one after the other, each of which is in reset for a while. */
TEST_IN_CHILD(bad_input, each_reset_that_ends_is_waited_for_anew,
              {with_cards_of_ucx({{"HLTHUNK_EMU_DEVICES", "3"},
                                  {"HLTHUNK_EMU_FAULTS", "reset=8"},
                                  {"UCX_GAUDI_RESET_TIMEOUT", "0.4s"}})})
{
    load_module();
    for (const char *module : {"0", "1", "2"}) {
        setenv("HLS_MODULE_ID", module, 1);
        const opened_domain md;
    }
}

/* A card is in reset for good. The application opens another one, which is
 * taken instead. */
TEST_IN_CHILD(bad_input,
              the_application_opens_cards_while_a_reset_is_waited_for,
              {with_cards_of_ucx({{"HLTHUNK_EMU_DEVICES", "2"},
                                  {"HLTHUNK_EMU_LOG", "1"},
                                  {"HLTHUNK_EMU_FAULTS", "reset=4294967295@0"},
                                  {"HLS_MODULE_ID", "0"},
                                  {"UCX_GAUDI_RESET_TIMEOUT", "4s"}})})
{
    GAUDI_NEEDS(own_submissions);
    load_module();
    const int log = make_output_file();
    ASSERT_TRUE(dup2(log, STDERR_FILENO) == STDERR_FILENO);
    ucs_status_t status = UCS_INPROGRESS;
    uct_md_h md         = nullptr;
    std::thread opening([&] { status = open_md(md); });

    std::string seen;
    while (seen.find(in_reset) == std::string::npos) {
        seen.resize(65536);
        const ssize_t length = pread(log, seen.data(), seen.size(), 0);
        seen.resize(std::max<ssize_t>(length, 0));
        std::this_thread::yield();
    }
    const int fd = emulator::instance().hlthunk_open_by_module_id(1);
    opening.join();
    ASSERT_TRUE(fd >= 0);
    ASSERT_EQ(UCS_OK, status);
    uct_md_close(md);
    (void)emulator::instance().driver.lib().hlthunk_close(fd);
}

TEST_IN_CHILD(bad_input, several_domains_wait_for_a_reset_once,
              logging({{"HLTHUNK_EMU_DEVICES", "1"},
                       {"HLTHUNK_EMU_LOG", "1"},
                       {"HLTHUNK_EMU_FAULTS", "reset=4294967295"},
                       {"UCX_GAUDI_RESET_TIMEOUT", "2s"}}))
{
    {
        const opened_domain md;
        ASSERT_FALSE(has_card(md));
    }
    ::testing::internal::CaptureStderr();
    uct_md_h md;
    if (open_md(md, {}, "gaudi_ipc") == UCS_OK) {
        uct_md_close(md);
    }
    EXPECT_EQ(1u, count(::testing::internal::GetCapturedStderr(), in_reset));
}

TEST(bad_input, another_card_is_taken_instead_of_one_in_reset)
{
    const auto result =
        open_cards_in_child({{"HLTHUNK_EMU_DEVICES", "2"},
                             {"HLTHUNK_EMU_LOG", "1"},
                             {"HLTHUNK_EMU_FAULTS", "reset=4294967295@0"}});
    EXPECT_EQ(0, result.exit_code);
    EXPECT_EQ(1u, count(result.error, in_reset)) << result.error;
    EXPECT_THAT(result.error, Not(HasSubstr("cannot be opened")));
}

TEST(bad_input, a_card_that_is_busy_is_not_waited_for)
{
    child_process other(
        "holds_its_cards",
        {with_cards_of_ucx({{"HLTHUNK_EMU_DEVICES", "1"}}), -1});
    ASSERT_EQ("open", other.read_line());
    /* Who had waited for the reset was not the only one. */
    for (const char *faults : {"reset=0", "reset=2"}) {
        const auto result =
            open_one_card_with(faults, {{"UCX_GAUDI_RESET_TIMEOUT", "1000s"}});
        EXPECT_EQ(without_card, result.exit_code) << faults;
        EXPECT_EQ(1u, count(result.error, "accel0: taken by another process"))
            << result.error;
    }
}

/* --- cards and settings --------------------------------------------------- */

TEST(bad_input, a_named_card_that_is_busy_is_an_error)
{
    load_module();
    const opened_domain md;
    const auto result = open_cards_in_child({{"UCX_GAUDI_DEVICES", "1,0"}});
    EXPECT_EQ(without_card, result.exit_code);
    /* SynapseAI has gaudi1 there, and would not take gaudi0 if it were free. */
    const std::string why =
        runs_beside_framework()
            ? "cannot be used: SynapseAI cannot be used: it has another card"
            : "is in use by another process (`ucx-gaudi info` shows it)";
    EXPECT_THAT(
        result.error,
        HasSubstr("UCX_GAUDI_DEVICES=1,0: 1 of 2 cards are free: gaudi0 (" +
                  bus_id(0) + ") " + why));
}

TEST(bad_input, a_card_that_does_not_exist_is_an_error)
{
    for (const char *devices :
         {"8", "0000:00:00.0", "0,,1", "0,0", "x", "-1"}) {
        EXPECT_THAT(
            open_in_child({{"UCX_GAUDI_DEVICES", devices}}),
            ended(-UCS_ERR_INVALID_PARAM,
                  HasSubstr(std::string("UCX_GAUDI_DEVICES=") + devices)))
            << devices;
    }
}

TEST(bad_input, an_unknown_memory_type_registers_nothing)
{
    EXPECT_THAT(
        open_in_child({{"UCX_GAUDI_MEMORY_TYPE", "gold"}}),
        ended(-UCS_ERR_NO_DEVICE,
              HasSubstr("UCX_GAUDI_MEMORY_TYPE=gold is not one of auto, ")));
}

TEST(bad_input, a_value_that_cannot_be_parsed_registers_nothing)
{
    for (const auto &[name, value, expected] :
         {std::tuple("UCX_GAUDI_ENGINE", "foo", "[auto|cs|synapse]"),
          std::tuple("UCX_GAUDI_ENGINE", "", "[auto|cs|synapse]"),
          std::tuple("UCX_GAUDI_RESET_TIMEOUT", "soon", "time value: "),
          std::tuple("UCX_GAUDI_SYNAPSE_HOST_MAP", "maybe", "<y|n>")}) {
        const auto result = open_in_child({{name, value}});
        EXPECT_EQ(-UCS_ERR_NO_DEVICE, result.exit_code) << name;
        EXPECT_THAT(result.error,
                    HasSubstr(std::string("UCX  ERROR ") + name + "=" + value +
                              " is not valid (expected: " + expected))
            << name;
        EXPECT_EQ(1u, count(result.error, "")) << result.error;
    }
}

TEST(bad_input, impossible_staging_sizes_are_refused)
{
    const checked_log log;
    const opened_domain md;
    using setting = std::pair<std::string, std::string>;
    for (const setting &bad :
         {setting("STAGING_CHUNK", "1152921504606851072"),
          setting("STAGING_CHUNK", "0"), setting("STAGING_COUNT", "2")}) {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, transport::try_open(md, {bad}));
        EXPECT_THAT(take_logs(), ::testing::ElementsAre(HasSubstr(bad.first)));
    }
}

TEST(bad_input, good_settings_are_silent)
{
    const char *named = has_one_card() ? "0000:cd:00.0" : "0000:cd:00.0,2";
    for (const char *devices : {"auto", "all", "3", named}) {
        const child_environment wished{{"UCX_GAUDI_DEVICES", devices}};
        EXPECT_THAT(has_one_card() ? open_cards_in_child(wished)
                                   : open_in_child(wished),
                    ended(0, IsEmpty()))
            << devices;
    }
}

class bad_address : public uct {
protected:
    void expect_refusal(ucs_status_t status, const void *address, size_t size)
    {
        EXPECT_EQ(UCS_ERR_INVALID_ADDR, status);
        std::ostringstream range;
        range << size << " bytes at " << address;
        expect_log(range.str());
    }
};

TEST_F(bad_address, every_operation_refuses_what_no_allocation_covers)
{
    GAUDI_NEEDS(own_pool);
    constexpr size_t size = 100;
    device_buffer device(md, 4096);
    guarded_buffer host(size);
    /* Free, half outside, and a whole allocation away. */
    for (const char *address :
         {reinterpret_cast<const char *>(0x1001fff000000000),
          static_cast<const char *>(device.data()) + 4000,
          static_cast<const char *>(device.data()) - size}) {
        const auto remote = reinterpret_cast<uintptr_t>(address);
        const auto jobs   = engine_hooks::counters().jobs;
        counted_completion done;

        expect_refusal(tl->put_short(host.data(), size, remote), address, size);
        expect_refusal(tl->get_short(host.data(), size, remote), address, size);
        expect_refusal(tl->put_zcopy(host.data(), size, remote, &done), address,
                       size);
        expect_refusal(tl->get_zcopy(host.data(), size, remote, &done), address,
                       size);
        expect_refusal(tl->put_short(address, size, device.remote()), address,
                       size);
        expect_refusal(uct_ep_get_bcopy(
                           tl->ep, [](void *, const void *, size_t) { FAIL(); },
                           host.data(), size, remote, UCT_INVALID_RKEY, &done),
                       address, size);
        EXPECT_GT(0, uct_ep_put_bcopy(
                         tl->ep, [](void *, void *) -> size_t { return size; },
                         nullptr, remote, UCT_INVALID_RKEY));
        EXPECT_EQ(1u, take_logs().size());

        EXPECT_EQ(jobs, engine_hooks::counters().jobs);
        EXPECT_EQ(UCS_OK, uct_iface_flush(tl->iface, 0, nullptr));
        EXPECT_EQ(0u, done.calls);
    }
}

} // namespace gaudi::test
