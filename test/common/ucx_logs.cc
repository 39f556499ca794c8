/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/ucx_logs.h"

extern "C" {
#include <config.h>
#include <ucs/debug/log.h>
}

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <utility>

namespace gaudi::test {

namespace {

std::mutex log_lock;
std::vector<std::string> logged;
std::atomic<ucs_log_level_t> collected{UCS_LOG_LEVEL_WARN};

ucs_log_func_rc_t collect(const char *, unsigned, const char *,
                          ucs_log_level_t level,
                          const ucs_log_component_config_t *,
                          const char *message, va_list arguments)
{
    if (level > collected) {
        return UCS_LOG_FUNC_RC_CONTINUE;
    }
    char text[512];
    std::vsnprintf(text, sizeof(text), message, arguments);
    std::lock_guard<std::mutex> guard(log_lock);
    logged.emplace_back(text);
    return UCS_LOG_FUNC_RC_STOP;
}

} // namespace

void collect_logs()
{
    static const bool once = [] {
        ucs_log_push_handler(collect);
        return true;
    }();
    (void)once;
}

std::vector<std::string> take_logs()
{
    std::lock_guard<std::mutex> guard(log_lock);
    return std::exchange(logged, {});
}

logs_down_to::logs_down_to(ucs_log_level_t level)
    : before_(ucs_global_opts.log_component.log_level)
{
    ucs_global_opts.log_component.log_level = level;
    collected                               = level;
}

logs_down_to::~logs_down_to()
{
    collected                               = UCS_LOG_LEVEL_WARN;
    ucs_global_opts.log_component.log_level = before_;
}

} // namespace gaudi::test
