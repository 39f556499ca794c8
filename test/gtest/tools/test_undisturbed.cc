/* SPDX-License-Identifier: BSD-3-Clause */
/* What programs notice of the preload that do not care for it: nothing. */
#include "gtest/tools/fixture.h"
#include "gtest/tools/release.h"

#include <filesystem>
#include <map>
#include <set>
#include <sstream>

namespace gaudi::test {

namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/* What a Python program sees of its own process: signal handlers and masks,
 * threads, open files, and the libraries that are mapped. */
constexpr char look_around[] =
    "def look():\n"
    "    import os, re\n"
    "    status = open('/proc/self/status').read()\n"
    "    for name in ('SigBlk', 'SigIgn', 'SigCgt', 'Threads'):\n"
    "        print(re.search(name + ':.*', status).group())\n"
    "    print('fds', sorted(os.listdir('/proc/self/fd')))\n"
    "    maps = open('/proc/self/maps').read()\n"
    "    for name in sorted(set(re.findall('/.*[.]so[^ \\n]*', maps))):\n"
    "        print('mapped', os.path.realpath(name))\n";

class undisturbed : public tools {
protected:
    [[nodiscard]] process_result plain(const arguments &command) const
    {
        return run(command, with());
    }

    /* Lines that one text has and the other one lacks. */
    static std::vector<std::string> added_lines(const std::string &before,
                                                const std::string &after)
    {
        std::multiset<std::string> known;
        std::istringstream old(before);
        for (std::string line; std::getline(old, line);) {
            known.insert(line);
        }
        std::vector<std::string> added;
        std::istringstream fresh(after);
        for (std::string line; std::getline(fresh, line);) {
            const auto found = known.find(line);
            if (found == known.end()) {
                added.push_back(line);
            } else {
                known.erase(found);
            }
        }
        for (const std::string &line : known) {
            added.push_back("missing: " + line);
        }
        return added;
    }

    /* As the kernel has it, without links. */
    const std::string stub =
        fs::canonical(fs::path(library) / preloaded).string();
};

} // namespace

TEST_F(undisturbed, a_small_program_maps_one_library_more_and_nothing_else)
{
    const arguments program     = {"grep", "-ho",
                                   "^Sig[BIC].*\\|^Threads.*\\|/.*[.]so.*",
                                   "/proc/self/status", "/proc/self/maps"};
    const process_result before = plain(program);
    const process_result after  = emulated(program);
    ASSERT_TRUE(exited_with(0, before));
    ASSERT_TRUE(exited_with(0, after));
    for (const std::string &line : added_lines(before.output, after.output)) {
        EXPECT_EQ(stub, line);
    }
    EXPECT_THAT(before.output, HasSubstr("SigCgt"));
    EXPECT_LT(0u, lines_with(after.output, stub).size());
}

TEST_F(undisturbed, a_program_that_loads_ucx_later_changes_only_then)
{
    const std::string script = std::string(look_around) +
                               "look()\n"
                               "print('now UCX')\n" +
                               python_opens_ucx +
                               "look()\n"
                               "ucp.ucp_cleanup(context)\n";
    const process_result before = plain({"python3", "-c", script});
    const process_result without =
        launched({"python3", "-c", script}, {}); /* no card */
    const process_result after = emulated({"python3", "-c", script});
    for (const process_result *result : {&before, &without, &after}) {
        ASSERT_TRUE(exited_with(0, *result));
        EXPECT_TRUE(has_lines(0, "UCX  ", *result));
    }
    const auto halves = [](const std::string &output) {
        const size_t middle = output.find("now UCX\n");
        return std::pair(output.substr(0, middle), output.substr(middle));
    };
    EXPECT_THAT(
        added_lines(halves(before.output).first, halves(after.output).first),
        ElementsAre("mapped " + stub));

    /* Then there are the module and what it is linked with, of which UCX may
     * have brought some; without a card nothing else. */
    auto added = added_lines(halves(before.output).second,
                             halves(without.output).second);
    std::erase_if(added, [](const std::string &line) {
        return (line.find("libgcc_s.so.1") != std::string::npos) ||
               (line.find("libnuma.so.1") != std::string::npos);
    });
    EXPECT_THAT(added, ::testing::UnorderedElementsAre(
                           "mapped " + stub, HasSubstr(module_file),
                           HasSubstr("libcjson.so.1")))
        << without.output;
    EXPECT_EQ(lines_with(halves(before.output).second, "Sig"),
              lines_with(halves(after.output).second, "Sig"));
}

TEST_F(undisturbed, a_machine_without_cards_uses_every_variable)
{
    /* Opens a worker, where UCX complains of variables that nobody parsed. */
    const process_result result =
        launched(words("ucx_info -p -w -u t"), {},
                 {{"UCX_GAUDI_DEVICES", "all"},
                  {"UCX_GAUDI_DRIVER", "auto"},
                  {"UCX_GAUDI_MEMORY_TYPE", "auto"},
                  {"UCX_GAUDI_COPY_BW", "10GBs"},
                  {"UCX_GAUDI_COPY_STAGING_CHUNK", "4k"},
                  {"UCX_GAUDI_COPY_STAGING_COUNT", "5"}});
    EXPECT_TRUE(is_quiet_success(result, {"UCP context"}));
}

TEST_F(undisturbed, several_cards_are_one_lane_of_a_transfer)
{
    for (const char *proto : protocols()) {
        const process_result result = emulated(
            {GAUDI_TOOLS_DIR "/ucp_peer", "alone", "rma", "info", "sizes=4097"},
            {{"UCX_TLS", "gaudi_copy,self"},
             {"UCX_GAUDI_DEVICES", "all"},
             {"UCX_MAX_RNDV_RAILS", "4"},
             {"UCX_PROTO_ENABLE", proto}});
        EXPECT_TRUE(exited_with(0, result));
        /* Of endpoints for memory types and for messages. */
        std::map<std::string, unsigned> lanes;
        std::string endpoint;
        std::istringstream lines(result.output);
        for (std::string line; std::getline(lines, line);) {
            if (line.starts_with("# UCP endpoint ")) {
                endpoint = line;
            } else if (line.find(":gaudi_cpy/") != std::string::npos) {
                ++lanes[endpoint];
            }
        }
        EXPECT_LE(2u, lanes.size()) << result.output;
        for (const auto &[title, count] : lanes) {
            EXPECT_EQ(1u, count) << title << " in " << result.output;
        }
    }
}

} // namespace gaudi::test
