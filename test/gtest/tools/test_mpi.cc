/* SPDX-License-Identifier: BSD-3-Clause */
/* Debian's MPI libraries send from and to Gaudi memory, without knowing it. */
#include "common/needs.h"
#include "gtest/tools/fixture.h"

#include "common/process_state.h"
#include "common/scratch.h"
#include "gtest/tools/leftovers.h"
#include "gtest/tools/release.h"

#include <csignal>
#include <fstream>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Values;

/* Processes, wherever they went: while one of these exists, those whose parent
 * ended become children of the test process instead of init's. Ended with this
 * object. For a test that waits for its own programs before it asks. */
class orphans {
public:
    orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }
    ~orphans()
    {
        end();
        prctl(PR_SET_CHILD_SUBREAPER, 0);
    }
    orphans(const orphans &)            = delete;
    orphans &operator=(const orphans &) = delete;

    /* Whether none is there, or none any more. */
    [[nodiscard]] static bool have_ended()
    {
        pid_t ended;
        while ((ended = waitpid(-1, nullptr, WNOHANG)) > 0) {}
        return ended < 0;
    }

    /* Kill them, and what becomes an orphan by that. */
    static void end()
    {
        while (!have_ended()) {
            const std::string self = std::to_string(getpid());
            std::ifstream children("/proc/self/task/" + self + "/children");
            for (pid_t child; children >> child;) {
                ::kill(child, SIGKILL);
            }
            waitpid(-1, nullptr, 0);
        }
    }
};

/* A library, and jobs of it: mpiexec, its daemons and the ranks. */
class mpi_jobs : public tools {
protected:
    /* What a program was built to for this library. */
    static std::string built(const std::string &folder, const char *name,
                             const std::string &mpi)
    {
        std::string program = folder + "/" + name + "." + mpi;
        EXPECT_EQ(0, access(program.c_str(), X_OK))
            << program << " was not built: install the -dev package of " << mpi
            << " and configure again";
        return program;
    }

    static arguments mpiexec(const std::string &mpi, const std::string &ranks,
                             const arguments &program,
                             const arguments &options = {})
    {
        arguments command{"mpiexec." + mpi, "-n", ranks};
        if (mpi == "openmpi") {
            command.emplace_back("--oversubscribe");
            if (geteuid() == 0) {
                command.emplace_back("--allow-run-as-root");
            }
        } else {
            command = joined(command, {"-launcher", "fork"});
        }
        return joined(joined(command, options), program);
    }

    /* What the launcher sets: by itself Open MPI takes UCX for some networks
     * only. */
    static environment without_launcher()
    {
        return {{"OMPI_MCA_pml", "ucx"},
                {"OMPI_MCA_osc", "ucx"},
                {"OMPI_MCA_opal_common_ucx_tls", "any"}};
    }

    /* Everything that the library keeps in files is in a scratch directory. */
    [[nodiscard]] process_options
    job_options(const environment &variables = {}) const
    {
        const std::string folder = files_.path("");
        process_options options  = with(variables, std::chrono::seconds(90));
        for (const char *name :
             {"TMPDIR", "HOME", "OMPI_MCA_btl_vader_backing_directory",
              "OMPI_MCA_btl_sm_backing_directory"}) {
            options.variables[name] = folder;
        }
        return options;
    }

    [[nodiscard]] std::string scratch() const { return files_.path(""); }

    /* Nothing is there that was not there before the test. */
    void expect_nothing_is_left()
    {
        EXPECT_TRUE(eventually([&] { return orphans_.have_ended(); }))
            << "processes were left behind";
        EXPECT_THAT(shm_.left_behind(), IsEmpty());
    }

    void expect_nothing_is_left_in_files()
    {
        expect_nothing_is_left();
        const std::filesystem::directory_iterator entries(scratch());
        EXPECT_EQ(std::filesystem::directory_iterator(), entries)
            << entries->path();
    }

    [[nodiscard]] orphans &left_processes() { return orphans_; }

    /* All has come in device memory, and none but what belongs there was moved
     * by cards. */
    void expect_contents(const std::string &mpi, const std::string &ranks,
                         const arguments &operations,
                         const environment &variables)
    {
        for (const auto &[from, to] :
             {std::pair{"gaudi", "gaudi"}, {"host", "host"}}) {
            expect_contents(mpi, ranks, from, to, operations, variables);
        }
    }

