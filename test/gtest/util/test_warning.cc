#include "util/warning.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace gaudi::util {

namespace {

std::vector<std::string> *told = nullptr;

class warnings : public ::testing::Test {
protected:
    warnings() { told = &told_; }
    ~warnings() override { set_warning_handler(nullptr); }

    std::vector<std::string> told_;
};

void note(const char *text)
{
    told->emplace_back(text);
}

} // namespace

TEST_F(warnings, a_line_is_told_once_where_that_is_enough)
{
    set_warning_handler(note);
    for (const char *card : {"one", "other", "one"}) {
        warn_once("card %s", card);
        warn("each time");
    }
    EXPECT_THAT(told_,
                ::testing::ElementsAre("card one", "each time", "card other",
                                       "each time", "each time"));
}

TEST_F(warnings, another_handler_has_heard_nothing)
{
    set_warning_handler(note);
    warn_once("once");
    set_warning_handler(note);
    warn_once("once");
    EXPECT_EQ(1u, told_.size());
    set_warning_handler(nullptr);
    set_warning_handler(note);
    warn_once("once");
    EXPECT_EQ(2u, told_.size());
}

TEST_F(warnings, too_many_different_lines_are_told_all)
{
    set_warning_handler(note);
    for (int i = 0; i < 100; ++i) {
        warn_once("line %d", i);
    }
    EXPECT_EQ(100u, told_.size());
}

} // namespace gaudi::util
