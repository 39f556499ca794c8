/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/text.h"

#include "util/unique_fd.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdlib>

#include <fcntl.h>

namespace gaudi::util {

std::string to_printable(std::string text)
{
    /* Bytes from 0x80 on are letters of some other script. */
    for (char &letter : text) {
        const auto code = static_cast<unsigned char>(letter);
        if ((code < ' ') || (code == 0x7f)) {
            letter = '?';
        }
    }
    return text;
}

std::optional<unsigned> parse_number(std::string_view text)
{
    unsigned value    = 0;
    const char *end   = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    return ((parsed.ec == std::errc()) && (parsed.ptr == end))
               ? std::optional(value)
               : std::nullopt;
}

std::vector<std::string> split(std::string_view text, char separator)
{
    constexpr std::string_view blanks = " \t";
    std::vector<std::string> items;
    for (size_t start = 0; start <= text.size();) {
        const size_t end = std::min(text.find(separator, start), text.size());
        std::string_view item = text.substr(start, end - start);
        item.remove_prefix(
            std::min(item.find_first_not_of(blanks), item.size()));
        item = item.substr(0, item.find_last_not_of(blanks) + 1);
        items.emplace_back(item);
        start = end + 1;
    }
    return items;
}

std::optional<unsigned> number_behind(std::string_view prefix,
                                      std::string_view name)
{
    return name.starts_with(prefix) ? parse_number(name.substr(prefix.size()))
                                    : std::nullopt;
}

std::string first_line(const std::filesystem::path &file)
{
    char text[4096];
    const unique_fd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC));
    const ssize_t length = fd ? read(fd.get(), text, sizeof(text)) : 0;
    const std::string_view all(text,
                               (length > 0) ? static_cast<size_t>(length) : 0);
    return std::string(all.substr(0, all.find('\n')));
}

std::filesystem::path real_path(const std::filesystem::path &file)
{
    char path[PATH_MAX];
    return (realpath(file.c_str(), path) != nullptr) ? path : "";
}

std::vector<std::filesystem::path>
list_folder(const std::filesystem::path &folder)
{
    std::vector<std::filesystem::path> entries;
    std::error_code error;
    for (std::filesystem::directory_iterator entry(folder, error), end;
         !error && (entry != end); entry.increment(error)) {
        entries.push_back(entry->path());
    }
    return entries;
}

} // namespace gaudi::util
