/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Puts of gaudi_ipc to device memory of another process, by size, beside memcpy
 * of the same bytes (bench_uct.cc).
 */
#include "ipc_peer.h"
#include "session.h"

#include <benchmark/benchmark.h>

#include <vector>

namespace {

using gaudi::bench::ipc_peer;
using gaudi::bench::session;

void put(benchmark::State &state, void *from)
{
    ipc_peer &peer  = ipc_peer::instance();
    const auto size = static_cast<size_t>(state.range(0));
    peer.put_zcopy(from, size); /* the first one touches and maps the memory */
    for (auto _ : state) {
        peer.put_zcopy(from, size);
    }
    state.SetBytesProcessed(state.iterations() * state.range(0));
}

/* Nobody registers it: the first put does. */
void ipc_put_zcopy_from_host(benchmark::State &state)
{
    (void)session::instance(); /* gaudi_copy's memory domain */
    std::vector<char> host(static_cast<size_t>(state.range(0)), 1);
    put(state, host.data());
}

void ipc_put_zcopy_from_device(benchmark::State &state)
{
    put(state, reinterpret_cast<void *>(session::instance().remote()));
}

} // namespace

BENCHMARK(ipc_put_zcopy_from_host)
    ->RangeMultiplier(4)
    ->Range(64, session::max_size);
BENCHMARK(ipc_put_zcopy_from_device)
    ->RangeMultiplier(4)
    ->Range(64, session::max_size);
