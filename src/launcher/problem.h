/**
 * Something that stands in the way, as users are told of it.
 */
#pragma once

#include <string>
#include <vector>

namespace launcher {

struct problem {
    std::string what; /**< is missing or wrong; one line */
    std::string mend; /**< what to do about it; one line */
};

using problems = std::vector<problem>;

} // namespace launcher
