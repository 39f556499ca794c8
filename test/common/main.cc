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
          "HLTHUNK_EMU_ASIC", "HLTHUNK_EMU_LOG"}) {
        unsetenv(name);
    }
    const std::string node = "gtest-" + std::to_string(getpid());
    setenv("HLTHUNK_EMU_NODE", node.c_str(), 1);
}

} // namespace

int main(int argc, char **argv)
{
    if (gaudi::test::is_child(argc, argv)) {
        return gaudi::test::run_as_child(argv);
    }
    prepare_environment();
    ::testing::InitGoogleMock(&argc, argv);
    return RUN_ALL_TESTS();
}