    void expect_contents(const std::string &mpi, const std::string &ranks,
                         const std::string &from, const std::string &to,
                         const arguments &operations,
                         const environment &variables)
    {
        SCOPED_TRACE(from + " to " + to);
        const process_result result =
            run(mpiexec(mpi, ranks,
                        under_launcher(joined(
                            {built(GAUDI_TOOLS_DIR, "mpi_operations", mpi),
                             from, to, scratch()},
                            operations))),
                job_options(variables));
        EXPECT_TRUE(is_quiet_success(result));
        EXPECT_EQ(std::string("cards moved ") +
                      (from + to == "hosthost" ? "nothing" : "all") + "\nall " +
                      ranks + " ranks have what was sent\n",
                  result.output);
    }

private:
    scratch_directory files_; /* goes when no process uses it any more */
    const shared_memory_files shm_;
    orphans orphans_;
};

/* Library, UCX_TLS ("" leaves it to UCX). */
using traffic_case = std::tuple<std::string, std::string>;

class mpi_traffic : public mpi_jobs,
                    public ::testing::WithParamInterface<traffic_case> {};

std::string traffic_name(const ::testing::TestParamInfo<traffic_case> &test)
{
    const auto &[mpi, tls] = test.param;
    return mpi + "_" + (tls.empty() ? "any" : tls.substr(tls.find(',') + 1));
}

bool is_open_mpi(const char *release)
{
    static const std::string found =
        run({"mpiexec.openmpi", "--version"}).output;
    return found.find(std::string(" ") + release) != std::string::npos;
}

/* Those that get to know which memory is a card's. */
std::vector<std::string> libraries_with_components()
{
    return is_open_mpi("5.0.") ? std::vector<std::string>{"openmpi"}
                               : std::vector<std::string>{};
}

/* Operations of mpi_operations that a library has UCX do: it touches no memory
 * by itself. */
arguments served_by(const std::string &mpi)
{
    return words("message exchange allgather_in_place iallgather_in_place "
                 "alltoallv_others ialltoallv_others neighbor_allgather "
                 "neighbor_alltoall bcast ibcast put_fence put_post get_lock " +
                 std::string((mpi == "mpich")
                                 ? "alltoallv"
                                 : "put_own put_dynamic iallgatherv_in_place"));
}

/* Library, ranks, protocols. */
using collectives_case = std::tuple<std::string, std::string, const char *>;

class mpi_collectives : public mpi_jobs,
                        public ::testing::WithParamInterface<collectives_case> {
};

/* Library, group of mpi_operations. */
using alike_case = std::tuple<std::string, std::string>;

class mpi_on_cards : public mpi_jobs,
                     public ::testing::WithParamInterface<alike_case> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(mpi_on_cards);

/* Stands for Open MPI, what is tested. */
using component_case = std::tuple<std::string, std::string>;

class mpi_components : public tools,
                       public ::testing::WithParamInterface<component_case> {};

/* Library, how the last rank ends. */
using end_case = std::tuple<std::string, std::string>;

class mpi_failure : public mpi_jobs,
                    public ::testing::WithParamInterface<end_case> {};

class mpi_library : public mpi_jobs,
                    public ::testing::WithParamInterface<std::string> {};

} // namespace

TEST_P(mpi_traffic, contents_arrive_and_cards_move_them)
{
    const auto &[mpi, tls] = GetParam();
    const arguments messages{"message", "exchange", "bcast"};
    environment variables;
    if (!tls.empty()) {
        variables["UCX_TLS"] = tls;
    }
    expect_contents(mpi, "4", messages, variables);
    expect_contents(mpi, "2", "gaudi", "host", messages, variables);
    expect_contents(mpi, "2", "host", "gaudi", messages, variables);
    expect_nothing_is_left_in_files();
}

/* Without MPICH over tcp alone: of its ranks, those that are early wait in
 * MPI_Finalize without making progress, and the others for them. That is so in
 * about every other run, on host memory and without the module, too. */
INSTANTIATE_TEST_SUITE_P(of_debian, mpi_traffic,
                         Values(traffic_case("mpich", ""),
                                traffic_case("mpich", "gaudi_copy,sm"),
                                traffic_case("openmpi", ""),
                                traffic_case("openmpi", "gaudi_copy,tcp")),
                         traffic_name);

