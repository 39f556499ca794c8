/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/framework.h"

#include "synapse/synapse_library.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>

namespace gaudi::test {

namespace {

bool acquired = false;

bool is_set(const char *variable, const char *value)
{
    const char *text = std::getenv(variable);
    return (text != nullptr) && (std::strcmp(text, value) == 0);
}

} // namespace

void start_framework()
{
    static bool started = false;
    if (std::getenv("HLTHUNK_EMU_PORTS") != nullptr) {
        setenv("INIT_HCCL_ON_ACQUIRE", "false", 0); /* tests want the ports */
        setenv("ENABLE_EXPERIMENTAL_FLAGS", "true", 0);
    }
    if (is_set("UCX_GAUDI_ENGINE", "synapse")) {
        (void)synapse(); /* where dlopen finds it */
    }
    if (started || !runs_beside_framework()) {
        return;
    }
    started        = true;
    synDeviceId id = 0;
    acquired       = (synapse().synInitialize() == synSuccess) &&
               (synapse().synDeviceAcquire(&id, nullptr) == synSuccess);
}

bool runs_beside_framework()
{
    const char *text = std::getenv("GAUDI_TEST_FRAMEWORK");
    return (text != nullptr) && (*text != '\0');
}

bool has_one_card()
{
    return is_set("HLTHUNK_EMU_ASIC", "gaudi3");
}

child_environment with_cards_of_ucx(child_environment settings)
{
    if (runs_beside_framework()) {
        settings.emplace_back("GAUDI_TEST_FRAMEWORK", "");
        settings.emplace_back("UCX_GAUDI_ENGINE", "synapse");
    }
    return settings;
}

bool has_framework()
{
    return acquired;
}

std::string synapse_folder()
{
    return GAUDI_BUILD_DIR "/lib/synapse";
}

synapse_library::synapse_library()
{
    void *handle = dlopen((synapse_folder() + "/libSynapse.so").c_str(),
                          RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        std::abort();
    }
#define STAND_IN_SYMBOL(_result, _name, _parameters)                           \
    _name = reinterpret_cast<decltype(_name)>(dlsym(handle, #_name));          \
    if (_name == nullptr) {                                                    \
        std::fprintf(stderr, "no %s\n", #_name);                               \
        std::abort();                                                          \
    }
#include "synapse/stand_in_symbols.def"
#undef STAND_IN_SYMBOL
}

const synapse_library &synapse_library::instance()
{
    static const auto *loaded = new synapse_library;
    return *loaded;
}

} // namespace gaudi::test
