/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/cards/json_text.h"
#include "hlthunk_shim/cards/mapping_table.h"

#include "common/scratch.h"

#include <gmock/gmock.h>

#include <sys/stat.h>

namespace gaudi::shim {

using ::testing::HasSubstr;

namespace {

std::string error_of(const std::string &json)
{
    const mapping_table table = parse_mapping_table(json);
    EXPECT_EQ(table.error.empty(), !table.entries.empty() || json == "[]");
    return table.error;
}

using errors = std::vector<std::pair<std::string, std::string>>;

/* Texts, and what is wrong with each. */
void expect(const errors &cases)
{
    for (const auto &[json, error] : cases) {
        EXPECT_EQ(error, error_of(json)) << json;
    }
}

/* An entry with one member replaced. */
std::string with(const std::string &name, const std::string &value)
{
    std::string text = "{";
    for (const auto &[member, usual] :
         {std::pair<std::string, std::string>{"index", "1"},
          {"module_id", "2"},
          {"bus_id", "\"0000:1a:00.0\""}}) {
        if ((member != name) || !value.empty()) {
            text += ((text.size() > 1) ? ",\"" : "\"") + member +
                    "\":" + ((member == name) ? value : usual);
        }
    }
    return text + "}";
}

/* The table of such an entry. */
std::string table_with(const std::string &name, const std::string &value)
{
    return "[" + with(name, value) + "]";
}

} // namespace

TEST(mapping_table, keeps_order_and_gaps)
{
    const mapping_table table = parse_mapping_table(
        R"( [{"index": 7, "module_id": 0, "bus_id": "0000:cd:00.0"},
             {"bus_id": "B3:00.0", "index": 2, "module_id": 5, "uuid": [1]},
             {"index": 3, "module_id": 1, "bus_id": "0001:1A:00.0"}] )");
    EXPECT_EQ("", table.error);
    ASSERT_EQ(3u, table.entries.size());
    EXPECT_EQ(7u, table.entries[0].index);
    EXPECT_EQ(0u, table.entries[0].module_id);
    EXPECT_EQ("0000:cd:00.0", table.entries[0].bus_id);
    EXPECT_EQ(2u, table.entries[1].index);
    EXPECT_EQ(5u, table.entries[1].module_id);
    EXPECT_EQ("0000:b3:00.0", table.entries[1].bus_id);
    EXPECT_EQ("0001:1a:00.0", table.entries[2].bus_id);
}

TEST(mapping_table, may_be_empty)
{
    EXPECT_EQ("", error_of("[]"));
}

TEST(mapping_table, says_where_the_text_is_no_json)
{
    expect({{"", "near line 1, column 1: this is not JSON"},
            {"[", "near line 1, column 2: this is not JSON"},
            {"[{\"index\": 1,\n\"module_id\":\n 2;\n}]",
             "near line 3, column 3: this is not JSON"},
            {"[]\n  []", "near line 2, column 3: this is not JSON"},
            {"[{\"index}]", "near line 1, column 4: this is not JSON"},
            {{"[]\n \0x", 6}, "line 2, column 2: a zero byte"}});
}

TEST(mapping_table, survives_deep_nesting)
{
    EXPECT_THAT(error_of(std::string(60000, '[')),
                HasSubstr("this is not JSON"));
    EXPECT_EQ("entry 1: it is an array, not an object",
              error_of(std::string(500, '[') + std::string(500, ']')));
}

TEST(mapping_table, has_to_be_an_array_of_objects)
{
    expect({{with("", ""), "it is an object, not an array of objects"},
            {"null", "it is null, not an array of objects"},
            {"[3]", "entry 1: it is a number, not an object"},
            {"[" + with("", "") + ",\"x\"]",
             "entry 2: it is a string, not an object"}});
}

TEST(mapping_table, names_the_member_that_is_missing_or_there_twice)
{
    for (const char *name : {"index", "module_id", "bus_id"}) {
        EXPECT_EQ(std::string("entry 1: ") + name + " is missing",
                  error_of(table_with(name, "")));
    }
    EXPECT_EQ("entry 1: index is there twice",
              error_of(table_with("index", "1, \"index\": 1")));
    EXPECT_EQ("entry 1: index is missing",
              error_of(R"([{"Index":1,"module_id":2,"bus_id":"1a:00.0"}])"));
}

