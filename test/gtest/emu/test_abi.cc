/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library exports, and what it does with what it does not have. */
#include "gtest/emu/fixture.h"

#include "common/child.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>

using namespace gaudi::test;

namespace {

void *library_handle()
{
    return dlopen(emulator_path().c_str(), RTLD_NOW | RTLD_LOCAL);
}

TEST(emu_abi, every_symbol_of_the_shims_table_is_exported)
{
    void *library = library_handle();
    ASSERT_NE(library, nullptr) << dlerror();
#define HLTHUNK_SYMBOL(_need, _result, _name, _parameters)                     \
    EXPECT_NE(dlsym(library, #_name), nullptr) << #_name;
#include "hlthunk_shim/hlthunk/symbols.def"
#undef HLTHUNK_SYMBOL
}

TEST(emu_abi, only_the_drivers_names_and_the_hooks_are_exported)
{
    void *library = library_handle();
    ASSERT_NE(library, nullptr) << dlerror();
    for (const char *internal :
         {"_ZN5gaudi3emu4card2atEj", "_ZN5gaudi3emu12get_settingsEv",
          "_ZN5gaudi3emu10copy_bytesEPcPKcm"}) {
        EXPECT_EQ(dlsym(library, internal), nullptr) << internal;
    }
}

GAUDI_CHILD(calls_a_function)
{
    void *function = dlsym(library_handle(), std::getenv("GAUDI_FUNCTION"));
    GAUDI_CHILD_REQUIRE(function != nullptr);
    reinterpret_cast<void (*)()>(function)();
    return 0;
}

TEST(emu_abi, an_unimplemented_function_stops_the_process_with_its_name)
{
    for (const char *name :
         {"hlthunk_profiler_start", "hlthunk_debug", "hlthunk_get_info",
          "hlthunk_staged_command_submission", "hlthunk_wait_for_interrupt",
          "hlthunk_nic_cq_create", "hlthunk_signal_submission"}) {
        const child_result result =
            run_child("calls_a_function", {{{"GAUDI_FUNCTION", name}}});
        EXPECT_EQ(result.signal, SIGABRT) << name;
        EXPECT_EQ(result.error, "hlthunk-emu: " + std::string(name) +
                                    " is not implemented\n");
    }
}

TEST_F(emu, waiting_for_several_jobs_is_for_gaudi1_only)
{
    hlthunk_wait_multi_cs_in in{};
    hlthunk_wait_multi_cs_out out{};
    EXPECT_EQ(api().hlthunk_wait_for_multi_cs(card.fd(), &in, &out), -EPERM);
}

TEST_F(emu, hooks_refuse_what_is_no_open_card)
{
    hlthunk_emu_counters counters{};
    for (int fd : {-1, 0, 70000}) {
        EXPECT_EQ(api().hlthunk_emu_get_counters(fd, &counters), -EBADF);
        EXPECT_EQ(api().hlthunk_emu_pause(fd, true), -EBADF);
    }
    const int control = hl().hlthunk_open_control(0, nullptr);
    EXPECT_EQ(api().hlthunk_emu_get_counters(control, &counters), -EBADF);
    EXPECT_EQ(api().hlthunk_emu_pause(control, true), -EBADF);
    EXPECT_EQ(hl().hlthunk_close(control), 0);
}

TEST_F(emu, counters_start_at_zero_with_every_open)
{
    const uint64_t va = card.allocate_mapped(1);
    EXPECT_EQ(card.copy(edma0, va, va + 64, 64), completed);
    EXPECT_GT(card.counters().jobs, 0u);
    close_card(card);

    own_card again;
    const hlthunk_emu_counters fresh = again.counters();
    EXPECT_TRUE(all_bytes_are(&fresh, sizeof(fresh), 0));
}

} // namespace
