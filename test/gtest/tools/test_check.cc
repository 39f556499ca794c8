/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx-gaudi check: each thing that can be wrong with a card has a step that
 * names it. */
#include "common/needs.h"
#include "gtest/tools/fixture.h"

#include "common/scratch.h"
#include "launcher/check.h"

#include <algorithm>
#include <fstream>
#include <iterator>

namespace gaudi::test {

namespace {

/* Longer than a step takes that does not hang. */
#ifdef __SANITIZE_ADDRESS__
constexpr char hangs_after[] = "--timeout=10";
#else
constexpr char hangs_after[] = "--timeout=2";
#endif

namespace fs = std::filesystem;

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char bad_driver[]     = GAUDI_TOOLS_DIR "/libbad_driver.so";
constexpr char fake_driver[]    = GAUDI_TOOLS_DIR "/libfake_driver.so";
constexpr char synapse_folder[] = GAUDI_BUILD_DIR "/lib/synapse";

class check : public tools {
protected:
    void SetUp() override { GAUDI_NEEDS(lone_driver); }

    /* With two software cards, unless a variable names another driver. */
    [[nodiscard]] process_result look(arguments options     = {},
                                      environment variables = {}) const
    {
        const bool emulated =
            (variables.count("UCX_GAUDI_DRIVER") == 0) &&
            std::ranges::none_of(options, [](const std::string &one) {
                return one.starts_with("--emulate");
            });
        variables.emplace("HLTHUNK_EMU_PORTS", "y");
        options.insert(options.begin(),
                       {launcher, "check", "--output", report_});
        if (emulated) {
            options.emplace_back("--emulate=2");
        }
        fs::remove(report_);
        return run(options, with(variables));
    }

    /* The line of a step, without its time: "copy FAILED detail". */
    static std::string row(const process_result &result, std::string step)
    {
        step.resize(std::max<size_t>(step.size(), 12), ' ');
        for (const std::string &line : lines_with(result.output, " s  ")) {
            if (line.starts_with(step)) {
                const std::string rest = line.substr(12);
                return rest.substr(0, rest.find("  ")) + ": " +
                       rest.substr(rest.find(" s  ") + 4);
            }
        }
        return "no such row in " + result.output;
    }

    /* The first step that is wrong. */
    static std::string first_wrong(const process_result &result)
    {
        for (const std::string &line : lines_with(result.output, " s  ")) {
            for (const char *how : {"FAILED", "DIED", "HUNG"}) {
                if (line.substr(12).starts_with(how)) {
                    return line.substr(0, line.find("  "));
                }
            }
        }
        return "none";
    }

    [[nodiscard]] std::string report() const
    {
        std::ifstream file(report_);
        return {std::istreambuf_iterator<char>(file), {}};
    }

