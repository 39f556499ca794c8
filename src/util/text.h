/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Text from outside: numbers, files and folders that describe the machine, and
 * what a message can show of them. Any thread.
 */
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gaudi::util {

/** The same text with '?' for what would disturb a line. */
std::string to_printable(std::string text);

/** The number that a text is, and nothing else; -1 is none. */
std::optional<unsigned> parse_number(std::string_view text);

/** What stands between separators, without spaces around it; one empty item for
 *  an empty text. */
std::vector<std::string> split(std::string_view text, char separator = ',');

/** The N of a name "<prefix>N". */
std::optional<unsigned> number_behind(std::string_view prefix,
                                      std::string_view name);

/** Of a file; empty when it cannot be read. */
std::string first_line(const std::filesystem::path &file);

/** The same file without links; empty, after an errno, when it is not there.
 *  Not by std::filesystem, whose libstdc++ may free what libc allocated by
 *  another allocator than libc's (RTLD_DEEPBIND). */
std::filesystem::path real_path(const std::filesystem::path &file);

/** What is in a folder, as far as it can be read. */
std::vector<std::filesystem::path>
list_folder(const std::filesystem::path &folder);

} // namespace gaudi::util
