#include "uct/gaudi/base/ucx/version.h"

#include "uct/gaudi/base/ucx/ucx.h"

#include <string>

#include <dlfcn.h>

namespace gaudi::base {

namespace {

constexpr char libucp[]    = "libucp.so.0";
constexpr char built_for[] = GAUDI_UCX_VERSION;

void *open_libucp()
{
    void *handle = dlopen(libucp, RTLD_LAZY | RTLD_NOLOAD);
    if (handle != nullptr) {
        return handle;
    }
    /* A symbol that nobody interposes; the preload stub has others. */
    Dl_info info;
    if (dladdr(reinterpret_cast<void *>(&uct_component_register), &info) == 0) {
        return nullptr;
    }
    std::string path(info.dli_fname);
    path.erase(path.rfind('/') + 1);
    return dlopen((path + libucp).c_str(), RTLD_LAZY | RTLD_LOCAL);
}

std::string running_version()
{
    using get_version = void (*)(unsigned *, unsigned *, unsigned *);

    void *handle = open_libucp();
    auto ask =
        (handle == nullptr)
            ? nullptr
            : reinterpret_cast<get_version>(dlsym(handle, "ucp_get_version"));
    std::string version;
    if (ask != nullptr) {
        unsigned major;
        unsigned minor;
        unsigned patch;
        ask(&major, &minor, &patch);
        version = std::to_string(major) + '.' + std::to_string(minor) + '.' +
                  std::to_string(patch);
    }
    if (handle != nullptr) {
        dlclose(handle);
    }
    return version;
}

} // namespace

bool ucx_version_matches()
{
    const std::string running = running_version();
    if (running == built_for) {
        return true;
    }
    ucs_warn("the Gaudi transports were built for UCX %s and this is UCX %s: "
             "they are not available",
             built_for,
             running.empty() ? "of unknown version" : running.c_str());
    return false;
}

} // namespace gaudi::base
