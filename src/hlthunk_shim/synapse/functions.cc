/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/synapse/functions.h"

#include "util/process.h"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <vector>

#include <dlfcn.h>

namespace gaudi::shim {

namespace {

constexpr std::string_view library_name = "libSynapse.so";
constexpr char scal_name[]              = "libscal.so";

std::string_view base_name(std::string_view path)
{
    return path.substr(path.rfind('/') + 1);
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

/* Kept loaded: streams and events of ours are in it. */
bool synapse_functions::open(bool load)
{
    /* The second is its name in some containers; or the process has one that
     * dlopen does not know. */
    std::vector<std::string> names = {"libSynapse.so", "libSynapse.so.1"};
    for (const std::string &path : util::loaded_files()) {
        if (base_name(path).starts_with(library_name)) {
            names.push_back(path);
        }
    }
    return std::ranges::any_of(names,
                               [&](const std::string &name) {
                                   return symbol_table::open(name, false,
                                                             RTLD_NODELETE);
                               }) ||
           (load && symbol_table::open("libSynapse.so", true, RTLD_NODELETE));
}

std::unique_ptr<const synapse_functions>
synapse_functions::find(bool load, std::string &why_p)
{
    auto made = std::make_unique<synapse_functions>();
    if (made->open(load)) {
        void *scal = util::open_loaded(scal_name, RTLD_NODELETE);
        using enum need;
#define SYNAPSE_SYMBOL(_need, _result, _name, _parameters)                     \
    made->look_up(made->_name, #_name, _need);                                 \
    if ((made->_name == nullptr) && (scal != nullptr)) {                       \
        made->_name =                                                          \
            reinterpret_cast<decltype(made->_name)>(dlsym(scal, #_name));      \
    }
#include "hlthunk_shim/synapse/symbols.def"
#undef SYNAPSE_SYMBOL
        made->finish(library_name.data());
    }
    why_p = made->reason();
    return made->usable() ? std::move(made) : nullptr;
}

bool synapse_functions::has_code(const void *code)
{
    return base_name(file_of(code)).starts_with(library_name);
}

} // namespace gaudi::shim
