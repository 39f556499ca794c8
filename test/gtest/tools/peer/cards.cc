/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/tools/peer/cards.h"

#include "hlthunk_emulator/hlthunk_emu.h"
#include "hlthunk_shim/abi/hlthunk.h"
#include "gtest/tools/peer/check.h"

#include <cerrno>
#include <cstring>

#include <unistd.h>

/* Called as a program calls a library that it is linked with. */
extern "C" {
#define HLTHUNK_SYMBOL(_need, _result, _name, _parameters)                     \
    _result _name _parameters;
#include "hlthunk_shim/hlthunk/symbols.def"
#undef HLTHUNK_SYMBOL
}

namespace peer {

namespace {

constexpr int max_fds = 1024;

int card = -1;

void check(bool good, const char *what)
{
    if (!good) {
        die(what, std::strerror(errno));
    }
}

} // namespace

void open_own_card()
{
    card = hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, nullptr);
    check(card >= 0, "hlthunk_open");
}

bool has_own_card()
{
    return card >= 0;
}

own_memory allocate_on_own_card(size_t size)
{
    own_memory memory;
    memory.handle = hlthunk_device_memory_alloc(card, size, 0, false, true);
    check(memory.handle != 0, "hlthunk_device_memory_alloc");
    memory.address = hlthunk_device_memory_map(card, memory.handle, 0);
    check(memory.address != 0, "hlthunk_device_memory_map");
    return memory;
}

void free_on_own_card(const own_memory &memory)
{
    check(hlthunk_memory_unmap(card, memory.address) == 0,
          "hlthunk_memory_unmap");
    check(hlthunk_device_memory_free(card, memory.handle) == 0,
          "hlthunk_device_memory_free");
}

dma_count count_dma()
{
    dma_count sum;
    for (int fd = 0; fd < max_fds; ++fd) {
        hlthunk_emu_counters counters;
        if (hlthunk_emu_get_counters(fd, &counters) == 0) {
            sum.host_to_device += counters.host_to_device_bytes;
            sum.device_to_host += counters.device_to_host_bytes;
            sum.device_to_device += counters.device_to_device_bytes;
            sum.host_to_host += counters.host_to_host_bytes;
            sum.jobs += counters.jobs;
        }
    }
    return sum;
}

dma_count operator-(const dma_count &after, const dma_count &before)
{
    return {after.host_to_device - before.host_to_device,
            after.device_to_host - before.device_to_host,
            after.device_to_device - before.device_to_device,
            after.host_to_host - before.host_to_host, after.jobs - before.jobs};
}

} // namespace peer
