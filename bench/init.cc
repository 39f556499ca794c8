/* SPDX-License-Identifier: BSD-3-Clause */
/* The time that UCX takes to start and to end in this process, once: prints
 * nanoseconds. scripts/bench runs it with the module and without. */
#include <chrono>
#include <cstdint>
#include <cstdio>

#include <ucp/api/ucp.h>

namespace {

bool start_and_end()
{
    ucp_config_t *config;
    if (ucp_config_read(nullptr, nullptr, &config) != UCS_OK) {
        return false;
    }
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features =
        UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_STREAM;
    ucp_context_h context;
    const ucs_status_t status = ucp_init(&params, config, &context);
    ucp_config_release(config);
    if (status == UCS_OK) {
        ucp_cleanup(context);
    }
    return status == UCS_OK;
}

} // namespace

int main()
{
    using clock      = std::chrono::steady_clock;
    const auto begin = clock::now();
    if (!start_and_end()) {
        std::fprintf(stderr, "UCX does not start\n");
        return 1;
    }
    const std::chrono::nanoseconds taken = clock::now() - begin;
    std::printf("%lld\n", static_cast<long long>(taken.count()));
    return 0;
}
