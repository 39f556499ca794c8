/* SPDX-License-Identifier: BSD-3-Clause */
/* The loader opens the module for the UCX that runs, and says why when not:
 * with stand-ins for UCX and for modules. */
#include "gtest/tools/installations.h"

namespace gaudi::test {

namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char host[]        = GAUDI_TOOLS_DIR "/loader_host";
constexpr char stand_in[]    = GAUDI_TOOLS_DIR "/libstand_in_module.so";
constexpr char broken[]      = GAUDI_TOOLS_DIR "/libbroken_module.so";
constexpr char silent_ucp[]  = GAUDI_TOOLS_DIR "/silent-ucx/libucp.so.0";
constexpr char module_name[] = "libuct_hlthunk.so.0";

/* An installation of a loader, and of stand-in modules. */
class loader : public tools {
protected:
    loader()
    {
        fs::create_directories(files.path("lib/ucx-gaudi/plugin"));
        fs::copy_file(fs::canonical(fs::path(library) / module_name), own);
        fs::create_symlink(module_name, files.path("lib/") + preloaded);
        fs::create_symlink(fs::path("../..") / module_name,
                           files.path("lib/ucx-gaudi/plugin/") + module_name);
    }

    [[nodiscard]] std::string module_of(const std::string &release) const
    {
        return files.path("lib/ucx-gaudi/" + release + "/" + module_name);
    }

    void install(const std::string &release, const char *module = stand_in)
    {
        fs::create_directories(fs::path(module_of(release)).parent_path());
        fs::copy_file(module, module_of(release));
        (void)files.file("lib/ucx-gaudi/" + release + "/layout", "");
    }

    /* A UCX in the folder "ucx", and the module for it, if any. */
    void make(const std::string &version, const char *module = stand_in)
    {
        make_ucx(files, "ucx", version);
        if (module != nullptr) {
            install(version.substr(0, version.rfind('.')), module);
        }
    }

    /* A program that has the UCX in a folder. */
    [[nodiscard]] process_result in_ucx(const std::string &folder,
                                        arguments rest) const
    {
        return run(joined({host, files.path(folder + "/libucs.so.0"),
                           files.path(folder + "/libucp.so.0")},
                          rest),
                   with());
    }

    /* One line, and the program is none the worse for it. */
    static void expect_line(const process_result &result,
                            const std::vector<std::string> &parts)
    {
        EXPECT_TRUE(exited_with(0, result));
        const auto lines = lines_with(result.output, "ucx-gaudi: ");
        ASSERT_EQ(1u, lines.size()) << result.output;
        for (const std::string &part : parts) {
            EXPECT_THAT(lines[0], HasSubstr(part));
        }
        EXPECT_TRUE(has_lines(1, "the program goes on", result));
        EXPECT_THAT(result.output, Not(HasSubstr("opened ")));
    }

    scratch_directory files;
    const std::string own = files.path(std::string("lib/") + module_name);
};

} // namespace

TEST_F(loader, opens_the_module_of_the_running_release)
{
    constexpr const char *releases[] = {"1.13", "1.18", "1.20", "1.22", "2.0"};
    for (const char *release : releases) {
        install(release);
    }
    for (const char *release : releases) {
        for (const char *patch : {".0", ".7"}) {
            const std::string version = std::string(release) + patch;
            SCOPED_TRACE(version);
            make_ucx(files, version, version);
            const process_result result = in_ucx(version, {own});
            EXPECT_TRUE(exited_with(0, result));
            EXPECT_EQ("opened " + module_of(release) +
                          "\nthe program goes on\n",
                      result.output);
        }
    }
}

/* Commits that have the number of a release have other tables. */
TEST_F(loader, opens_the_module_that_was_built_for_this_ucx)
{
    const auto describe = [this](const std::string &release, const char *text) {
        (void)files.file("lib/ucx-gaudi/" + release + "/layout", text);
    };
    make("1.21.0");
    install("1.21-0a1b2c");
    install("1.21-3d4e5f");
    install("1.22");
    describe("1.21", "has uct_md_mem_elem_pack\nhas ucs_status_string\n");
    describe("1.21-0a1b2c", "lacks ucs_status_string\n");
    describe("1.21-3d4e5f", "has ucs_status_string\n"
                            "lacks uct_md_mem_elem_pack\n"
                            "object nobody_has_this 12\n");
    const process_result result = in_ucx("ucx", {own});
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_EQ("opened " + module_of("1.21-3d4e5f") + "\nthe program goes on\n",
              result.output);

    /* Where none fits, the first one of the release tells what is different. */
    describe("1.21-3d4e5f", "has uct_md_mem_elem_pack\n");
    expect_line(in_ucx("ucx", {own}),
                {"no module fits UCX 1.21.0", "uct_md_mem_elem_pack is missing",
                 "config.h"});
    fs::remove(files.path("lib/ucx-gaudi/1.21/layout"));
    expect_line(in_ucx("ucx", {own}), {"no file \"layout\""});
}

