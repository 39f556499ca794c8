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

/** While one lives, lines of info level are collected, too. */
class info_logs {
public:
    info_logs();
    ~info_logs();
    info_logs(const info_logs &)            = delete;
    info_logs &operator=(const info_logs &) = delete;

private:
    const ucs_log_level_t before_;
};

} // namespace gaudi::test
