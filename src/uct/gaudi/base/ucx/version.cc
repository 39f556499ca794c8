#include "uct/gaudi/base/ucx/version.h"

#include "uct/gaudi/base/ucx/ucx.h"

#include <array>
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
    if (handle == nullptr) {
        return "";
    }
    std::string version;
    if (auto ask =
            reinterpret_cast<get_version>(dlsym(handle, "ucp_get_version"))) {
        std::array<unsigned, 3> parts;
        ask(&parts[0], &parts[1], &parts[2]);
        version = std::to_string(parts[0]) + '.' + std::to_string(parts[1]) +
                  '.' + std::to_string(parts[2]);
    }
    dlclose(handle);
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
