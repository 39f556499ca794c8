/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * An eager message from Gaudi memory through UCP, beside the calls of UCT that
 * it consists of.
 *
 * UCP 1.13 sends it as one uct_ep_am_bcopy, and fetches the bytes by one
 * uct_ep_get_short from inside that call, where the transport wants them
 * packed.
 */
#include "session.h"

#include <benchmark/benchmark.h>

#include <cstring>

extern "C" {
#include <ucp/api/ucp.h>
}

namespace {

using gaudi::bench::require;
using gaudi::bench::session;
using gaudi::bench::transport;

constexpr size_t max_size = 4096;

/* The message as UCP packs it has its tag before it. */
constexpr size_t header_size = sizeof(ucp_tag_t);

/* --- reference ------------------------------------------------------------ */

struct message {
    const session *source;
    unsigned size;
    char received[max_size];
};

size_t pack(void *to, void *arg)
{
    const auto *what = static_cast<const message *>(arg);
    char *data       = static_cast<char *>(to) + header_size;
    std::memset(to, 0, header_size);
    require(uct_ep_get_short(what->source->ep, data, what->size,
                             what->source->remote(), UCT_INVALID_RKEY),
            "get_short");
    return header_size + what->size;
}

ucs_status_t unpack(void *arg, void *data, size_t length, unsigned)
{
    std::memcpy(static_cast<message *>(arg)->received,
                static_cast<char *>(data) + header_size, length - header_size);
    return UCS_OK;
}

void reference_am_bcopy_of_get_short(benchmark::State &state)
{
    constexpr uint8_t id = 0;
    static const transport self("self", "self", "memory");
    message what{
        &session::instance(), static_cast<unsigned>(state.range(0)), {}};

    require(uct_iface_set_am_handler(self.iface, id, unpack, &what, 0),
            "set_am_handler");
    for (auto _ : state) {
        require(uct_ep_am_bcopy(self.ep, id, pack, &what, 0) > 0, "am_bcopy");
        benchmark::DoNotOptimize(what.received);
    }
    require(uct_iface_set_am_handler(self.iface, id, nullptr, nullptr, 0),
            "set_am_handler");
}

/* --- UCP ------------------------------------------------------------------ */

/* A worker with an endpoint to itself. Never closed. */
struct ucp_session {
    ucp_context_h context = nullptr;
    ucp_worker_h worker   = nullptr;
    ucp_ep_h ep           = nullptr;

    ucp_session()
    {
        ucp_config_t *config;
        require(ucp_config_read(nullptr, nullptr, &config), "config_read");
        require(ucp_config_modify(config, "TLS", "gaudi_cpy,self"), "TLS");
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features   = UCP_FEATURE_TAG;
        require(ucp_init(&params, config, &context), "ucp_init");
        ucp_config_release(config);

        const ucp_worker_params_t worker_params{};
        require(ucp_worker_create(context, &worker_params, &worker),
                "worker_create");
        ucp_address_t *address;
        size_t length;
        require(ucp_worker_get_address(worker, &address, &length), "address");
        ucp_ep_params_t ep_params{};
        ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        ep_params.address    = address;
        require(ucp_ep_create(worker, &ep_params, &ep), "ucp_ep_create");
        ucp_worker_release_address(worker, address);
    }

    void finish(ucs_status_ptr_t request) const
    {
        require(!UCS_PTR_IS_ERR(request), "a message");
        if (request == nullptr) {
            return;
        }
        while (ucp_request_check_status(request) == UCS_INPROGRESS) {
            ucp_worker_progress(worker);
        }
        require(ucp_request_check_status(request), "a message");
        ucp_request_free(request);
    }
};

/* To the own worker, which waits for it with host memory. */
void ucp_eager_send(benchmark::State &state)
{
    static const ucp_session ucp;
    const session &memory = session::instance();
    const auto size       = static_cast<size_t>(state.range(0));
    const ucp_request_param_t defaults{};
    auto *source = reinterpret_cast<const char *>(memory.remote());
    char received[max_size];

    for (auto _ : state) {
        ucs_status_ptr_t coming =
            ucp_tag_recv_nbx(ucp.worker, received, size, 0, 0, &defaults);
        ucp.finish(ucp_tag_send_nbx(ucp.ep, source, size, 0, &defaults));
        ucp.finish(coming);
        benchmark::DoNotOptimize(received);
    }
}

} // namespace

BENCHMARK(reference_am_bcopy_of_get_short)->Arg(8);
BENCHMARK(ucp_eager_send)->Arg(8);
