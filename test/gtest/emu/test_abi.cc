/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library exports, and what it does with what it does not have. */
#include "gtest/emu/fixture.h"

#include "common/child.h"

#include <csignal>
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

} // namespace
