#include "gtest/tools/peer/own_card.h"

#include "hlthunk_shim/hlthunk/abi.h"
#include "gtest/tools/peer/check.h"

#include <cerrno>
#include <cstring>

/* Called as a program calls a library that it is linked with. */
extern "C" {
#define HLTHUNK_SYMBOL(_need, _result, _name, _parameters)                     \
    _result _name _parameters;
#include "hlthunk_shim/hlthunk/symbols.def"
#undef HLTHUNK_SYMBOL
}

namespace peer {

namespace {

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

} // namespace peer
