/* SPDX-License-Identifier: BSD-3-Clause */
#include "synapse/hcl.h"

#include "hlthunk_shim/abi/ports.h"

#include <cstdlib>
#include <string_view>

#include <dlfcn.h>

namespace gaudi::test {

namespace {

template <typename Function>
Function *find(const char *name, Function * /* of this type */ = nullptr)
{
    static void *const library = dlopen(
        GAUDI_BUILD_DIR "/lib/hlthunk-emu/libhbl.so", RTLD_NOW | RTLD_LOCAL);
    return (library != nullptr)
               ? reinterpret_cast<Function *>(dlsym(library, name))
               : nullptr;
}

} // namespace

void close_verbs::operator()(ibv_context *context) const
{
    find<decltype(ibv_close_device)>("hlibv_close_device")(context);
}

verbs_device start_hcl(int fd)
{
    const auto is = [](const char *name, std::string_view value) {
        const char *const set = std::getenv(name);
        return (set != nullptr) && (set == value);
    };
    if ((std::getenv("HLTHUNK_EMU_PORTS") == nullptr) ||
        (is("INIT_HCCL_ON_ACQUIRE", "false") &&
         is("ENABLE_EXPERIMENTAL_FLAGS", "true"))) {
        return nullptr;
    }
    auto *const list =
        find<decltype(ibv_get_device_list)>("hlibv_get_device_list");
    if (list == nullptr) {
        return nullptr;
    }
    int count            = 0;
    ibv_device **devices = list(&count);
    hbldv_ucontext_attr attr{};
    attr.core_fd = fd;
    verbs_device opened;
    for (int i = 0; (opened == nullptr) && (i < count); ++i) {
        /* Of another card than that of the descriptor it fails. */
        opened.reset(find<decltype(hbldv_open_device)>("hbldv_open_device")(
            devices[i], &attr));
    }
    find<decltype(ibv_free_device_list)>("hlibv_free_device_list")(devices);
    return opened;
}

} // namespace gaudi::test