TEST_F(loader, opens_it_once_whatever_it_is_called)
{
    make("1.22.0");
    const std::string plugin =
        files.path("lib/ucx-gaudi/plugin/") + module_name;
    const process_result result = in_ucx(
        "ucx", {files.path("lib/") + preloaded, own, "init", plugin, "init"});
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_EQ("opened " + module_of("1.22") +
                  "\ninit 0\ninit 0\nthe program goes on\n",
              result.output);
}

TEST_F(loader, lets_all_threads_wait_for_the_module)
{
    make("1.18.1");
    /* UCX comes after the loader, so that a call is what loads the module. */
    const process_result result =
        run({host, own, files.path("ucx/libucs.so.0"), own, "threads"},
            with({{"STAND_IN_CALLS", own}}));
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_TRUE(has_lines(1, "opened ", result));
    EXPECT_TRUE(has_lines(4, "thread: memory type 42", result));
    /* The thread that loads it may come back: there is no module yet. */
    EXPECT_TRUE(has_lines(1, "constructor: memory type 3", result));
}

TEST_F(loader, takes_the_module_of_another_installation_that_is_loaded)
{
    make("1.18.1");
    fs::copy(files.path("lib"), files.path("other"),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    const process_result result =
        in_ucx("ucx", {own, files.path(std::string("other/") + module_name),
                       "init", "call"});
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_TRUE(has_lines(1, "opened ", result));
    EXPECT_THAT(result.output, HasSubstr("memory type 42\n"));
    const auto lines = lines_with(result.output, "ucx-gaudi: ");
    ASSERT_EQ(1u, lines.size()) << result.output;
    EXPECT_THAT(lines[0], HasSubstr(module_of("1.18")));
    EXPECT_THAT(lines[0],
                HasSubstr(files.path("other/ucx-gaudi/1.18/") + module_name));
}

TEST_F(loader, knows_its_place_after_the_program_has_left_its_folder)
{
    make("1.18.1");
    const fs::path relative = fs::relative(own);
    EXPECT_TRUE(exited_with(0,
                            run({host, relative, "chdir",
                                 files.path("ucx/libucs.so.0"), own, "call"},
                                with()),
                            {"opened " + module_of("1.18")}));
}

TEST_F(loader, names_the_version_and_the_remedy_when_no_module_fits)
{
    install("1.22");
    install("1.9");
    install("1.13");
    fs::create_directories(files.path("lib/ucx-gaudi/1.19")); /* empty */
    for (const char *release : {"1.19", "1.23", "2.0"}) {
        SCOPED_TRACE(release);
        const std::string version = release + std::string(".2");
        make_ucx(files, version, version);
        expect_line(in_ucx(version, {own, "init"}),
                    {"UCX " + version, files.path(version + "/libucp.so.0"),
                     files.path("lib/ucx-gaudi") + ": 1.9, 1.13, 1.22;",
                     std::string("source of UCX ") + release});
    }
    make_ucx(files, "old", "1.12.1");
    expect_line(in_ucx("old", {own, "init"}),
                {"UCX 1.12.1 ", "is too old", "(use UCX 1.13 or newer)"});
}

TEST_F(loader, asks_the_libucp_beside_libucs_in_a_program_without_one)
{
    make("1.16.0");
    EXPECT_TRUE(
        exited_with(0, run({host, files.path("ucx/libucs.so.0"), own}, with()),
                    {"opened " + module_of("1.16")}));
}

TEST_F(loader, says_that_no_libucp_tells_the_version)
{
    make("1.16.0");
    fs::copy_file(silent_ucp, files.path("ucx/libucp.so.0"),
                  fs::copy_options::overwrite_existing);
    expect_line(in_ucx("ucx", {own}),
                {files.path("ucx/libucp.so.0"), "ucp_get_version"});
    fs::remove(files.path("ucx/libucp.so.0"));
    expect_line(run({host, files.path("ucx/libucs.so.0"), own}, with()),
                {files.path("ucx/libucs.so.0"), "libucp.so.0"});
    /* The last place to look in is beside libuct. */
    expect_line(run({host, files.path("ucx/libucs.so.0"),
                     files.path("ucx/libuct.so.0"), own},
                    with()),
                {files.path("ucx/libucp.so.0")});
}

/* Another libucp beside the first one would mix up their variables. */
TEST_F(loader, asks_the_libucp_of_the_process_wherever_it_lies)
{
    install("1.16");
    install("1.18");
    make_ucx(files, "old", "1.16.0");
    make_ucx(files, "new", "1.18.1");
    EXPECT_TRUE(exited_with(0,
                            run({host, files.path("old/libucs.so.0"),
                                 files.path("new/libucp.so.0"), own},
                                with()),
                            {"opened " + module_of("1.18")}));
}

/* As packagers of Python wheels rename them, opened for itself alone. */
TEST_F(loader, leaves_a_ucx_of_other_names_to_itself)
{
    environment variables = {{"LD_PRELOAD", files.path("lib/") + preloaded}};
    const process_result result =
        run({host, GAUDI_TOOLS_DIR "/libucs-renamed.so"}, with(variables));
    EXPECT_TRUE(exited_with(0, result));
    EXPECT_EQ("options 42 are set\nthe program goes on\n", result.output);
}

TEST_F(loader, says_why_a_module_cannot_be_loaded)
{
    make("1.18.1", broken);
    expect_line(in_ucx("ucx", {own, "init"}),
                {module_of("1.18"), "nobody_has_this_function"});
    (void)files.file(std::string("lib/ucx-gaudi/1.18/") + module_name, "text");
    expect_line(in_ucx("ucx", {own, "init"}), {module_of("1.18")});
    expect_line(in_ucx("ucx", {"no-files", own, "init"}),
                {"Operation not permitted", "memfd_create"});
}

/* As a module that UCX opens with RTLD_DEEPBIND it frees by libc's allocator,
 * whatever libc itself takes memory from. */
TEST_F(loader, frees_nothing_that_libc_has_allocated)
{
    make("1.18.1");
    install("1.18-0a1b2c");
    make_ucx(files, "other", "1.19.0");
    fs::create_symlink(own, files.path("ucx/ucx/libuct_rdmacm.so.0"));
    const environment variables = {
        {"LD_PRELOAD", preloadable(strict_allocator)},
        {"UCX_TLS", "gaudi_copy,sm"}};
    for (const char *way : {"lib/libuct_hlthunk.so.0", /* in a wheel */
                            "lib/ucx-gaudi/plugin/libuct_hlthunk.so.0",
                            "ucx/ucx/libuct_rdmacm.so.0"}) {
        SCOPED_TRACE(way);
        const auto open = [&](const std::string &ucx) {
            return run({host, files.path(ucx + "/libucs.so.0"),
                        files.path(ucx + "/libucp.so.0"), "deep",
                        files.path(way), "init"},
                       with(variables));
        };
        EXPECT_TRUE(exited_with(
            0, open("ucx"),
            {"opened " + module_of("1.18"), "write UCX_TLS=gaudi_cpy,sm"}));
        EXPECT_TRUE(exited_with(0, open("other"),
                                {"no module fits UCX 1.19.0",
                                 "ucx-gaudi: 1.18, 1.18-0a1b2c; build"}));
    }
}

TEST_F(loader, forwards_what_programs_call)
{
    make("1.18.1");
    EXPECT_TRUE(exited_with(0, in_ucx("ucx", {own, "call"}),
                            {"memory type 42\nquery 11\nexport 12\nimport 13\n"
                             "release 0 14\ncards 15\nopen 16\nclose 17\n"
                             "alloc 18\nfree 0 19\ncopy 20\nfill 21\n"
                             "host 22 0 23\nstream 24 0 25 26 27 28\n"
                             "event 29 0 30 31 32\nipc 34 35 36 0\n"}));
}

TEST_F(loader, has_no_memory_and_no_card_without_a_module)
{
    make("1.18.1", nullptr);
    const process_result result = in_ucx("ucx", {own, "call"});
    expect_line(result, {"no module fits UCX 1.18.1"});
    /* The number that comes after the memory types of this UCX; statuses as
     * ucx_gaudi.h promises them. */
    EXPECT_THAT(result.output, HasSubstr("memory type 3\n"));
    EXPECT_THAT(result.output, HasSubstr("query -7\nexport -7\nimport -14\n"
                                         "release 0 -7\ncards -12\n"
                                         "open -14\nclose 0\nalloc -14\n"
                                         "free 0 -7\ncopy -14\n"
                                         "fill -14\nhost -14 0 -7\n"
                                         "stream -14 0 -14 -14 -14 -14\n"
                                         "event -14 0 -14 -14 -14\n"
                                         "ipc -14 -7 -14 0\n"));
}

TEST_F(loader, says_why_it_cannot_load_ucx_for_a_program_without)
{
    fs::create_directories(files.path("broken"));
    std::ofstream(files.path("broken/libucs.so.0")) << "no library";
    const process_result result = run(
        {host, own, "call"}, with({{"LD_LIBRARY_PATH", files.path("broken")}}));
    expect_line(result, {"broken/libucs.so.0"});
    EXPECT_THAT(result.output, HasSubstr("alloc -14\n"));
}

TEST_F(loader, is_silent_in_a_program_without_ucx)
{
    EXPECT_EQ("the program goes on\n", run({host, own}, with()).output);
}

} // namespace gaudi::test
