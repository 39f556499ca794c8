/* SPDX-License-Identifier: BSD-3-Clause */
/* The example programs do what their comments say. */
#include "common/needs.h"
#include "gtest/tools/fixture.h"
#include "gtest/tools/release.h"

#include "common/scratch.h"

#include <filesystem>

namespace gaudi::test {

namespace {

using ::testing::HasSubstr;

constexpr char uct_program[] = GAUDI_BUILD_DIR "/bin/uct_host_to_device";
constexpr char ucp_program[] = GAUDI_BUILD_DIR "/bin/ucp_host_to_device";

/* What both programs share. */
class host_to_device : public tools {
protected:
    void expect_round_trip(const char *program, size_t size,
                           const environment &variables = {})
    {
        std::string text(size, '\0');
        for (size_t i = 0; i < size; ++i) {
            text[i] = static_cast<char>((i * 2654435761u) >> 13);
        }
        EXPECT_TRUE(is_quiet_success(
            emulated({program, files.file("data", text)}, variables),
            {std::to_string(size) + " bytes to ", "(gaudi memory)",
             "the bytes that came back are the same\n"}));
    }

    void expect_refusal(const process_result &result, const std::string &reason)
    {
        EXPECT_TRUE(exited_with(1, result, {reason}));
        EXPECT_TRUE(has_lines(0, "UCX  ", result));
    }

    /* Run in a box of one card, which the outer program holds. */
    process_result run_without_a_free_card(const char *program)
    {
        const std::string file = files.file("data", "text");
        return launched({GAUDI_TOOLS_DIR "/late_ucx", "hold", program, file},
                        {"--emulate=1"});
    }

