/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/discovery/json_text.h"

#include "util/unique_fd.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::shim {

namespace {

/* "line 2, column 7" of an offset; both count from 1, columns in bytes. */
std::string place_of(const std::string &text, size_t offset)
{
    offset                  = std::min(offset, text.size());
    const std::string start = text.substr(0, offset);
    const auto lines        = std::count(start.begin(), start.end(), '\n');
    const size_t last       = start.rfind('\n');
    const size_t column     = (last == start.npos) ? offset : offset - last - 1;
    return "line " + std::to_string(lines + 1) + ", column " +
           std::to_string(column + 1);
}

json_value refuse(const std::string &why, std::string &why_p)
{
    why_p = why;
    return {nullptr, cJSON_Delete};
}

} // namespace

json_value parse_json(const std::string &text, std::string &why_p)
{
    if (text.size() > max_json_bytes) {
        return refuse("it is larger than " + std::to_string(max_json_bytes) +
                          " bytes",
                      why_p);
    }
    /* The parser would take it for the end. */
    const size_t zero = text.find('\0');
    if (zero != text.npos) {
        return refuse(place_of(text, zero) + ": a zero byte", why_p);
    }
    const char *end = text.c_str();
    json_value root(
        cJSON_ParseWithLengthOpts(text.c_str(), text.size() + 1, &end, 1),
        cJSON_Delete);
    if (root == nullptr) {
        /* Where a string should be, the parser points one byte behind. */
        return refuse(
            "near " + place_of(text, static_cast<size_t>(end - text.c_str())) +
                ": this is not JSON",
            why_p);
    }
    return root;
}

std::string read_json_file(const std::string &path, std::string &text_p)
{
    /* Not blocking: the path may be a pipe's. */
    const util::unique_fd fd(
        ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd) {
        return std::string("the file cannot be opened: ") +
               std::strerror(errno);
    }
    struct stat info;
    if ((fstat(fd.get(), &info) != 0) || !S_ISREG(info.st_mode)) {
        return "it is not a regular file";
    }
    std::array<char, 4096> part;
    ssize_t length = 0;
    while ((text_p.size() <= max_json_bytes) &&
           ((length = ::read(fd.get(), part.data(), part.size())) > 0)) {
        text_p.append(part.data(), static_cast<size_t>(length));
    }
    return (length < 0)
               ? std::string("the file cannot be read: ") + std::strerror(errno)
               : "";
}

const char *json_kind(const cJSON &value)
{
    switch (value.type & 0xff) {
    case cJSON_False:
    case cJSON_True:
        return "a truth value";
    case cJSON_NULL:
        return "null";
    case cJSON_Number:
        return "a number";
    case cJSON_String:
        return "a string";
    case cJSON_Array:
        return "an array";
    default:
        return "an object";
    }
}

const cJSON *json_members::member(const char *name, int type,
                                  const char *wanted)
{
    const cJSON *found = nullptr;
    const cJSON *each  = nullptr;
    cJSON_ArrayForEach(each, object_)
    {
        if ((each->string == nullptr) ||
            (std::strcmp(each->string, name) != 0)) {
            continue;
        }
        if (found != nullptr) {
            fail(name, "is there twice");
            return nullptr;
        }
        found = each;
    }
    if (found == nullptr) {
        fail(name, "is missing");
    } else if ((found->type & 0xff) != type) {
        fail(name, std::string("is ") + json_kind(*found) + ", not " + wanted);
        return nullptr;
    }
    return found;
}

int json_members::integer(const char *name, int least, int most)
{
    const cJSON *value = member(name, cJSON_Number, "a number");
    if (value == nullptr) {
        return 0;
    }
    const double given = value->valuedouble;
    if (!(given >= least) || (given > most) || (given != std::floor(given))) {
        char text[80];
        std::snprintf(text, sizeof(text),
                      "is %.15g, not an integer from %d to %d", given, least,
                      most);
        fail(name, text);
        return 0;
    }
    return static_cast<int>(given);
}

std::string json_members::text(const char *name)
{
    const cJSON *value = member(name, cJSON_String, "a string");
    return (value != nullptr) ? value->valuestring : "";
}

const cJSON *json_members::array(const char *name, int least, int most)
{
    const cJSON *value = member(name, cJSON_Array, "an array");
    const int count    = (value != nullptr) ? cJSON_GetArraySize(value) : least;
    if ((count < least) || (count > most)) {
        fail(name, "has " + std::to_string(count) + " items, not " +
                       std::to_string(least) + " to " + std::to_string(most));
        return nullptr;
    }
    return value;
}

void json_members::fail(const char *name, const std::string &why)
{
    if (error_.empty()) {
        error_ = std::string(name) + " " + why;
    }
}

} // namespace gaudi::shim
