/* SPDX-License-Identifier: BSD-3-Clause */
/* Loading driver libraries, whole ones and others. */
#include "hlthunk_shim/hlthunk/library.h"

#include "common/emulator.h"

#include <gmock/gmock.h>

using gaudi::shim::library;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

constexpr const char *stubs = GAUDI_BUILD_DIR "/lib/stubs/";

TEST(shim_library, loads_a_whole_one)
{
    const library lib(gaudi::test::emulator_path());
    EXPECT_TRUE(lib.usable());
    EXPECT_EQ(lib.reason(), "");
    EXPECT_EQ(lib.path(), gaudi::test::emulator_path());
#define HLTHUNK_SYMBOL(_need, _result, _name, _parameters)                     \
    EXPECT_NE(lib._name, nullptr) << #_name;
#include "hlthunk_shim/hlthunk/symbols.def"
#undef HLTHUNK_SYMBOL
}

TEST(shim_library, says_that_a_file_is_no_library)
{
    const library lib("/proc/self/status");
    EXPECT_FALSE(lib.usable());
    EXPECT_THAT(lib.reason(), HasSubstr("/proc/self/status"));
}

TEST(shim_library, names_every_required_symbol_that_is_missing)
{
    const std::string path =
        std::string(stubs) + "libhlthunk_stub_no_required.so";
    const library lib(path);
    EXPECT_FALSE(lib.usable());
    for (const char *each : {"hlthunk_memory_unmap", "hlthunk_wait_for_cs"}) {
        EXPECT_THAT(lib.reason(), HasSubstr(each));
    }
    EXPECT_NE(lib.find("hlthunk_open"), nullptr) << "it is loaded";
}

TEST(shim_library, is_usable_without_optional_symbols)
{
    const library lib(std::string(stubs) + "libhlthunk_stub_no_optional.so");
    EXPECT_TRUE(lib.usable()) << lib.reason();
    EXPECT_EQ(lib.hlthunk_get_dram_usage, nullptr);
    EXPECT_EQ(lib.hlthunk_device_mapped_memory_export_dmabuf_fd, nullptr);
    EXPECT_NE(lib.hlthunk_get_device_count, nullptr);
    EXPECT_NE(lib.hlthunk_open, nullptr);
}

} // namespace
