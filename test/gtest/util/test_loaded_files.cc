/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/process.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <set>

#include <dlfcn.h>

namespace gaudi::test {

TEST(loaded_files, are_the_program_and_its_libraries)
{
    const auto files = util::loaded_files();
    EXPECT_THAT(files, ::testing::Contains(
                           std::filesystem::read_symlink("/proc/self/exe")));
    Dl_info info;
    ASSERT_NE(0, dladdr(reinterpret_cast<void *>(&dlopen), &info));
    EXPECT_THAT(
        files, ::testing::Contains(std::filesystem::canonical(info.dli_fname)));
}

TEST(loaded_files, are_told_once_each)
{
    const auto files = util::loaded_files();
    EXPECT_EQ(files.size(), std::set(files.begin(), files.end()).size());
}

} // namespace gaudi::test
