#include "synapse/synapse_library.h"

#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>

namespace gaudi::test {

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
#define GAUDI_STAND_IN_FIND(_result, _name, _parameters)                       \
    _name = reinterpret_cast<decltype(_name)>(dlsym(handle, #_name));          \
    if (_name == nullptr) {                                                    \
        std::fprintf(stderr, "no %s\n", #_name);                               \
        std::abort();                                                          \
    }
    GAUDI_STAND_IN_FUNCTIONS(GAUDI_STAND_IN_FIND)
#undef GAUDI_STAND_IN_FIND
}

const synapse_library &synapse_library::instance()
{
    static const auto *loaded = new synapse_library;
    return *loaded;
}

} // namespace gaudi::test
