/* SPDX-License-Identifier: BSD-3-Clause */
/* What UCX_GAUDI_DRIVER means. */
#include "hlthunk_shim/discovery/driver.h"

#include "common/scratch.h"

#include <gtest/gtest.h>

namespace {

namespace fs = std::filesystem;

using gaudi::shim::choose_driver;
using outcome = gaudi::shim::driver_choice::outcome;

class driver_choice : public ::testing::Test {
protected:
    void make_node(const std::string &name) const
    {
        fs::create_directories(fs::path(dev.path(name)).parent_path());
        (void)dev.file(name, "");
    }

    /* The library's path, or "none", or "invalid". */
    [[nodiscard]] std::string choose(const std::string &text) const
    {
        const auto choice = choose_driver(text, "/the/module", dev.path(""));
        switch (choice.result) {
        case outcome::library:
            return choice.path;
        case outcome::no_card:
            return "none";
        case outcome::invalid:
            break;
        }
        return "invalid";
    }

    gaudi::test::scratch_directory dev;
};

} // namespace

TEST_F(driver_choice, takes_the_vendors_library_only_where_a_card_is)
{
    EXPECT_EQ("none", choose("auto"));
    make_node("accel/accel_controlD0");
    make_node("hlog");
    EXPECT_EQ("none", choose("auto"));
    make_node("accel/accel0");
    EXPECT_EQ("libhl-thunk.so", choose("auto"));
}

TEST_F(driver_choice, knows_the_nodes_of_older_kernels)
{
    make_node("hl0");
    EXPECT_EQ("libhl-thunk.so", choose("auto"));
}

TEST_F(driver_choice, takes_what_is_asked_for_with_or_without_a_card)
{
    EXPECT_EQ("libhl-thunk.so", choose("hlthunk"));
    EXPECT_EQ("/the/module/hlthunk-emu/libhl-thunk.so", choose("emulator"));
    EXPECT_EQ("/a/b.so", choose("/a/b.so"));
    EXPECT_EQ("./b.so", choose("./b.so"));
}

TEST_F(driver_choice, refuses_what_means_nothing)
{
    for (const char *text :
         {"", "Auto", "auto ", "emulate", "libhl-thunk.so"}) {
        EXPECT_EQ("invalid", choose(text)) << text;
    }
}
