/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes a program one that runs a framework: has the stand-in for SynapseAI
 * acquire a card, before main, if the program has UCX in it. Preloaded. */
#include "synapse/stand_in.h"

#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>

namespace {

template <typename Function>
Function *find(void *library, const char *name)
{
    return reinterpret_cast<Function *>(dlsym(library, name));
}

[[gnu::constructor]] void acquire_card()
{
    if (dlopen("libucs.so.0", RTLD_NOW | RTLD_NOLOAD) == nullptr) {
        return;
    }
    /* As PyTorch does it: not for others to see. */
    void *synapse = dlopen(GAUDI_SYNAPSE, RTLD_NOW | RTLD_LOCAL);
    if (synapse == nullptr) {
        std::fprintf(stderr, "framework: %s\n", dlerror());
        std::abort();
    }
    synDeviceId id = 0;
    find<synStatus()>(synapse, "synInitialize")();
    /* Where all cards are taken, it goes without. */
    find<synStatus(synDeviceId *, const char *)>(synapse, "synDeviceAcquire")(
        &id, nullptr);
}

} // namespace
