/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What UCX, and the module within it, log in this process.
 */
#pragma once

#include <ucs/config/types.h>

#include <string>
#include <vector>

namespace gaudi::test {

/** Start to collect what is logged at warning level and above; it is not
 *  printed then. */
void collect_logs();

/** What was collected, and forget it. */
std::vector<std::string> take_logs();

/** While one lives, lines down to its level are collected, too. */
class logs_down_to {
public:
    explicit logs_down_to(ucs_log_level_t level);
    ~logs_down_to();
    logs_down_to(const logs_down_to &)            = delete;
    logs_down_to &operator=(const logs_down_to &) = delete;

private:
    const ucs_log_level_t before_;
};

} // namespace gaudi::test