TEST_P(mpi_collectives, bring_what_was_sent)
{
    const auto &[mpi, ranks, proto] = GetParam();
    expect_contents(
        mpi, ranks, served_by(mpi),
        over("gaudi_copy,gaudi_ipc", proto, {{"UCX_HANDLE_ERRORS", "none"}}));
    expect_nothing_is_left_in_files();
}

INSTANTIATE_TEST_SUITE_P(
    of_debian, mpi_collectives,
    Values(collectives_case("mpich", "2", default_protocols),
           collectives_case("mpich", "4", "y"),
           collectives_case("openmpi", "2", default_protocols),
           collectives_case("openmpi", "4", "y")),
    [](const auto &test) {
        return std::get<0>(test.param) + "_" + std::get<1>(test.param) +
               "_ranks_proto_" + std::get<2>(test.param);
    });

TEST_P(mpi_on_cards, does_what_it_does_in_host_memory)
{
    const auto &[mpi, group] = GetParam();
    for (const char *ranks : {"2", "4"}) {
        expect_contents(mpi, ranks, {group},
                        {{"UCX_TLS", "gaudi_copy,gaudi_ipc"}});
    }
    expect_nothing_is_left_in_files();
}

INSTANTIATE_TEST_SUITE_P(
    of_debian, mpi_on_cards,
    ::testing::Combine(::testing::ValuesIn(libraries_with_components()),
                       Values("reductions", "blocks", "messages", "types",
                              "windows", "files")),
    [](const auto &test) {
        return std::get<0>(test.param) + "_" + std::get<1>(test.param);
    });

TEST_P(mpi_components, do_their_part)
{
    const auto &[mpi, part] = GetParam();
    EXPECT_TRUE(is_quiet_success(
        emulated({GAUDI_TOOLS_DIR "/open_mpi_" + mpi,
                  std::string(library) + "/ucx-gaudi/openmpi", part})));
}

INSTANTIATE_TEST_SUITE_P(
    of_open_mpi_5, mpi_components,
    ::testing::Combine(Values("release"),
                       Values("memory", "streams", "cards", "operations")),
    [](const auto &test) { return std::get<1>(test.param); });
/* Of later releases, which have more to ask. */
INSTANTIATE_TEST_SUITE_P(of_others, mpi_components,
                         Values(component_case("other_table", "refused")),
                         [](const auto &) { return "refused"; });

using mpi_component = tools;

TEST_F(mpi_component, says_that_it_does_not_fit_a_debug_build)
{
    const process_result result =
        emulated({GAUDI_TOOLS_DIR "/open_mpi_other_objects",
                  std::string(library) + "/ucx-gaudi/openmpi", "refused"});
    EXPECT_TRUE(exited_with(0, result, {"ucx-gaudi: Open MPI's objects"}));
    EXPECT_TRUE(has_lines(1, "ucx-gaudi:", result));
}

TEST_F(mpi_component, keeps_the_cpu_off_memory_that_is_freed)
{
    const process_result result =
        emulated({GAUDI_TOOLS_DIR "/open_mpi_release",
                  std::string(library) + "/ucx-gaudi/openmpi", "freed"});
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_TRUE(has_lines(1, "UCX  ERROR gaudi: ", result));
}

TEST_F(mpi_component, ends_a_reduction_that_it_cannot_finish)
{
    const process_result result =
        emulated({GAUDI_TOOLS_DIR "/open_mpi_release",
                  std::string(library) + "/ucx-gaudi/openmpi", "beyond"});
    EXPECT_EQ(SIGABRT, result.signal);
    EXPECT_TRUE(
        has_lines(1, "ucx-gaudi: a reduction of device memory cannot", result));
    EXPECT_TRUE(has_lines(2, ":", result)) << "UCX's reason, and ours";
}

TEST_F(mpi_component, leaves_a_process_without_cards_alone)
{
    EXPECT_TRUE(is_quiet_success(run(
        under_launcher({GAUDI_TOOLS_DIR "/open_mpi_release",
                        std::string(library) + "/ucx-gaudi/openmpi", "refused"},
                       {}),
        with({{"UCX_GAUDI_DRIVER", "auto"}}))));
}

