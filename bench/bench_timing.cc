/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Copies as the transports make them, for the software Gaudi with a timing
 * model: `scripts/bench` sets one that is slower than this machine, and
 * compares with what its links give. Puts and gets, copies on the card, and
 * copies between it and the card of another process, in one direction and in
 * both, one at a time and many.
 */
#include "ipc_peer.h"
#include "session.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>

namespace {

using gaudi::bench::host_buffer;
using gaudi::bench::ipc_peer;
using gaudi::bench::session;

constexpr size_t half = session::max_size / 2;

char *device_memory()
{
    return reinterpret_cast<char *>(session::instance().remote());
}

/* Measure work as a counter, nanoseconds, or a part of it. The model is a
 * bound: what else runs on the machine makes times longer, never shorter, so
 * the shortest one tells about the transports. */
template <typename Work>
void measure(benchmark::State &state, Work &&work, size_t parts = 1)
{
    using clock                       = std::chrono::steady_clock;
    std::chrono::nanoseconds shortest = std::chrono::hours(1);
    work(); /* the first time maps memory */
    for (auto _ : state) {
        const auto begin = clock::now();
        work();
        shortest =
            std::min<std::chrono::nanoseconds>(shortest, clock::now() - begin);
    }
    state.counters["shortest"] =
        static_cast<double>(shortest.count()) / static_cast<double>(parts);
}

enum ways { put = 1, get = 2, both = put | get };

/* Copy between local memory and what a transport reaches. */
template <typename Transport>
void copy(benchmark::State &state, Transport &by, char *local, ways which)
{
    const auto size = static_cast<size_t>(state.range(0));
    measure(state, [&] {
        if ((which & put) != 0) {
            by.begin_zcopy(uct_ep_put_zcopy, local, size, 0);
        }
        if ((which & get) != 0) {
            by.begin_zcopy(uct_ep_get_zcopy, local + half, size, half);
        }
        by.complete();
    });
}

template <ways which, bool registered>
void timing_host(benchmark::State &state)
{
    /* Half of it is put from, the other half got into. */
    const host_buffer host(2 * half, registered);
    copy(state, session::instance(), host.data(), which);
}

template <ways which>
void timing_peer(benchmark::State &state)
{
    copy(state, ipc_peer::instance(), device_memory(), which);
}

/* One of as many as half of the memory takes, all started at once. */
template <ways which>
void timing_many_peer(benchmark::State &state)
{
    ipc_peer &by     = ipc_peer::instance();
    const auto size  = static_cast<size_t>(state.range(0));
    const auto start = (which == put) ? uct_ep_put_zcopy : uct_ep_get_zcopy;
    measure(
        state,
        [&] {
            for (size_t at = 0; at < half; at += size) {
                by.begin_zcopy(start, device_memory() + at, size, at);
            }
            by.complete();
        },
        half / size);
}

void timing_put_short_to_peer(benchmark::State &state)
{
    measure(state, [&] {
        ipc_peer::instance().put_short(device_memory(),
                                       static_cast<size_t>(state.range(0)));
    });
}

void timing_on_card(benchmark::State &state)
{
    session &by = session::instance();
    measure(state, [&] {
        by.zcopy(uct_ep_put_zcopy, device_memory() + half,
                 static_cast<size_t>(state.range(0)));
    });
}

/* The longest: half of the memory. */
void sizes(benchmark::internal::Benchmark *of)
{
    of->RangeMultiplier(4)->Range(1 << 20, 16 << 20)->Arg(half)->UseRealTime();
}

void sizes_of_many(benchmark::internal::Benchmark *of)
{
    of->RangeMultiplier(4)->Range(64 << 10, 16 << 20)->UseRealTime();
}

} // namespace

BENCHMARK(timing_host<put, true>)->Name("timing_put")->Apply(sizes);
BENCHMARK(timing_host<get, true>)->Name("timing_get")->Apply(sizes);
BENCHMARK(timing_host<both, true>)->Name("timing_put_and_get")->Apply(sizes);
BENCHMARK(timing_host<put, false>)->Name("timing_put_staged")->Apply(sizes);
BENCHMARK(timing_host<get, false>)->Name("timing_get_staged")->Apply(sizes);
BENCHMARK(timing_host<both, false>)
    ->Name("timing_put_and_get_staged")
    ->Apply(sizes);
BENCHMARK(timing_on_card)->Apply(sizes);
BENCHMARK(timing_peer<put>)->Name("timing_put_to_peer")->Apply(sizes);
BENCHMARK(timing_put_short_to_peer)->Apply(sizes);
BENCHMARK(timing_peer<get>)->Name("timing_get_from_peer")->Apply(sizes);
BENCHMARK(timing_many_peer<put>)
    ->Name("timing_many_puts_to_peer")
    ->Apply(sizes_of_many);
BENCHMARK(timing_many_peer<get>)
    ->Name("timing_many_gets_from_peer")
    ->Apply(sizes_of_many);
BENCHMARK(timing_peer<both>)->Name("timing_put_and_get_peer")->Apply(sizes);
