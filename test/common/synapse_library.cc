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
