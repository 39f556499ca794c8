#include "common/child.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <string>

#include <unistd.h>

namespace {

/* A box of our own, as the emulator makes it without settings: several test
 * programs run at a time, and a developer may have variables set. */
void prepare_environment()
{
    for (const char *name :
         {"HLTHUNK_EMU_DEVICES", "HLTHUNK_EMU_ENGINES", "HLTHUNK_EMU_HBM",
          "HLTHUNK_EMU_ASIC", "HLTHUNK_EMU_IMPORT", "HLTHUNK_EMU_LOG"}) {
        unsetenv(name);
    }
    const std::string node = "gtest-" + std::to_string(getpid());
    setenv("HLTHUNK_EMU_NODE", node.c_str(), 1);
}

} // namespace

#ifdef __SANITIZE_THREAD__
/* Forked children of a process with threads start threads of their own. */
extern "C" [[gnu::visibility("default")]] const char *__tsan_default_options()
{
    return "die_after_fork=0";
}
#endif

int main(int argc, char **argv)
{
    if (gaudi::test::is_child(argc, argv)) {
        return gaudi::test::run_as_child(argv);
    }
    prepare_environment();
    ::testing::InitGoogleMock(&argc, argv);
    return RUN_ALL_TESTS();
}
