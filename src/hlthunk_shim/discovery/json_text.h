/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * JSON of settings, from a variable or a file: what is wrong with it is told by
 * its place. Any thread. Must not know UCX: fuzz targets are built of it.
 */
#pragma once

#include <memory>
#include <string>

#include <cjson/cJSON.h>

namespace gaudi::shim {

/** More than any setting has, bytes. */
inline constexpr size_t max_json_bytes = size_t{64} * 1024;

using json_value = std::unique_ptr<cJSON, decltype(&cJSON_Delete)>;

/** @param why_p  Set when nullptr is returned. */
json_value parse_json(const std::string &text, std::string &why_p);

/** Read a regular file, of which @ref parse_json refuses what is too large.
 *  @return What is wrong; empty: nothing. */
std::string read_json_file(const std::string &path, std::string &text_p);

/** As in "a number". */
const char *json_kind(const cJSON &value);

/** Reads the members of an object; each has to be there once. */
class json_members {
public:
    explicit json_members(const cJSON *object) : object_(object) {}

    /** @return 0 or an empty text for one that is wrong. */
    int integer(const char *name, int least, int most);
    std::string text(const char *name);
    /** @param least,most  Of its items. @return nullptr for one that is wrong.
     */
    const cJSON *array(const char *name, int least, int most);

    void fail(const char *name, const std::string &why);

    /** The first fault; empty: none. */
    [[nodiscard]] const std::string &error() const { return error_; }

private:
    const cJSON *member(const char *name, int type, const char *wanted);

    const cJSON *object_;
    std::string error_;
};

} // namespace gaudi::shim
