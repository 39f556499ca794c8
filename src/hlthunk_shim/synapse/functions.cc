/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/synapse/functions.h"

#include "util/process.h"

#include <cerrno>
#include <string_view>

#include <dlfcn.h>

namespace gaudi::shim {

namespace {

constexpr std::string_view library_name = "libSynapse.so";
constexpr char scal_name[]              = "libscal.so";

std::string_view base_name(std::string_view path)
{
    return path.substr(path.rfind('/') + 1);
}

/* Kept loaded: streams and events of ours are in it. */
void *open_loaded(const char *name)
{
    return util::open_loaded(name, RTLD_NODELETE);
}

void *find_handle()
{
    /* The second is its name in some containers. */
    for (const char *name : {"libSynapse.so", "libSynapse.so.1"}) {
        void *handle = open_loaded(name);
        if (handle != nullptr) {
            return handle;
        }
    }
    /* Or it has one that dlopen does not know. */
    for (const std::string &path : util::loaded_files()) {
        if (base_name(path).starts_with(library_name)) {
            return open_loaded(path.c_str());
        }
    }
    return nullptr;
}

struct translation {
    synStatus status;
    int error;
};

/* What is not here is EIO. */
constexpr translation translations[] = {
    {synSuccess, 0},
    {synInvalidArgument, EINVAL},
    {synCbFull, EAGAIN},
    {synOutOfHostMemory, ENOMEM},
    {synOutOfDeviceMemory, ENOMEM},
    {synObjectNotInitialized, EINVAL},
    {synNoDeviceFound, ENODEV},
    {synFailedToAllocateDeviceMemory, ENOMEM},
    {synDeviceReset, ENODEV},
    {synUnsupported, EOPNOTSUPP},
    {synDeviceAlreadyAcquired, EBUSY},
    {synBusy, EAGAIN},
    {synAllResourcesTaken, ENOMEM},
    {synUnavailable, EAGAIN},
    {synOutOfResources, ENOMEM},
    {synUninitialized, ENODEV},
    {synSynapseTerminated, ENODEV},
    {synInvalidEventHandle, ENODEV},
    {synMappingNotFound, EFAULT},
    {synTimeout, ETIMEDOUT},
    {synNullPtr, EINVAL}};

} // namespace

int to_error(synStatus status)
{
    for (const translation &row : translations) {
        if (row.status == status) {
            return -row.error;
        }
    }
    return -EIO;
}

std::unique_ptr<const synapse_functions>
synapse_functions::find(bool load, std::string &why_p)
{
    void *handle = find_handle();
    if ((handle == nullptr) && load) {
        handle =
            dlopen(library_name.data(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
    if (handle == nullptr) {
        const char *error = load ? dlerror() : nullptr;
        why_p             = (error != nullptr) ? error : "dlopen failed";
        return nullptr;
    }
    std::unique_ptr<synapse_functions> made(new synapse_functions);
    constexpr bool required = true;
    constexpr bool optional = false;
    void *scal              = open_loaded(scal_name);
    const auto look_up      = [&](const char *name) {
        void *found = dlsym(handle, name);
        if ((found == nullptr) && (scal != nullptr)) {
            found = dlsym(scal, name);
        }
        return found;
    };
#define SYNAPSE_SYMBOL(_need, _result, _name, _parameters)                     \
    made->_name = reinterpret_cast<decltype(made->_name)>(look_up(#_name));    \
    if (_need && (made->_name == nullptr)) {                                   \
        why_p = std::string(library_name) + " lacks " #_name;                  \
        return nullptr;                                                        \
    }
#include "hlthunk_shim/synapse/symbols.def"
#undef SYNAPSE_SYMBOL
    return made;
}

bool synapse_functions::has_code(const void *code)
{
    Dl_info info;
    return (dladdr(code, &info) != 0) &&
           base_name(info.dli_fname).starts_with(library_name);
}

} // namespace gaudi::shim
