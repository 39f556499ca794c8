/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/copy_engine.h"

#include <cstring>

namespace gaudi::emu {

void copy_bytes([[maybe_unused]] char *dst, [[maybe_unused]] const char *src,
                [[maybe_unused]] size_t size)
{
    /* The library of the "nothing moves" test has no copy routine: every test
     * of data has to fail on it. */
#ifndef HLTHUNK_EMU_NO_COPY
    std::memmove(dst, src, size);
#endif
}

} // namespace gaudi::emu
