/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Put and get through UCT, by operation and size, beside memcpy of the same
 * buffers; and the shortest put beside a bare submission.
 *
 * Only ratios within one run mean anything: `scripts/bench` prints them.
 */
#include "session.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

namespace {

using gaudi::bench::bare_card;
using gaudi::bench::host_buffer;
using gaudi::bench::session;

void finish(benchmark::State &state)
{
    state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) *
                            state.range(0));
}

/* --- references ----------------------------------------------------------- */

/* As the card does it: from private memory to a shared mapping of a memfd. As a
 * whole, memcpy goes past the caches from some length on, or another way that
 * is for long copies; in pieces it never does. Either is the faster one on some
 * cores. */
template <bool as_a_whole>
void reference_memcpy(benchmark::State &state)
{
    const auto size = static_cast<size_t>(state.range(0));
    const int fd    = memfd_create("reference", MFD_CLOEXEC);
    if ((fd < 0) || (ftruncate(fd, state.range(0)) != 0)) {
        state.SkipWithError("memfd");
        return;
    }
    void *to = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    host_buffer from(size, false);
    std::memset(to, 2, size);
    const size_t piece = as_a_whole ? size : size_t{256} << 10;
    for (auto _ : state) {
        for (size_t done = 0; done < size; done += piece) {
            std::memcpy(static_cast<char *>(to) + done, from.data() + done,
                        std::min(piece, size - done));
        }
        benchmark::ClobberMemory();
    }
    munmap(to, size);
    finish(state);
}

void reference_submit_and_poll(benchmark::State &state)
{
    for (auto _ : state) {
        bare_card::instance().submit_and_poll(
            static_cast<size_t>(state.range(0)));
    }
    finish(state);
}

/* --- UCT ------------------------------------------------------------------ */

/* Calls that are over when they return. */
template <typename Call>
void measure_short(benchmark::State &state, Call &&call)
{
    session &s = session::instance();
    const host_buffer host(static_cast<size_t>(state.range(0)), false);
    for (auto _ : state) {
        (void)call(s.ep, host.data(), static_cast<unsigned>(state.range(0)),
                   s.remote(), UCT_INVALID_RKEY);
    }
    finish(state);
}

void put_short(benchmark::State &state)
{
    measure_short(state, uct_ep_put_short);
}

void get_short(benchmark::State &state)
{
    measure_short(state, uct_ep_get_short);
}

/* Calls that are made again until there is room. */
template <typename Call>
void measure_bcopy(benchmark::State &state, Call &&is_started)
{
    session &s      = session::instance();
    const auto size = static_cast<size_t>(state.range(0));
    const host_buffer host(size, false);
    for (auto _ : state) {
        while (!is_started(s, host.data(), size)) {
            uct_worker_progress(s.worker);
        }
    }
    while (uct_ep_flush(s.ep, 0, nullptr) == UCS_INPROGRESS) {
        uct_worker_progress(s.worker);
    }
    finish(state);
}

void put_bcopy(benchmark::State &state)
{
    struct source {
        const char *data;
        size_t size;
    };
    auto pack = [](void *dst, void *arg) {
        const auto *what = static_cast<const source *>(arg);
        std::memcpy(dst, what->data, what->size);
        return what->size;
    };
    measure_bcopy(state, [&](session &s, char *host, size_t size) {
        source from{host, size};
        return uct_ep_put_bcopy(s.ep, pack, &from, s.remote(),
                                UCT_INVALID_RKEY) >= 0;
    });
}

void get_bcopy(benchmark::State &state)
{
    auto unpack = [](void *arg, const void *data, size_t length) {
        std::memcpy(arg, data, length);
    };
    measure_bcopy(state, [&](session &s, char *host, size_t size) {
        return uct_ep_get_bcopy(s.ep, unpack, host, size, s.remote(),
                                UCT_INVALID_RKEY,
                                nullptr) != UCS_ERR_NO_RESOURCE;
    });
}

template <bool put, bool registered>
void zcopy(benchmark::State &state)
{
    session &s      = session::instance();
    const auto size = static_cast<size_t>(state.range(0));
    host_buffer host(size, registered);
    const auto start = put ? uct_ep_put_zcopy : uct_ep_get_zcopy;
    s.zcopy(start, host.data(), size); /* the first use maps it on the card */
    for (auto _ : state) {
        s.zcopy(start, host.data(), size);
    }
    finish(state);
}

constexpr int64_t largest = session::max_size;

void by_size(benchmark::internal::Benchmark *of)
{
    of->RangeMultiplier(4)->Range(64, largest);
}

} // namespace

BENCHMARK(reference_submit_and_poll)->Arg(8);
BENCHMARK(put_short)->Arg(8);
BENCHMARK(get_short)->Arg(8);

BENCHMARK(reference_memcpy<true>)->Name("reference_memcpy")->Apply(by_size);
BENCHMARK(reference_memcpy<false>)
    ->Name("reference_memcpy_in_pieces")
    ->RangeMultiplier(4)
    ->Range(4 << 20, largest);
BENCHMARK(zcopy<true, true>)->Name("put_zcopy_registered")->Apply(by_size);
BENCHMARK(zcopy<false, true>)->Name("get_zcopy_registered")->Apply(by_size);
BENCHMARK(zcopy<true, false>)->Name("put_zcopy_staged")->Apply(by_size);
BENCHMARK(zcopy<false, false>)->Name("get_zcopy_staged")->Apply(by_size);
BENCHMARK(put_short)->Apply(by_size);
BENCHMARK(get_short)->Apply(by_size);
BENCHMARK(put_bcopy)->RangeMultiplier(4)->Range(64, 65536);
BENCHMARK(get_bcopy)->RangeMultiplier(4)->Range(64, 65536);
