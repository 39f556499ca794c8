/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/copy_engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__) && !defined(HLTHUNK_EMU_NO_COPY)
#define HLTHUNK_EMU_WAYS
#include <emmintrin.h>
#endif

namespace gaudi::emu {

namespace {

#ifdef HLTHUNK_EMU_WAYS
/**
 * Finds out which of several ways to do the same work is the fastest here.
 *
 * The work is done in parts. Now and then a few parts in a row go each way in
 * turn, and are timed; the others go the way that was the fastest then. Any
 * thread may do parts; two that are timed beside each other may at worst spoil
 * one comparison.
 */
template <size_t count>
class fastest_way {
public:
    /** One part of the work. */
    struct turn {
        size_t way;
        bool is_timed = false;
        std::chrono::steady_clock::time_point since;
    };

    /** Before a part. @param size  Its length in whatever the work is made of;
     *  short ones are not timed. */
    turn begin(size_t size)
    {
        if (size < timed_size) {
            return {fastest_.load(std::memory_order_relaxed), false, {}};
        }
        const uint32_t place =
            turns_.fetch_add(1, std::memory_order_relaxed) % period;
        if (place == 0) {
            for (auto &cost : cost_) {
                cost.store(UINT64_MAX, std::memory_order_relaxed);
            }
        }
        if (place < timed_turns) {
            return {place % count, true, std::chrono::steady_clock::now()};
        }
        if (place == timed_turns) {
            choose();
        }
        return {fastest_.load(std::memory_order_relaxed), false, {}};
    }

    /** After it. */
    void end(const turn &done, size_t size)
    {
        if (!done.is_timed) {
            return;
        }
        const std::chrono::nanoseconds taken =
            std::chrono::steady_clock::now() - done.since;
        auto &cost = cost_[done.way];
        const uint64_t here =
            static_cast<uint64_t>(taken.count()) * scale / size;
        if (here < cost.load(std::memory_order_relaxed)) {
            cost.store(here, std::memory_order_relaxed);
        }
    }

private:
    static constexpr size_t timed_size    = 256 << 10;
    static constexpr uint64_t scale       = 1 << 20;
    static constexpr uint32_t period      = 512;
    static constexpr uint32_t timed_turns = 4 * count;

    /* By the best time of each: what else runs on the machine makes times
     * longer, never shorter. The way in use has a lead of an eighth, so that
     * chance does not change it. */
    void choose()
    {
        size_t best      = fastest_.load(std::memory_order_relaxed);
        uint64_t to_beat = cost_[best].load(std::memory_order_relaxed);
        to_beat -= to_beat / 8;
        for (size_t way = 0; way < count; ++way) {
            const uint64_t cost = cost_[way].load(std::memory_order_relaxed);
            if (cost < to_beat) {
                best    = way;
                to_beat = cost;
            }
        }
        fastest_.store(best, std::memory_order_relaxed);
    }

    std::atomic<uint32_t> turns_{0};
    std::atomic<size_t> fastest_{0};
    std::atomic<uint64_t> cost_[count]{}; /* nanoseconds of `scale` */
};

constexpr size_t line  = 64;
constexpr size_t page  = 4096;
constexpr size_t ahead = 2 * line;
/* What memmove gets at a time. It changes its ways where a copy is longer than
 * a core's second cache, and again where it is longer than the last one; on
 * cores of AMD the first of these is the fastest, at any length of the whole.
 */
constexpr size_t piece = 256 << 10;

template <bool past_caches>
void store(__m128i *to, __m128i value)
{
    if constexpr (past_caches) {
        _mm_stream_si128(to, value);
    } else {
        _mm_store_si128(to, value);
    }
}

template <bool past_caches>
void copy_line(char *dst, const char *src)
{
    const auto *from = reinterpret_cast<const __m128i *>(src);
    auto *to         = reinterpret_cast<__m128i *>(dst);
    const __m128i a  = _mm_loadu_si128(from);
    const __m128i b  = _mm_loadu_si128(from + 1);
    const __m128i c  = _mm_loadu_si128(from + 2);
    const __m128i d  = _mm_loadu_si128(from + 3);
    store<past_caches>(to, a);
    store<past_caches>(to + 1, b);
    store<past_caches>(to + 2, c);
    store<past_caches>(to + 3, d);
}

/* A line of each of several pages in turn. */
template <size_t pages, bool past_caches>
void copy_lines(char *dst, const char *src, size_t size)
{
    const size_t head =
        std::min(size, -reinterpret_cast<uintptr_t>(dst) % line);

    std::memcpy(dst, src, head);
    dst += head;
    src += head;
    size -= head;
    for (; size >= pages * page; size -= pages * page) {
        for (size_t offset = 0; offset < page; offset += line) {
            for (size_t i = 0; i < pages; ++i) {
                _mm_prefetch(src + i * page + offset + ahead, _MM_HINT_T0);
                copy_line<past_caches>(dst + i * page + offset,
                                       src + i * page + offset);
            }
        }
        dst += pages * page;
        src += pages * page;
    }
    std::memcpy(dst, src, size);
    if (past_caches) {
        _mm_sfence();
    }
}

void copy_pieces(char *dst, const char *src, size_t size)
{
    for (size_t done = 0; done < size; done += piece) {
        std::memmove(dst + done, src + done, std::min(piece, size - done));
    }
}

/* Ways to copy what the caches do not hold. Cores differ by a factor of two in
 * which is the fastest: on some it is memmove; on some that wait for memory, to
 * wait for several pages at once, since they prefetch within each; on some, not
 * to read what is overwritten anyway. */
constexpr void (*ways[])(char *, const char *, size_t) = {
    copy_pieces, copy_lines<4, false>, copy_lines<1, true>};

void copy_large(char *dst, const char *src, size_t size)
{
    static constinit fastest_way<std::size(ways)> chosen;
    const auto turn = chosen.begin(size);
    ways[turn.way](dst, src, size);
    chosen.end(turn, size);
}
#endif

} // namespace

void copy_bytes([[maybe_unused]] char *dst, [[maybe_unused]] const char *src,
                [[maybe_unused]] size_t size, [[maybe_unused]] bool large)
{
    /* The library of the "nothing moves" test has no copy routine: every test
     * of data has to fail on it. */
#ifdef HLTHUNK_EMU_WAYS
    if (large) {
        copy_large(dst, src, size);
        return;
    }
#endif
#ifndef HLTHUNK_EMU_NO_COPY
    std::memmove(dst, src, size);
#endif
}

} // namespace gaudi::emu
