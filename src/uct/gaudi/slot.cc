#include "uct/gaudi/slot.h"

#include "uct/gaudi/base/ucx/ucx.h"

#include <climits>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <link.h>

extern "C" {
#include <ucs/config/global_opts.h>
#include <ucs/sys/module.h>
}

namespace gaudi::base {

namespace {

namespace fs = std::filesystem;

constexpr char own_name[]      = "libuct_hlthunk.";
constexpr char prefix[]        = "libuct_";
constexpr char subdirectory[]  = "ucx";
constexpr char init_function[] = "ucs_module_global_init";

/* Something of this module, whose address tells its file. */
constexpr char anchor = 0;

fs::path file_of(const void *address)
{
    Dl_info info;
    return (dladdr(address, &info) != 0) ? fs::path(info.dli_fname)
                                         : fs::path();
}

/* As the loader was told, links and all. */
fs::path libucs()
{
    return file_of(reinterpret_cast<void *>(&ucs_load_modules));
}

/* UCX_MODULE_DIR. By its name: this runs in other UCX versions, too. */
fs::path configured_directory()
{
    char path[PATH_MAX] = "";
    (void)ucs_global_opts_get_value("MODULE_DIR", path, sizeof(path));
    return path;
}

bool is_this_module(const fs::path &file)
{
    std::error_code error;
    return fs::equivalent(file, file_of(&anchor), error);
}

/* Names in a directory of modules under which this module stands there. */
void find_displaced(const fs::path &directory, std::set<std::string> &names)
{
    std::error_code error;
    for (fs::directory_iterator entry(directory, error), end;
         !error && (entry != end); entry.increment(error)) {
        const std::string name = entry->path().filename().string();
        if (name.starts_with(prefix) && !name.starts_with(own_name) &&
            is_this_module(entry->path())) {
            names.insert(name);
        }
    }
}

/* As the loader does it: a function of the module, not of what it needs. */
void initialize(void *module)
{
    using function = ucs_status_t (*)();

    void *symbol  = dlsym(module, init_function);
    link_map *map = nullptr;
    Dl_info info;
    if ((symbol == nullptr) || (dladdr(symbol, &info) == 0) ||
        (dlinfo(module, RTLD_DI_LINKMAP, &map) != 0) ||
        (reinterpret_cast<uintptr_t>(info.dli_fbase) != map->l_addr)) {
        return;
    }
    const ucs_status_t status = reinterpret_cast<function>(symbol)();
    if (status != UCS_OK) {
        ucs_debug("gaudi: initializing %s failed: %s, unloading",
                  info.dli_fname, ucs_status_string(status));
        dlclose(module);
    }
}

void load_displaced(const std::vector<fs::path> &directories,
                    const std::string &name)
{
    for (const fs::path &directory : directories) {
        const fs::path file = directory / name;
        if (is_this_module(file)) {
            continue;
        }
        void *module = dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
        if (module != nullptr) {
            ucs_debug("gaudi: loaded %s, which a slot displaces", file.c_str());
            initialize(module);
            return;
        }
        ucs_debug("gaudi: %s, which a slot displaces, cannot be loaded: %s",
                  file.c_str(), dlerror());
    }
}

} // namespace

void load_displaced_modules()
{
    const fs::path configured = configured_directory();
    const fs::path library    = libucs();
    std::set<std::string> names;
    find_displaced(library.parent_path() / subdirectory, names);
    find_displaced(configured, names);

    /* The loader's order, with the libucs that a link leads to. */
    std::error_code error;
    const fs::path resolved = fs::canonical(library, error);
    for (const std::string &name : names) {
        load_displaced({resolved.parent_path() / subdirectory, configured},
                       name);
    }
}

} // namespace gaudi::base
