/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/cards/json_text.h"

#include "util/unique_fd.h"

#include <algorithm>
#include <array>
#include <cerrno>
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

} // namespace gaudi::shim
