#include "gtest/tools/peer/own_card.h"

#include "hlthunk_shim/hlthunk_abi.h"
#include "gtest/tools/peer/check.h"

#include <cerrno>
#include <cstring>

#include <dlfcn.h>

namespace peer {

namespace {

int card = -1;

/* Looked up by name, as a framework does that loads the library late. */
template <typename Function>
Function *driver(const char *name)
{
    static void *library = dlopen(GAUDI_DRIVER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        die("libhl-thunk.so", dlerror());
    }
    auto *found = reinterpret_cast<Function *>(dlsym(library, name));
    if (found == nullptr) {
        die(name, "is not in the driver library");
    }
    return found;
}

void check(bool good, const char *what)
{
    if (!good) {
        die(what, std::strerror(errno));
    }
}

} // namespace

void open_own_card()
{
    card = driver<int(hlthunk_device_name, const char *)>("hlthunk_open")(
        HLTHUNK_DEVICE_DONT_CARE, nullptr);
    check(card >= 0, "hlthunk_open");
}

bool has_own_card()
{
    return card >= 0;
}

own_memory allocate_on_own_card(size_t size)
{
    own_memory memory;
    memory.handle = driver<uint64_t(int, uint64_t, uint64_t, bool, bool)>(
        "hlthunk_device_memory_alloc")(card, size, 0, false, true);
    check(memory.handle != 0, "hlthunk_device_memory_alloc");
    memory.address = driver<uint64_t(int, uint64_t, uint64_t)>(
        "hlthunk_device_memory_map")(card, memory.handle, 0);
    check(memory.address != 0, "hlthunk_device_memory_map");
    return memory;
}

void free_on_own_card(const own_memory &memory)
{
    check(driver<int(int, uint64_t)>("hlthunk_memory_unmap")(
              card, memory.address) == 0,
          "hlthunk_memory_unmap");
    check(driver<int(int, uint64_t)>("hlthunk_device_memory_free")(
              card, memory.handle) == 0,
          "hlthunk_device_memory_free");
}

} // namespace peer
