/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/needs.h"

#include "common/child.h"
#include "common/framework.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

/* What test/tools/results knows a skip by. */
constexpr char prefix[] = "These cards do not have it: ";

constexpr int skipped = 77; /* exit code of a child */

constexpr char host_map[] = "UCX_GAUDI_SYNAPSE_HOST_MAP";

bool is_set(const char *variable, const char *value)
{
    const char *text = std::getenv(variable);
    return (text != nullptr) && (std::strcmp(text, value) == 0);
}

/* What there is not, and why. */
struct lack {
    need of;
    const char *why;
};

constexpr lack beside_framework[] = {
    {need::own_card, "the test opens the card itself, which the framework has"},
    {need::card_to_reset,
     "the framework has its card for good, and a reset one is of no use"},
    {need::no_card, "the process has the framework's card, and needs no other"},
    {need::cards_of_ucx,
     "SynapseAI has one device per process, and drives all there"},
    {need::own_dmabufs,
     "each allocation is one of SynapseAI's, with a dma-buf of its own"},
    {need::own_pool,
     "the framework has all of the memory as one block, all of which is device "
     "memory, and gives it out again as it likes"},
    {need::lone_driver,
     "the framework is preloaded, and has the driver's library loaded"},
    {need::failing_jobs,
     "SCAL submits no jobs, and an engine of it that fails resets the card"},
    {need::driver_calls,
     "the framework allocates, maps and opens, and the module does not"},
    {need::own_descriptors, "the framework keeps its descriptors"},
    {need::ports_to_host,
     "ports do not reach host memory, which SynapseAI has mapped"},
};

constexpr lack on_gaudi3[] = {
    {need::second_card, "SynapseAI has one device per process, and Gaudi3 "
                        "takes no work but by it"},
    {need::own_submissions, "it looks at command submissions, or makes them"},
    {need::cards_without_framework, "it looks at cards that no framework has, "
                                    "which Gaudi3 does not work with"},
    {need::pages_of_48_mb, "Gaudi3 has no pages of 48 MB"},
    {need::card_of_a_child, "a forked child has what its parent's SynapseAI "
                            "had, and can acquire none"},
};

const char *find(std::span<const lack> all, need what)
{
    const auto found = std::ranges::find(all, what, &lack::of);
    return (found == all.end()) ? nullptr : found->why;
}

void skip(const std::string &why)
{
    GTEST_SKIP() << why;
}

} // namespace

const char *why_missing(need what)
{
    if (what == need::imports) {
        return is_set("HLTHUNK_EMU_IMPORT", "n") ? "the driver does not import"
                                                 : nullptr;
    }
    /* Also where UCX itself has started SynapseAI: with_cards_of_ucx. */
    if (!runs_beside_framework() && !is_set("UCX_GAUDI_ENGINE", "synapse")) {
        return nullptr;
    }
    if (what == need::mapped_host) {
        return is_set(host_map, "y") ? nullptr
                                     : "host memory is staged, unless "
                                       "UCX_GAUDI_SYNAPSE_HOST_MAP=y";
    }
    const char *why = find(beside_framework, what);
    return ((why == nullptr) && has_one_card()) ? find(on_gaudi3, what) : why;
}

bool skips_without(need what)
{
    const char *why = why_missing(what);
    if (why == nullptr) {
        return false;
    }
    const std::string reason = std::string(prefix) + why;
    if (::testing::UnitTest::GetInstance()->current_test_info() == nullptr) {
        std::fputs(reason.c_str(), stderr);
        _exit(skipped);
    }
    skip(reason);
    return true;
}

bool skips_like(const child_result &child)
{
    const bool is_skipped =
        (child.exit_code == skipped) && child.error.starts_with(prefix);
    if (is_skipped) {
        skip(child.error);
    }
    return is_skipped;
}

with_mapped_host_memory::with_mapped_host_memory()
{
    if (runs_beside_framework() &&
        (::testing::UnitTest::GetInstance()->test_to_run_count() == 1)) {
        setenv(host_map, "y", 1);
    }
    (void)skips_without(need::mapped_host);
}

} // namespace gaudi::test
