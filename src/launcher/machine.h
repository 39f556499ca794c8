/**
 * Where the kernel tells about this machine. Tests make other places.
 */
#pragma once

#include <string>

namespace launcher {

struct machine {
    std::string dev  = "/dev";
    std::string proc = "/proc";
    std::string sys  = "/sys";
};

/** The first word of a file; empty when it cannot be read. */
std::string read_word(const std::string &file);

/** The same text with '?' for what would disturb a line. */
std::string to_printable(std::string text);

} // namespace launcher