TEST_P(mpi_library, the_example_runs_in_every_way_that_it_is_started)
{
    GAUDI_NEEDS(cards_without_framework);
    const std::string mpi = GetParam();
    const std::string program =
        built(GAUDI_BUILD_DIR "/bin", "mpi_device_buffers", mpi);
    const std::string stub          = preloaded_name();
    const arguments by_option       = (mpi == "mpich")
                                          ? arguments{"-genv", "LD_PRELOAD", stub}
                                          : arguments{"-x", "LD_PRELOAD=" + stub};
    environment on_emulator         = without_launcher();
    on_emulator["UCX_GAUDI_DRIVER"] = "emulator";
    environment exported            = on_emulator;
    exported["LD_PRELOAD"]          = stub;

    const arguments in_shell                       = {"sh", "-c",
                                                      std::string("eval \"$('") + launcher +
                                                          "' env --emulate)\" && exec \"$@\"",
                                                      "sh"};
    const std::pair<arguments, environment> ways[] = {
        {joined(in_shell, mpiexec(mpi, "4", {program})), {}},
        {mpiexec(mpi, "4", under_launcher({program})), {}},
        {under_launcher(mpiexec(mpi, "4", {program})), {}},
        {mpiexec(mpi, "4", {program}), exported},
        {mpiexec(mpi, "4", {program}, by_option), on_emulator}};
    for (const auto &[command, variables] : ways) {
        const process_result result = run(command, job_options(variables));
        EXPECT_TRUE(is_quiet_success(result))
            << ::testing::PrintToString(command);
        EXPECT_TRUE(has_lines(4, "what was sent", result));
        /* mpiexec has components, too, which are not of this kind. */
        EXPECT_THAT(result.output, Not(HasSubstr("component")));
    }
    expect_nothing_is_left_in_files();
}

TEST_P(mpi_library, a_killed_job_leaves_nothing)
{
    const std::string mpi     = GetParam();
    const std::string program = built(GAUDI_TOOLS_DIR, "mpi_ends", mpi);
    const auto is_ready       = [&](const char *rank) {
        return std::filesystem::exists(scratch() + "ready." + rank);
    };
    {
        process job(mpiexec(mpi, "2",
                            under_launcher({program, "wait", scratch()},
                                           {"--emulate=2"})),
                    job_options());
        ASSERT_TRUE(eventually([&] { return is_ready("0") && is_ready("1"); }));
    }
    /* What mpiexec cannot do any more, as at a deadline of any test here. */
    left_processes().end();
    expect_nothing_is_left();

    /* Both cards of the box are free again. */
    const process_result result =
        run(mpiexec(mpi, "2",
                    under_launcher({built(GAUDI_BUILD_DIR "/bin",
                                          "mpi_device_buffers", mpi)},
                                   {"--emulate=2"})),
            job_options());
    EXPECT_TRUE(is_quiet_success(result));
}

INSTANTIATE_TEST_SUITE_P(of_debian, mpi_library, Values("mpich", "openmpi"),
                         [](const auto &test) { return test.param; });

TEST_P(mpi_failure, ends_the_job_and_leaves_nothing)
{
    const auto &[mpi, end] = GetParam();
    const process_result result =
        run(mpiexec(mpi, "4",
                    under_launcher({built(GAUDI_TOOLS_DIR, "mpi_ends", mpi),
                                    end, scratch()})),
            job_options());
    /* Which code depends on what mpiexec hears of first: that rank, or one
     * that it killed therefore. */
    EXPECT_GT(result.exit_code, 0) << result.output;
    EXPECT_THAT(lines_with(result.output, "UCX "), IsEmpty()) << result.output;
    for (const char *rank : {"0", "1", "2", "3"}) {
        EXPECT_TRUE(std::filesystem::remove(scratch() + "ready." + rank));
    }
    expect_nothing_is_left_in_files();
}

INSTANTIATE_TEST_SUITE_P(of_debian, mpi_failure,
                         ::testing::Combine(Values("mpich", "openmpi"),
                                            Values("exit", "die", "abort")),
                         [](const auto &test) {
                             return std::get<0>(test.param) + "_" +
                                    std::get<1>(test.param);
                         });

} // namespace gaudi::test
