/**
 * This machine as the kernel shows it, and what of it users have to mend.
 */
#pragma once

#include "util/text.h"

#include <string>
#include <vector>

namespace launcher {

using gaudi::util::to_printable;

/** Where the kernel tells about the machine. Tests make other places. */
struct machine {
    std::string dev  = "/dev";
    std::string proc = "/proc";
    std::string sys  = "/sys";
};

/** Something that stands in the way, as users are told of it. */
struct problem {
    std::string what; /**< is missing or wrong; one line */
    std::string mend; /**< what to do about it; one line */
};

using problems = std::vector<problem>;

} // namespace launcher
