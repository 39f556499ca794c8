/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Reads a trace as its viewer does: an array of JSON without its end.
 */
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gaudi::test {

/** A copy in the row of a queue, or in that of a link. */
struct traced_slice {
    std::string card; /**< what it is called */
    std::string row;  /**< the queue, or the link */
    std::string name;
    int64_t begin = 0; /**< nanoseconds */
    int64_t end   = 0;
    std::map<std::string, std::string> arguments; /**< numbers as they are
                                                       written */

    [[nodiscard]] uint64_t bytes() const
    {
        return std::stoull(arguments.at("bytes"));
    }
};

struct trace {
    std::string wrong; /**< why it is none; empty: it is one */
    std::vector<traced_slice> copies;
    std::vector<traced_slice> ports; /**< messages, in the rows of ports */
    std::vector<traced_slice> links;
    std::vector<traced_slice> faults;
    bool is_open       = false; /**< the array has no end */
    bool has_half_line = false; /**< at the end, which is left out */

    [[nodiscard]] std::vector<traced_slice>
    copies_of(const std::string &card, const std::string &row) const;
    [[nodiscard]] std::vector<traced_slice>
    links_of(const std::string &row) const;

    /** Two slices of one row that overlap; empty when there are none. */
    [[nodiscard]] std::string overlap() const;
};

trace read_trace(const std::string &path);

} // namespace gaudi::test
