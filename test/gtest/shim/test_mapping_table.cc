/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/discovery/json_text.h"
#include "hlthunk_shim/discovery/mapping_table.h"

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

TEST(mapping_table, says_what_is_wrong_and_where)
{
    const std::string first = "[" + with("", "") + ",";
    const std::pair<std::string, const char *> wrong[] = {
        {"", "line 1, column 1"},
        {"[{\"index\": 1,\n\"module_id\":\n 2;\n}]", "line 3, column 3"},
        {"[]\n  []", "line 2, column 3"},
        {{"[]\n \0x", 6}, "line 2, column 2"},
        {std::string(60000, '['), "JSON"},
        {std::string(500, '[') + std::string(500, ']'), "entry 1"},
        {std::string(max_json_bytes + 1, ' '), "65536"},
        {with("", ""), "array of objects"},
        {"null", "array of objects"},
        {"[3]", "entry 1"},
        {first + "\"x\"]", "entry 2"},
        {table_with("index", ""), "entry 1: index"},
        {table_with("module_id", ""), "entry 1: module_id"},
        {table_with("bus_id", ""), "entry 1: bus_id"},
        {table_with("index", "1, \"index\": 1"), "entry 1: index"},
        {table_with("index", "\"1\""), "entry 1: index"},
        {table_with("module_id", "null"), "entry 1: module_id"},
        {table_with("bus_id", "19"), "entry 1: bus_id"},
        {table_with("index", "-1"), "-1"},
        {table_with("module_id", "0.5"), "0.5"},
        {table_with("index", "10000"), "10000"},
        {table_with("index", "1e999"), "inf"},
        {table_with("bus_id", "\"\""), "''"},
        {table_with("bus_id", "\"0000:19:00.0 \""), "'0000:19:00.0 '"},
        {table_with("bus_id", "\"000g:19:00.0\""), "'000g:19:00.0'"},
        {table_with("bus_id", "\"00000:19:00.0\""), "'00000:19:00.0'"},
        {table_with("bus_id", "\"\\u001b\\nx\""), "'??x'"},
        {first + R"({"index":1,"module_id":3,"bus_id":"b3:00.0"}])",
         "entry 2: index 1"},
        {first + R"({"index":0,"module_id":2,"bus_id":"b3:00.0"}])",
         "entry 2: module_id 2"},
        {first + R"({"index":0,"module_id":3,"bus_id":"1A:00.0"}])",
         "entry 2: bus_id 0000:1a:00.0"}};
    for (const auto &[json, why] : wrong) {
        EXPECT_THAT(error_of(json), HasSubstr(why)) << json.substr(0, 80);
    }
    EXPECT_EQ("", error_of("[]"));
    EXPECT_EQ("", error_of(table_with("index", "9999.0")));
}

TEST(mapping_table, is_bounded)
{
    std::string many = "[";
    for (unsigned i = 0; i <= max_mapping_entries; ++i) {
        char entry[80];
        std::snprintf(
            entry, sizeof(entry),
            R"(%s{"index":%u,"module_id":%u,"bus_id":"%04x:19:00.0"})",
            (i > 0) ? "," : "", i, i, i);
        many += entry;
    }
    EXPECT_THAT(error_of(many + "]"), HasSubstr("64"));
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
    ASSERT_EQ(0, mkfifo(files.path("pipe").c_str(), 0600));
    for (const auto &[value, why] :
         {std::pair<std::string, const char *>{files.path("none"), "No such"},
          {"   ", "No such"},
          {files.path("."), "regular file"},
          {"/dev/zero", "regular file"},
          {files.path("pipe"), "regular file"},
          {files.file("large", std::string(1 << 20, ' ')), "65536"},
          {files.file("broken", "[\n"), "line 2, column 1"}}) {
        EXPECT_THAT(read_mapping_table(value).error, HasSubstr(why)) << value;
    }
}

} // namespace gaudi::shim
