/* What UCX_GAUDI_DRIVER means. */
#include "hlthunk_shim/cards/driver.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include <stdlib.h>

namespace {

namespace fs = std::filesystem;

using gaudi::shim::choose_driver;
using outcome = gaudi::shim::driver_choice::outcome;

class driver_choice : public ::testing::Test {
protected:
    driver_choice()
    {
        std::string name =
            (fs::temp_directory_path() / "gaudi-dev-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) {
            throw std::runtime_error("mkdtemp failed");
        }
        dev = name;
    }
    ~driver_choice() override
    {
        std::error_code ignored;
        fs::remove_all(dev, ignored);
    }

    void make_node(const std::string &name) const
    {
        fs::create_directories((dev / name).parent_path());
        std::ofstream file(dev / name);
    }

    /* The library's path, or "none", or "invalid". */
    [[nodiscard]] std::string choose(const std::string &text) const
    {
        const auto choice = choose_driver(text, "/the/module", dev.string());
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

    fs::path dev;
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
