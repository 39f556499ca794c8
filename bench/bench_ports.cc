/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Short puts to another process's card over its ports, in time of the CPU that
 * posts them, beside put_short of gaudi_copy, which is over when it returns.
 */
#include "ipc_peer.h"
#include "session.h"

#include <benchmark/benchmark.h>

#include <ctime>

namespace {

using gaudi::bench::ipc_peer;
using gaudi::bench::session;

constexpr size_t size    = 8;
constexpr unsigned batch = 64;

double cpu_seconds()
{
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) +
           static_cast<double>(now.tv_nsec) * 1e-9;
}

/* Measure many of them, but not what comes after. */
template <typename Put, typename After>
void measure(benchmark::State &state, Put &&put, After &&after)
{
    for (auto _ : state) {
        const double start = cpu_seconds();
        for (unsigned i = 0; i < batch; ++i) {
            put();
        }
        state.SetIterationTime((cpu_seconds() - start) / batch);
        after();
    }
}

void post_over_ports(benchmark::State &state)
{
    ipc_peer &by = ipc_peer::instance();
    auto *memory = reinterpret_cast<char *>(session::instance().remote());
    by.put_zcopy(memory, size); /* connects */
    measure(
        state, [&] { by.begin_zcopy(uct_ep_put_zcopy, memory, size, 0); },
        [&] { by.complete(); });
}

void cpu_of_put_short(benchmark::State &state)
{
    session &by         = session::instance();
    const uint64_t word = 1;
    measure(
        state,
        [&] {
            (void)uct_ep_put_short(by.ep, &word, size, by.remote(),
                                   UCT_INVALID_RKEY);
        },
        [] {});
}

} // namespace

BENCHMARK(post_over_ports)->UseManualTime()->Iterations(500);
BENCHMARK(cpu_of_put_short)->UseManualTime()->Iterations(500);
