#include "uct/gaudi/base/driver.h"

#include "hlthunk_shim/warning.h"
#include "uct/gaudi/base/config.h"

#include <cstring>
#include <memory>

#include <dlfcn.h>
#include <glob.h>

namespace gaudi::base {

namespace {

constexpr char vendor_library[] = "libhl-thunk.so";
constexpr char emulator[]       = "hlthunk-emu/libhl-thunk.so";

/* The compute nodes of new and old kernels. Others than habanalabs make accel
 * nodes too, but then hl-thunk finds no card, which is all the same here. */
bool machine_has_card()
{
    for (const char *pattern : {"/dev/accel/accel[0-9]*", "/dev/hl[0-9]*"}) {
        glob_t found{};
        const bool any = (glob(pattern, GLOB_NOSORT, nullptr, &found) == 0);
        globfree(&found);
        if (any) {
            return true;
        }
    }
    return false;
}

/* A file that lies beside this module. */
std::string beside_module(const char *name)
{
    Dl_info info;
    std::string path;
    if (dladdr(vendor_library, &info) != 0) {
        path = info.dli_fname;
        path.erase(path.rfind('/') + 1);
    }
    return path + name;
}

void warn(const char *text)
{
    ucs_warn("%s", text);
}

std::unique_ptr<const shim::library> load()
{
    const std::string wanted = config().driver;
    std::string path         = wanted;

    if (wanted == "auto") {
        if (!machine_has_card()) {
            ucs_debug("gaudi: no Gaudi card in this machine");
            return nullptr;
        }
        path = vendor_library;
    } else if (wanted == "hlthunk") {
        path = vendor_library;
    } else if (wanted == "emulator") {
        path = beside_module(emulator);
    } else if (wanted.find('/') == std::string::npos) {
        ucs_error("UCX_GAUDI_DRIVER=%s is not auto, hlthunk, emulator, or the "
                  "path of a library",
                  wanted.c_str());
        return nullptr;
    }

    shim::set_warning_handler(warn);
    auto loaded = std::make_unique<const shim::library>(path);
    if (!loaded->usable()) {
        ucs_error("gaudi: the driver library cannot be used "
                  "(UCX_GAUDI_DRIVER=%s): %s",
                  wanted.c_str(), loaded->reason().c_str());
        return nullptr;
    }
    ucs_debug("gaudi: driver library %s", path.c_str());
    return loaded;
}

} // namespace

const shim::library *driver()
{
    /* Kept to the end: objects of the driver may outlive any other order. */
    static const shim::library *library = load().release();
    return library;
}

} // namespace gaudi::base
