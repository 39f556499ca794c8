/**
 * Where the kernel tells about this machine. Tests make other places.
 */
#pragma once

#include "util/text.h"

#include <string>

namespace launcher {

using gaudi::util::to_printable;

struct machine {
    std::string dev  = "/dev";
    std::string proc = "/proc";
    std::string sys  = "/sys";
};

/** The first word of a file; empty when it cannot be read. */
std::string read_word(const std::string &file);

} // namespace launcher
