/* The example programs do what their comments say. */
#include "gtest/tools/fixture.h"

#include "gtest/tools/scratch.h"

namespace gaudi::test {

namespace {

using ::testing::HasSubstr;

constexpr char program[] = GAUDI_BUILD_DIR "/bin/uct_host_to_device";

class example_host_to_device : public tools {
protected:
    void expect_round_trip(size_t size)
    {
        std::string text(size, '\0');
        for (size_t i = 0; i < size; ++i) {
            text[i] = static_cast<char>((i * 2654435761u) >> 13);
        }
        const process_result result =
            emulated({program, files.file("data", text)});
        EXPECT_TRUE(is_quiet_success(result));
        EXPECT_THAT(result.output,
                    HasSubstr(std::to_string(size) + " bytes to gaudi0 at "));
        EXPECT_THAT(result.output, HasSubstr("(gaudi memory)"));
        EXPECT_THAT(result.output,
                    HasSubstr("the bytes that came back are the same\n"));
    }

    scratch_directory files;
};

} // namespace

TEST_F(example_host_to_device, sends_one_byte)
{
    expect_round_trip(1);
}

TEST_F(example_host_to_device, sends_a_little_more_than_a_page)
{
    expect_round_trip(4097);
}

TEST_F(example_host_to_device, sends_twenty_megabytes)
{
    expect_round_trip(20'000'000);
}

TEST_F(example_host_to_device, refuses_a_missing_file)
{
    const process_result result =
        emulated({program, files.path("no-such-file")});
    EXPECT_TRUE(exited_with(1, result));
    EXPECT_THAT(result.output,
                HasSubstr("no-such-file: No such file or directory"));
}

TEST_F(example_host_to_device, refuses_an_empty_file)
{
    const process_result result = emulated({program, files.file("empty", "")});
    EXPECT_TRUE(exited_with(1, result));
    EXPECT_THAT(result.output,
                HasSubstr("empty: not a file with something in it"));
}

TEST_F(example_host_to_device, refuses_a_directory)
{
    const process_result result = emulated({program, files.path(".")});
    EXPECT_TRUE(exited_with(1, result));
    EXPECT_THAT(result.output, HasSubstr("not a file with something in it"));
}

TEST_F(example_host_to_device, explains_its_use)
{
    const process_result result = emulated({program});
    EXPECT_TRUE(exited_with(2, result));
    EXPECT_THAT(result.output, HasSubstr("usage: "));
}

TEST_F(example_host_to_device, says_what_to_do_without_a_card)
{
    const std::string file   = files.file("data", "text");
    const arguments plain    = {program, file};
    const arguments launched = under_launcher(plain, {});
    for (const arguments &command : {plain, launched}) {
        const process_result result = run(command, with());
        EXPECT_TRUE(exited_with(1, result));
        EXPECT_THAT(result.output, HasSubstr("No Gaudi card"));
        EXPECT_THAT(result.output, HasSubstr("ucx-gaudi run [--emulate]"));
        EXPECT_EQ(0u, lines_with(result.output, "UCX  ").size())
            << result.output;
    }
}

TEST_F(example_host_to_device, ends_with_an_error_when_every_card_is_taken)
{
    /* A box of one card, which the outer program holds. */
    const std::string file  = files.file("data", "text");
    const arguments command = under_launcher(
        {GAUDI_TOOLS_DIR "/late_ucx", "hold", program, file}, {"--emulate=1"});
    const process_result result = run(command, with());
    EXPECT_TRUE(exited_with(1, result));
    EXPECT_THAT(result.output, HasSubstr("busy"));
}

} // namespace gaudi::test
