#include "launcher/ucx.h"

#include <dlfcn.h>
#include <link.h>

namespace launcher {

namespace {

namespace fs = std::filesystem;

constexpr char libucp[] = "libucp.so.0";
constexpr char libucs[] = "libucs.so.0";

fs::path file_of(void *handle)
{
    link_map *map = nullptr;
    if ((handle == nullptr) || (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0)) {
        return {};
    }
    return map->l_name;
}

} // namespace

found_ucx find_ucx()
{
    using get_version = void (*)(unsigned *, unsigned *, unsigned *);

    found_ucx found;
    void *handle = dlopen(libucp, RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) {
        found.error = dlerror();
        return found;
    }
    std::error_code error;
    const fs::path file = file_of(handle);
    found.ucp           = fs::canonical(file, error).string();
    found.libucs_directory =
        file_of(dlopen(libucs, RTLD_LAZY | RTLD_NOLOAD)).parent_path();

    auto ask = reinterpret_cast<get_version>(dlsym(handle, "ucp_get_version"));
    if (ask == nullptr) {
        found.error = file.string() + " has no ucp_get_version";
        return found;
    }
    unsigned major = 0;
    unsigned minor = 0;
    unsigned patch = 0;
    ask(&major, &minor, &patch);
    found.version = std::to_string(major) + '.' + std::to_string(minor) + '.' +
                    std::to_string(patch);
    return found;
}

bool is_loaded(const fs::path &file)
{
    return dlopen(file.c_str(), RTLD_LAZY | RTLD_NOLOAD) != nullptr;
}

} // namespace launcher
