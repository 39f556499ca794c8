/* Debian's MPI libraries send from and to Gaudi memory, without knowing it. */
#include "gtest/tools/fixture.h"

#include "gtest/tools/scratch.h"

#include <unistd.h>

namespace gaudi::test {

namespace {

using ::testing::HasSubstr;

/* Library, ranks, UCX_TLS ("" leaves it to UCX). */
using mpi_case = std::tuple<const char *, const char *, const char *>;

class mpi : public tools, public ::testing::WithParamInterface<mpi_case> {
protected:
    [[nodiscard]] static std::string library_name()
    {
        return std::get<0>(GetParam());
    }

    /* Start ranks of a program; variables are the environment of all. */
    [[nodiscard]] process_result start(const arguments &program,
                                       const environment &variables) const
    {
        const auto &[name, ranks, tls] = GetParam();
        arguments command{std::string("mpiexec.") + name};
        if (library_name() == "openmpi") {
            /* By itself it takes UCX for some networks only. */
            for (const char *option :
                 {"--oversubscribe", "--mca", "pml", "ucx", "--mca", "osc",
                  "ucx", "--mca", "pml_ucx_tls", "any", "--mca",
                  "pml_ucx_devices", "any", "--mca", "opal_common_ucx_tls",
                  "any", "--mca", "opal_common_ucx_devices", "any"}) {
                command.emplace_back(option);
            }
            if (geteuid() == 0) {
                command.emplace_back("--allow-run-as-root");
            }
        } else {
            command.insert(command.end(), {"-launcher", "fork"});
        }
        command.insert(command.end(), {"-n", ranks});
        command.insert(command.end(), program.begin(), program.end());

        process_options options = with(variables);
        options.deadline        = std::chrono::seconds(90);
        /* Session files of the start-up daemons. */
        options.variables["TMPDIR"] = files_.path("");
        options.variables["HOME"]   = files_.path("");
        if (*tls != '\0') {
            options.variables["UCX_TLS"] = tls;
        }
        return run(command, options);
    }

    scratch_directory files_;
};

std::string name_of(const ::testing::TestParamInfo<mpi_case> &test)
{
    const auto &[name, ranks, tls] = test.param;
    const std::string list(tls);
    return std::string(name) + "_" + ranks + "_ranks_" +
           (list.empty() ? "any" : list.substr(list.find(',') + 1));
}

} // namespace

TEST_P(mpi, contents_arrive)
{
    const std::string program =
        GAUDI_TOOLS_DIR "/mpi_contents." + library_name();
    ASSERT_EQ(0, access(program.c_str(), X_OK))
        << program << " was not built: install the -dev package of "
        << library_name() << " and configure again";
    const process_result result = start(under_launcher({program}), {});
    EXPECT_TRUE(is_quiet_success(result));
    EXPECT_THAT(result.output, HasSubstr("ranks have what was sent"));
}

TEST_P(mpi, the_example_runs_with_what_env_exports)
{
    /* The variables of the launcher, set once for mpiexec and its ranks. */
    const std::string program =
        GAUDI_BUILD_DIR "/bin/mpi_device_buffers." + library_name();
    ASSERT_EQ(0, access(program.c_str(), X_OK)) << program;
    const process_result result = start(
        {program}, {{"LD_PRELOAD", std::string(library) + "/" + preloaded},
                    {"UCX_GAUDI_DRIVER", "emulator"}});
    EXPECT_TRUE(is_quiet_success(result));
    EXPECT_EQ(std::stoul(std::get<1>(GetParam())),
              lines_with(result.output, "the cards have what was sent").size())
        << result.output;
}

/* MPICH over tcp alone hangs in MPI_Finalize every other time, on host memory
 * and without the module, too. */
INSTANTIATE_TEST_SUITE_P(
    of_debian, mpi,
    ::testing::Combine(::testing::Values("mpich", "openmpi"),
                       ::testing::Values("2", "4"),
                       ::testing::Values("", "gaudi_copy,sm")),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    of_debian_over_tcp, mpi,
    ::testing::Combine(::testing::Values("openmpi"),
                       ::testing::Values("2", "4"),
                       ::testing::Values("gaudi_copy,tcp")),
    name_of);

} // namespace gaudi::test