    scratch_directory files_;
    const std::string report_ = files_.path("report.txt");
};

struct fault_case {
    const char *name;
    environment variables;
    const char *step; /* that names it */
    const char *row;  /* how it does */
    arguments options = {};
};

void PrintTo(const fault_case &one, std::ostream *out)
{
    *out << one.name;
}

class check_of_faults : public check,
                        public ::testing::WithParamInterface<fault_case> {};

environment fault(const char *text, environment more = {})
{
    more["HLTHUNK_EMU_FAULTS"] = text;
    return more;
}

environment bad(const char *how, environment more = {})
{
    more["BAD_DRIVER"]       = how;
    more["UCX_GAUDI_DRIVER"] = bad_driver;
    more.emplace("HLTHUNK_EMU_DEVICES", "2");
    return more;
}

} // namespace

TEST_F(check, says_that_it_can_start_no_step)
{
    const process_result result = look(
        {}, {{"LD_PRELOAD", preloadable(GAUDI_TOOLS_DIR "/libno_memfd.so")},
             {"NO_MEMFD", "trial"}});
    EXPECT_TRUE(exited_with(
        1, result,
        {"memfd_create: Operation not permitted", "nothing could be tried"},
        {"another one than this release knows"}));
}

TEST_F(check, finds_nothing_wrong_with_software_cards)
{
    EXPECT_TRUE(exited_with(0, look(), {}, {"\nreset "}));
    const process_result result = look({"--reset"});
    EXPECT_TRUE(exited_with(0, result, {"report    " + report_},
                            {"FAILED", "DIED", "HUNG", "left out"}));
    for (const char *step :
         {"library", "open", "memory", "host", "copy", "sizes", "on card",
          "export", "import", "pair", "bandwidth", "reset"}) {
        EXPECT_THAT(row(result, step), ContainsRegex("^ok: "));
    }
    EXPECT_EQ("ok: through host memory: 0-1", row(result, "pair"));
    EXPECT_THAT(row(result, "synapse"), ContainsRegex("^absent: "));
    EXPECT_EQ("ok: 8 bytes and 1 MiB both ways by 3 ports (HLS-2)",
              row(result, "ports"));
}

TEST_P(check_of_faults, are_named)
{
    const fault_case &one       = GetParam();
    const process_result result = look(one.options, one.variables);
    EXPECT_TRUE(exited_with(
        1, result, {std::string("failed    ") + one.step, "means     "}));
    EXPECT_EQ(one.step, first_wrong(result)) << result.output;
    EXPECT_THAT(row(result, one.step), ContainsRegex(one.row));
    EXPECT_THAT(report(), HasSubstr(std::string("\n-- ") + one.step + "\n"));
}

INSTANTIATE_TEST_SUITE_P(
    emulator, check_of_faults,
    ::testing::Values(
        fault_case{"open", fault("open=EACCES"), "open",
                   "^FAILED: .*: Permission denied"},
        fault_case{"open_of_a_peer", fault("open=EACCES@1"), "import",
                   "^FAILED: .*0000:1a:00.0: Permission denied"},
        fault_case{"open_in_reset",
                   fault("reset=1000000"),
                   "open",
                   "^FAILED: .*reset",
                   {hangs_after}},
        fault_case{"alloc", fault("alloc=ENOMEM"), "memory",
                   "^FAILED: .*Cannot allocate"},
        fault_case{"alloc_reset", fault("alloc=reset"), "memory",
                   "^FAILED: .*reset"},
        fault_case{"map", fault("map#2=EFAULT"), "memory",
                   "^FAILED: mapping .*Bad addr"},
        fault_case{"unmap", fault("unmap=EINVAL"), "memory",
                   "^FAILED: .*: Invalid argument"},
        fault_case{"export", fault("export=EIO"), "export",
                   "^FAILED: export.*: Input/out"},
        fault_case{"import", fault("import=EIO"), "import",
                   "^FAILED: import.*: Input/out"},
        fault_case{"submit", fault("submit=EIO"), "copy",
                   "^FAILED: copying 8 bytes to the card: Input/output error"},
        fault_case{"job_abort", fault("job#2=abort"), "copy",
                   "^FAILED: copying 8 bytes from .*: Input/out"},
        fault_case{"job_lose", fault("job=lose:100ms"), "copy",
                   "^FAILED: copying 8 bytes to .*timed out"},
        fault_case{"job_delay",
                   fault("job=delay:1000s"),
                   "copy",
                   "^FAILED: copying 8 bytes to ",
                   {hangs_after}},
        fault_case{"job_of_many_sizes", fault("job#20=abort"), "sizes",
                   "^FAILED: copying [0-9]+ bytes from a place .*: Input/out"},
        fault_case{"packet_abort",
                   fault("packet=abort"),
                   "reset",
                   "^FAILED: .*Input/output error",
                   {"--reset"}},
        fault_case{"job_of_a_peer", fault("job#2=abort@1"), "pair 0-1",
                   "^FAILED: .*0000:1a:00.0.*: Input/out"}),
    [](const auto &of) { return of.param.name; });

INSTANTIATE_TEST_SUITE_P(
    library, check_of_faults,
    ::testing::Values(
        fault_case{"wide", bad("wide"), "library",
                   "^FAILED: .*344 bytes of hlthunk_hw_ip_info.*336"},
        fault_case{"twice", bad("twice"), "open",
                   "^FAILED: .*: it says Operation"},
        fault_case{"moved", bad("moved"), "memory",
                   "^FAILED: mapping .*wished "},
        fault_case{"crash", bad("crash"), "host",
                   "^DIED: .*signal 11 while mapping host memory"},
        fault_case{
            "hang", bad("hang"), "export", "^HUNG: .*exporting", {hangs_after}},
        fault_case{"short", bad("short"), "sizes",
                   "^FAILED: copying 4097 bytes .*: byte 4096 of 4097 is 0"},
        fault_case{"long", bad("long"), "sizes",
                   "^FAILED: copying 4097 .*: bytes beside it were written"},
        fault_case{"fatal", bad("fatal"), "library",
                   "^DIED: .*signal 11 while loading .*libbad_driver"},
        fault_case{"control", bad("control"), "library",
                   "^DIED: .*signal 6 while loading .*libbad_driver"},
        fault_case{"deaf",
                   bad("deaf"),
                   "library",
                   "^HUNG: .*while loading .*libbad_driver",
                   {hangs_after}},
        fault_case{"within", bad("within"), "on card",
                   "^FAILED: copying 4097 bytes .*: byte 4096 of 4097 is 0"},
        fault_case{"even", bad("even"), "host", "^FAILED: mapping host .*0x"},
        fault_case{"loose", bad("loose"), "export",
                   "^FAILED: unmapping .*dma-buf"},
        fault_case{"free", bad("free"), "open", "^FAILED: .*: it says no"}),
    [](const auto &of) { return of.param.name; });

TEST_F(check, goes_on_behind_a_step_that_dies_or_hangs)
{
    const process_result died = look({}, bad("crash"));
    EXPECT_THAT(row(died, "host"), ContainsRegex("^DIED: "));
    EXPECT_THAT(row(died, "copy"), ContainsRegex("^ok: "));
    const process_result hung = look({hangs_after}, bad("hang"));
    EXPECT_THAT(row(hung, "export"), ContainsRegex("^HUNG: "));
    EXPECT_THAT(row(hung, "import"), ContainsRegex("^left out: export"));
    EXPECT_THAT(row(hung, "bandwidth"), ContainsRegex("^ok: "));
}

TEST_F(check, leaves_out_what_builds_on_what_failed)
{
    const process_result lost = look({}, fault("open=EACCES@1"));
    EXPECT_THAT(row(lost, "pair 0-1"), ContainsRegex("^FAILED: "));
    EXPECT_THAT(row(lost, "bandwidth"), ContainsRegex("^ok: "));
    const process_result result = look({}, fault("submit=EIO"));
    EXPECT_THAT(row(result, "export"), ContainsRegex("^ok: "));
    for (const char *step : {"sizes", "on card", "pair", "bandwidth"}) {
        EXPECT_THAT(row(result, step), ContainsRegex("^left out: copy"));
    }
}

TEST_F(check, goes_well_above_the_double_of_the_kernel)
{
    for (const char *kernel : {"6.1", "6.6", "6.12"}) {
        SCOPED_TRACE(kernel);
        const std::string broken = files_.path("broken-rules");
        const process_result result =
            look({"--reset"},
                 {{"LD_PRELOAD",
                   preloadable(GAUDI_BUILD_DIR "/lib/libkernel_double.so")},
                  {"UCX_GAUDI_DRIVER",
                   GAUDI_BUILD_DIR "/lib/small-hlthunk/libhl-thunk.so"},
                  {"KERNEL_DOUBLE_KERNEL", kernel},
                  {"KERNEL_DOUBLE_REPORT", broken},
                  {"HLTHUNK_EMU_DEVICES", "2"}});
        EXPECT_TRUE(exited_with(0, result, {}, {"left out"}));
        EXPECT_THAT(row(result, "export"),
                    ContainsRegex((kernel == std::string("6.1")) ? "^absent: "
                                  : (kernel == std::string("6.6"))
                                      ? "^ok: of whole blocks alone"
                                      : "^ok: of parts of a page"));
        EXPECT_FALSE(fs::exists(broken));
    }
}

TEST_F(check, waits_for_cards_in_reset)
{
    const process_result result = look({}, fault("reset=1,close=reset"));
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_THAT(row(result, "open"), ContainsRegex("^ok: .* in reset$"));
}

TEST_F(check, takes_what_a_machine_has_not_for_no_fault)
{
    const process_result linux_driver = look({}, {{"HLTHUNK_EMU_IMPORT", "n"}});
    EXPECT_TRUE(exited_with(0, linux_driver));
    EXPECT_THAT(row(linux_driver, "import"),
                ContainsRegex("^absent: .*dma-bufs"));

    const process_result without = look({}, fault("import=EPERM"));
    EXPECT_TRUE(exited_with(0, without));
    EXPECT_THAT(row(without, "import"), ContainsRegex("^absent: .*dma-bufs"));
    const process_result refused = look({}, fault("import#1=EPERM"));
    EXPECT_TRUE(exited_with(0, refused));
    EXPECT_THAT(row(refused, "import"), ContainsRegex("^absent: .*EPERM"));

    const process_result alone = look({"--emulate=1"});
    EXPECT_THAT(row(alone, "import"), ContainsRegex("^absent: .*second card"));
}

TEST_F(check, knows_cards_of_other_page_sizes)
{
    const process_result result = look(
        {}, {{"HLTHUNK_EMU_DRAM_PAGE", "768M"}, {"HLTHUNK_EMU_EDMA", "0x7e"}});
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_THAT(row(result, "open"),
                HasSubstr("in pages of 768.0MiB, EDMA mask 0x7e"));
}

TEST_F(check, goes_by_synapseai_where_nothing_else_drives_a_card)
{
    const environment synapse   = {{"LD_LIBRARY_PATH", synapse_folder}};
    environment gaudi3          = synapse;
    gaudi3["HLTHUNK_EMU_ASIC"]  = "gaudi3";
    const process_result result = look({}, gaudi3);
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_THAT(row(result, "copy"), ContainsRegex("^ok: "));
    EXPECT_THAT(row(result, "pair"), ContainsRegex("^absent: "));

    EXPECT_THAT(row(look({}, synapse), "synapse"),
                ContainsRegex("^ok: 8 bytes there and back"));
}

TEST_F(check, has_what_configuration_files_of_ucx_set)
{
    (void)files_.file("ucx.conf", "UCX_GAUDI_DRIVER=emulator\n");
    EXPECT_TRUE(exited_with(0,
                            run({launcher, "check", "--output", report_},
                                with({{"UCX_CONFIG_DIR", files_.path("")},
                                      {"HLTHUNK_EMU_DEVICES", "1"}})),
                            {"open        ok "}));
}

TEST_F(check, has_one_line_for_the_pairs_of_the_wished_card_or_all)
{
    EXPECT_EQ("ok: through host memory: 2-0 2-1",
              row(look({"--card", "2", "--emulate=3"}), "pair"));
    EXPECT_EQ("ok: through host memory: 0-1 0-2 1-2",
              row(look({"--emulate=3"}), "pair"));
    EXPECT_EQ("ok: through host memory: 10 pairs",
              row(look({"--emulate=5"}), "pair"));
    const process_result lost = look({"--emulate=3"}, fault("open=EACCES@1"));
    EXPECT_EQ("ok: through host memory: 0-2", row(lost, "pair"));
    EXPECT_THAT(row(lost, "pair 0-1"), ContainsRegex("^FAILED: "));
}

TEST_F(check, says_in_one_line_why_there_is_nothing_to_check)
{
    const auto expect = [&](const process_result &result,
                            const std::string &why) {
        EXPECT_TRUE(exited_with(1, result));
        EXPECT_THAT(result.output,
                    ContainsRegex("^ucx-gaudi: nothing to check: " + why +
                                  "[^\n]*\n$"));
        EXPECT_FALSE(fs::exists(report_));
    };
    expect(look({"--card=7"}), ".*card 7");
    expect(look({}, {{"UCX_GAUDI_DRIVER", "/no/such/library.so"}}),
           ".*/no/such/library.so");
    expect(look({}, {{"UCX_GAUDI_DRIVER", fake_driver}, {"FAKE_CARDS", "0"}}),
           "");
    expect(look({}, {{"UCX_GAUDI_DRIVER", fake_driver}, {"FAKE_TAKEN", "1"}}),
           ".*taken");
    expect(look({"--card=0"},
                {{"UCX_GAUDI_DRIVER", fake_driver}, {"FAKE_TAKEN", "1"}}),
           "card 0 ");
}

TEST_F(check, reports_what_explains_the_table_and_no_other_variables)
{
    const std::string folder = files_.path("sys");
    fs::create_directories(folder);
    EXPECT_TRUE(exited_with(0, look({}, {{"HLTHUNK_EMU_SYSFS", folder},
                                         {"UCX_TLS", "gaudi_copy,gaudi_ipc"},
                                         {"UCX_NET_DEVICES", "a-secret"},
                                         {"A_SECRET", "a-secret"}})));
    const std::string text = report();
    for (const char *part :
         {"== steps\n", "== versions\n", "kernel ", "ucx " GAUDI_UCX_VERSION,
          "UCX_TLS=gaudi_copy,gaudi_ipc\n", "== cards\n", "device_type: GAUDI2",
          "\"usable\":"}) {
        EXPECT_THAT(text, HasSubstr(part));
    }
    EXPECT_THAT(text, Not(HasSubstr("a-secret")));
}

TEST_F(check, names_what_goes_wrong_over_ports)
{
    EXPECT_THAT(row(look({"--emulate=1"}), "ports"),
                ContainsRegex("^absent: .*second card"));
    EXPECT_THAT(row(look({}, {{"HCL_PORT_MAPPING_CONFIG",
                               files_.file("ports.json", "{\"HCL_NICS\":1}")}}),
                    "ports"),
                HasSubstr("HCL_NICS"));
    const process_result result = look({}, fault("wqe=abort"));
    EXPECT_EQ(1, result.exit_code);
    EXPECT_THAT(row(result, "ports"),
                ContainsRegex("^FAILED: .*over ports: Input/output error"));
}

TEST_F(check, writes_its_report_where_the_current_folder_takes_no_file)
{
    const process_result result =
        run({"sh", "-c", "cd /proc && exec \"$0\" check --emulate=1", launcher},
            with({{"TMPDIR", files_.path("")}}));
    EXPECT_TRUE(exited_with(0, result,
                            {"report    " + files_.path("/ucx-gaudi-check-")}));
    EXPECT_THAT(std::distance(fs::directory_iterator(files_.path("")), {}), 1);
}

TEST_F(check, never_writes_over_a_file)
{
    (void)files_.file("there.txt", "precious");
    const process_result result = run({launcher, "check", "--emulate=1",
                                       "--output", files_.path("there.txt")},
                                      with());
    EXPECT_TRUE(exited_with(1, result, {"ucx-gaudi: cannot write '"}, {" s  "}))
        << "the first step is behind that";
    std::ifstream file(files_.path("there.txt"));
    EXPECT_EQ("precious",
              std::string(std::istreambuf_iterator<char>(file), {}));
}

} // namespace gaudi::test
