/* SPDX-License-Identifier: BSD-3-Clause */
/* How libhbl.so is found, and which ones are refused. */
#include "hlthunk_shim/ports/links.h"
#include "hlthunk_shim/ports/verbs_library.h"

#include "common/emulator.h"

#include <gmock/gmock.h>

#include <cstdlib>

namespace gaudi::test {

using namespace shim;
using ::testing::HasSubstr;

namespace {

const std::string stubs = GAUDI_BUILD_DIR "/lib/stubs/";

/* Cards of ports 0, 8 and 12. */
constexpr uint64_t enabled = 0x1101;

/* As with the vendor's driver library, where RDMA_CORE_LIB names a folder. */
class verbs : public ::testing::Test {
protected:
    void TearDown() override { unsetenv("RDMA_CORE_LIB"); }

    std::unique_ptr<verbs_library> load(const std::string &folder) const
    {
        EXPECT_EQ(setenv("RDMA_CORE_LIB", folder.c_str(), 1), 0);
        return std::make_unique<verbs_library>(vendors_);
    }

private:
    const library vendors_{stubs + "libhlthunk_stub_no_optional.so"};
};

} // namespace

TEST_F(verbs, have_plain_names_or_others)
{
    for (const char *folder : {"verbs_plain", "verbs_renamed"}) {
        const auto lib = load(stubs + folder);
        ASSERT_EQ(lib->reason(), "");
        EXPECT_EQ(lib->file(), stubs + folder + "/libhbl.so");
        EXPECT_NE(lib->hbldv_open_device, nullptr);
        EXPECT_NE(lib->ibv_get_device_list, nullptr);
        EXPECT_NE(lib->ibv_get_async_event, nullptr);
    }
}

TEST_F(verbs, that_lack_functions_are_refused_with_all_of_them)
{
    const auto lib = load(stubs + "verbs_lacking");
    EXPECT_THAT(lib->reason(), HasSubstr("hbldv_create_usr_fifo"));
    EXPECT_THAT(lib->reason(), HasSubstr("ibv_destroy_qp"));
    EXPECT_THAT(load("/none")->reason(), HasSubstr("/none/libhbl.so"));
}

TEST(ports, are_counted_by_verbs_among_those_that_are_enabled)
{
    EXPECT_EQ(verbs_port(enabled, 0), 1u);
    EXPECT_EQ(verbs_port(enabled, 8), 2u);
    EXPECT_EQ(verbs_port(enabled, 12), 3u);
    EXPECT_EQ(verbs_port(enabled, 1), 0u);
    EXPECT_EQ(verbs_port(enabled, 64), 0u);
}

} // namespace gaudi::test