    scratch_directory files;
};

class example_host_to_device
    : public host_to_device,
      public ::testing::WithParamInterface<const char *> {};

using example_uct_host_to_device = host_to_device;
using example_ucp_host_to_device = host_to_device;

} // namespace

TEST_P(example_host_to_device, brings_back_what_was_sent)
{
    for (const size_t size : {1ul, 4097ul, 20'000'000ul}) {
        expect_round_trip(GetParam(), size);
    }
}

TEST_P(example_host_to_device, refuses_what_is_no_file)
{
    expect_refusal(emulated({GetParam(), files.path("no-such-file")}),
                   "no-such-file: No such file or directory");
    expect_refusal(emulated({GetParam(), files.path(".")}), "not a ");
}

TEST_P(example_host_to_device, explains_its_use)
{
    EXPECT_TRUE(exited_with(2, emulated({GetParam()}), {"usage: "}));
}

INSTANTIATE_TEST_SUITE_P(by, example_host_to_device,
                         ::testing::Values(uct_program, ucp_program),
                         [](const auto &test) {
                             return std::string(
                                 test.param == uct_program ? "uct" : "ucp");
                         });

TEST_F(example_uct_host_to_device, says_what_to_do_without_a_card)
{
    const arguments plain = {uct_program, files.file("data", "text")};
    for (const arguments &command : {plain, under_launcher(plain, {})}) {
        const process_result result = run(command, with());
        expect_refusal(result, "No Gaudi card");
        EXPECT_THAT(result.output, HasSubstr("ucx-gaudi run [--emulate]"));
    }
}

TEST_F(example_uct_host_to_device, ends_with_an_error_when_every_card_is_taken)
{
    GAUDI_NEEDS(no_card);
    EXPECT_TRUE(exited_with(1, run_without_a_free_card(uct_program), {"busy"}));
}

TEST_F(example_ucp_host_to_device, works_with_each_protocol)
{
    for (const char *proto : protocols()) {
        for (const char *tls : {"gaudi_copy,self", "gaudi_copy,tcp"}) {
            expect_round_trip(ucp_program, 65537, over(tls, proto));
        }
    }
}

TEST_F(example_ucp_host_to_device, says_when_the_card_has_too_little_memory)
{
    GAUDI_NEEDS(pages_of_48_mb);
    const std::string text(49ul << 20, 'x');
    EXPECT_TRUE(exited_with(1,
                            emulated({ucp_program, files.file("data", text)},
                                     {{"HLTHUNK_EMU_HBM", "96M"},
                                      {"HLTHUNK_EMU_DRAM_PAGE", "48M"}}),
                            {"51380224 bytes", "Out of memory\n"}));
}

TEST_F(example_ucp_host_to_device, says_how_to_load_the_module)
{
    const process_result result =
        run({ucp_program, files.file("data", "text")}, with());
    expect_refusal(result, "the module is not loaded");
    EXPECT_THAT(result.output, HasSubstr("ucx-gaudi run "));
}

TEST_F(example_ucp_host_to_device, says_what_can_be_missing_without_a_card)
{
    GAUDI_NEEDS(no_card);
    const arguments plain = {ucp_program, files.file("data", "text")};
    expect_refusal(launched(plain, {}), "No Gaudi card");
    EXPECT_TRUE(exited_with(1, run_without_a_free_card(ucp_program),
                            {"1 of 1 cards are in use"}));
    expect_refusal(emulated(plain, {{"UCX_TLS", "sm"}}),
                   "UCX_TLS does not name gaudi_copy");
}

/* --- dma-bufs ------------------------------------------------------------- */

namespace {

constexpr char dmabuf_program[] = GAUDI_BUILD_DIR "/bin/dmabuf";
constexpr char same_bytes[] =
    "the bytes that arrived on the other card are the same\n";

class example_dmabuf : public tools {
protected:
    static void expect_transfer(const process_result &result, size_t bytes)
    {
        EXPECT_TRUE(is_quiet_success(
            result, {std::to_string(bytes) +
                         " bytes of another process's card are at 0xfff",
                     same_bytes}));
    }
};

} // namespace

TEST_F(example_dmabuf, works_under_preload)
{
    GAUDI_NEEDS(second_card);
    expect_transfer(emulated({dmabuf_program}), 1'000'000);
    expect_transfer(
        emulated({dmabuf_program, "4097"}, {{"UCX_PROTO_ENABLE", "y"}}), 4097);
}

TEST_F(example_dmabuf, works_by_itself)
{
    GAUDI_NEEDS(second_card);
    expect_transfer(
        run({dmabuf_program, "1"}, with({{"UCX_GAUDI_DRIVER", "emulator"}})),
        1);
}

TEST_F(example_dmabuf, says_that_the_driver_cannot_import)
{
    GAUDI_NEEDS(second_card);
    EXPECT_TRUE(exited_with(
        1, emulated({dmabuf_program}, {{"HLTHUNK_EMU_IMPORT", "n"}}),
        {"the driver cannot import dma-bufs",
         "dmabuf: import: Unsupported operation"}));
}

namespace {

constexpr char matrix_program[] = GAUDI_BUILD_DIR "/bin/ipc_matrix";

/* Over each way. */
class example_ipc_matrix : public tools,
                           public ::testing::WithParamInterface<const char *> {
protected:
    [[nodiscard]] static bool goes_by_ports()
    {
        return std::string(GetParam()) == "ports";
    }

    [[nodiscard]] process_result moved(const std::string &bytes,
                                       environment variables = {}) const
    {
        variables.emplace("UCX_GAUDI_IPC_ROUTES",
                          goes_by_ports() ? "ports,host" : "host");
        variables.emplace("HLTHUNK_EMU_PORTS", "y");
        return emulated({matrix_program, bytes}, variables);
    }
};

} // namespace

INSTANTIATE_TEST_SUITE_P(over, example_ipc_matrix,
                         ::testing::Values("ports", "host"),
                         [](const auto &of) { return std::string(of.param); });

TEST_P(example_ipc_matrix, moves_all_pairs_of_host_and_card)
{
    GAUDI_NEEDS(second_card);
    for (const std::string bytes : {"1", "4097", "20000000"}) {
        const std::string same =
            ", " + bytes + " of " + bytes + " bytes are the same\n";
        EXPECT_TRUE(is_quiet_success(
            moved(bytes), {"host to host: pulled by the receiver" + same +
                           "host to card: pushed by the sender" + same +
                           "card to host: pulled by the receiver" + same +
                           "card to card: pushed by the sender" + same}));
    }
}

TEST_P(example_ipc_matrix, logs_each_step)
{
    GAUDI_NEEDS(second_card);
    const process_result result = moved("300007", {{"UCX_LOG_LEVEL", "info"}});
    EXPECT_TRUE(exited_with(0, result, {}, {"WARN", "ERROR"}));
    EXPECT_EQ(goes_by_ports(),
              !lines_with(result.output, ": uses ports to the card").empty());
    for (const std::string &line : lines_with(result.output, "DIAG")) {
        EXPECT_TRUE(is_stock_complaint(line)) << line;
    }
    for (const auto &[count, step] :
         {std::pair{4u, "gaudi: exported 300007 bytes"},
          std::pair{4u, "gaudi: opened 300007 bytes"},
          std::pair{2u, "a copy of 300007 bytes, gaudi to gaudi, by push"},
          std::pair{2u, "a copy of 300007 bytes, host to gaudi, by push"},
          std::pair{2u, "a copy of 300007 bytes, gaudi to host, by pull"},
          std::pair{2u, "a copy of 300007 bytes, host to host, by pull"},
          std::pair{4u, " begins"},
          std::pair{4u, "gaudi: a copy of 300007 bytes goes over "},
          std::pair{4u, " us: Success"},
          std::pair{4u, "gaudi: withdrew 300007 bytes"}}) {
        EXPECT_TRUE(has_lines(count, step, result));
    }
    if (!goes_by_ports()) { /* these are connected meanwhile */
        EXPECT_TRUE(has_lines(4, " goes over host memory, staged", result));
    }
}

TEST_P(example_ipc_matrix, says_when_a_card_is_missing)
{
    GAUDI_NEEDS(second_card);
    EXPECT_TRUE(exited_with(1, moved("1000", {{"UCX_GAUDI_DEVICES", "gaudi0"}}),
                            {"ipc_matrix: ", "allocation: "}));
}

} // namespace gaudi::test
