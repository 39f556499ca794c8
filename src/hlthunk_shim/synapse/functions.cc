#include "hlthunk_shim/synapse/functions.h"

#include "util/loaded_files.h"

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
    return dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD | RTLD_NODELETE);
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
synapse_functions::fill(void *handle, std::string &why_p)
{
    std::unique_ptr<synapse_functions> made(new synapse_functions);
    constexpr bool required = true;
    constexpr bool optional = false;
    void *scal              = open_loaded(scal_name);
    const auto find         = [&](const char *name) {
        void *found = dlsym(handle, name);
        return ((found == nullptr) && (scal != nullptr)) ? dlsym(scal, name)
                                                                 : found;
    };
#define SYNAPSE_SYMBOL(_need, _result, _name, _parameters)                     \
    made->_name = reinterpret_cast<decltype(made->_name)>(find(#_name));       \
    if (_need && (made->_name == nullptr)) {                                   \
        why_p = std::string(library_name) + " lacks " #_name;                  \
        return nullptr;                                                        \
    }
#include "hlthunk_shim/synapse/symbols.def"
#undef SYNAPSE_SYMBOL
    return made;
}

std::unique_ptr<const synapse_functions> synapse_functions::find_loaded()
{
    std::string why;
    void *handle = find_handle();
    return (handle != nullptr) ? fill(handle, why) : nullptr;
}

std::unique_ptr<const synapse_functions>
synapse_functions::load(std::string &why_p)
{
    void *handle = find_handle();
    if (handle == nullptr) {
        handle =
            dlopen(library_name.data(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
    if (handle == nullptr) {
        const char *error = dlerror();
        why_p             = (error != nullptr) ? error : "dlopen failed";
        return nullptr;
    }
    return fill(handle, why_p);
}

bool synapse_functions::has_code(const void *code)
{
    Dl_info info;
    return (dladdr(code, &info) != 0) &&
           base_name(info.dli_fname).starts_with(library_name);
}

} // namespace gaudi::shim
