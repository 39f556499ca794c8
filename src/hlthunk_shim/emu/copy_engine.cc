#include "hlthunk_shim/emu/copy_engine.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__) && !defined(HLTHUNK_EMU_NO_COPY)
#define HLTHUNK_EMU_INTERLEAVE
#include <emmintrin.h>
#endif

namespace gaudi::emu {

namespace {

#ifdef HLTHUNK_EMU_INTERLEAVE
constexpr size_t line  = 64;
constexpr size_t page  = 4096;
constexpr size_t pages = 4; /* copied side by side */
constexpr size_t ahead = 2 * line;

void copy_line(char *dst, const char *src)
{
    const auto *from = reinterpret_cast<const __m128i *>(src);
    auto *to         = reinterpret_cast<__m128i *>(dst);
    const __m128i a  = _mm_loadu_si128(from);
    const __m128i b  = _mm_loadu_si128(from + 1);
    const __m128i c  = _mm_loadu_si128(from + 2);
    const __m128i d  = _mm_loadu_si128(from + 3);
    _mm_storeu_si128(to, a);
    _mm_storeu_si128(to + 1, b);
    _mm_storeu_si128(to + 2, c);
    _mm_storeu_si128(to + 3, d);
}

/* A line of each of several pages in turn: a core that waits for memory waits
 * for several pages at once then, since it prefetches within each. Stores past
 * the caches, and the C library's memmove, take a third longer from 16 MiB on;
 * for what the caches hold memmove is as fast. */
void interleave(char *dst, const char *src, size_t size)
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
                copy_line(dst + i * page + offset, src + i * page + offset);
            }
        }
        dst += pages * page;
        src += pages * page;
    }
    std::memcpy(dst, src, size);
}
#endif

} // namespace

void copy_bytes([[maybe_unused]] char *dst, [[maybe_unused]] const char *src,
                [[maybe_unused]] size_t size, [[maybe_unused]] bool large)
{
    /* The library of the "nothing moves" test has no copy routine: every test
     * of data has to fail on it. */
#ifdef HLTHUNK_EMU_INTERLEAVE
    if (large) {
        interleave(dst, src, size);
        return;
    }
#endif
#ifndef HLTHUNK_EMU_NO_COPY
    std::memmove(dst, src, size);
#endif
}

} // namespace gaudi::emu