TEST(mapping_table, names_the_member_of_the_wrong_type)
{
    expect({{table_with("index", "\"1\""),
             "entry 1: index is a string, not a number"},
            {table_with("module_id", "null"),
             "entry 1: module_id is null, not a number"},
            {table_with("module_id", "true"),
             "entry 1: module_id is a truth value, not a number"},
            {table_with("bus_id", "19"),
             "entry 1: bus_id is a number, not a string"}});
}

TEST(mapping_table, refuses_numbers_that_count_nothing)
{
    const std::string expected = ", not an integer from 0 to 9999";
    for (const auto &[given, shown] :
         {std::pair<std::string, std::string>{"-1", "-1"},
          {"0.5", "0.5"},
          {"10000", "10000"},
          {"1e300", "1e+300"},
          {"1e999", "inf"}}) {
        for (const std::string name : {"index", "module_id"}) {
            EXPECT_EQ("entry 1: " + name + " is " + shown + expected,
                      error_of(table_with(name, given)));
        }
    }
    EXPECT_EQ(
        9999u,
        parse_mapping_table(table_with("index", "9999.0")).entries.at(0).index);
}

TEST(mapping_table, refuses_what_is_no_bus_id)
{
    for (const char *wrong :
         {"", "0000:19:00", "0000:19:00.0 ", "000g:19:00.0", "0000-19:00.0",
          "19:00,0", "00000:19:00.0", "0x19:00.0"}) {
        const std::string text = wrong;
        EXPECT_EQ("entry 1: bus_id is '" + text +
                      "', not a bus id like 0000:19:00.0",
                  error_of(table_with("bus_id", "\"" + text + "\"")));
    }
    EXPECT_THAT(error_of(table_with(
                    "bus_id", "\"\\u001b\\n" + std::string(100, 'x') + "\"")),
                HasSubstr("bus_id is '??xxx"));
}

TEST(mapping_table, names_both_entries_of_a_duplicate)
{
    const std::string first = "[" + with("", "") + ",";
    expect({{first + R"({"index":1,"module_id":3,"bus_id":"b3:00.0"}])",
             "entry 2: index 1 is entry 1's already"},
            {first + R"({"index":0,"module_id":2,"bus_id":"b3:00.0"}])",
             "entry 2: module_id 2 is entry 1's already"},
            {first + R"({"index":0,"module_id":3,"bus_id":"1A:00.0"}])",
             "entry 2: bus_id 0000:1a:00.0 is entry 1's already"}});
}

TEST(mapping_table, is_bounded)
{
    EXPECT_EQ("it is larger than 65536 bytes",
              error_of(std::string(max_json_bytes + 1, ' ')));
    std::string many = "[";
    for (unsigned i = 0; i <= max_mapping_entries; ++i) {
        char entry[80];
        std::snprintf(
            entry, sizeof(entry),
            R"(%s{"index":%u,"module_id":%u,"bus_id":"%04x:19:00.0"})",
            (i > 0) ? "," : "", i, i, i);
        many += entry;
    }
    EXPECT_EQ("entry 65: there are more than 64", error_of(many + "]"));
}

TEST(mapping_table, is_read_from_a_file_or_the_value_itself)
{
    const test::scratch_directory files;
    const std::string text = "[" + with("", "") + "]\n";
    for (const std::string &value :
         {text, " \n" + text, files.file("table", text)}) {
        const mapping_table table = read_mapping_table(value);
        EXPECT_EQ("", table.error);
        EXPECT_EQ(1u, table.entries.size());
    }
}

TEST(mapping_table, says_what_is_wrong_with_its_file)
{
    const test::scratch_directory files;
    const auto error = [](const std::string &value) {
        return read_mapping_table(value).error;
    };
    EXPECT_EQ("the file cannot be opened: No such file or directory",
              error(files.path("none")));
    EXPECT_EQ("the file cannot be opened: No such file or directory",
              error("   "));
    EXPECT_EQ("it is not a regular file", error(files.path(".")));
    EXPECT_EQ("it is not a regular file", error("/dev/zero"));
    ASSERT_EQ(0, mkfifo(files.path("pipe").c_str(), 0600));
    EXPECT_EQ("it is not a regular file", error(files.path("pipe")));
    EXPECT_EQ("it is larger than 65536 bytes",
              error(files.file("large", std::string(1 << 20, ' '))));
    EXPECT_EQ("near line 2, column 1: this is not JSON",
              error(files.file("broken", "[\n")));
}

} // namespace gaudi::shim
