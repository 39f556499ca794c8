#include "uct/gaudi/base/driver.h"

#include "hlthunk_shim/driver_choice.h"
#include "hlthunk_shim/text.h"
#include "hlthunk_shim/warning.h"
#include "uct/gaudi/base/config.h"
#include "uct/gaudi/base/driver_hooks.h"

#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <dlfcn.h>

namespace gaudi::base {

namespace {

/* Whether a machine that nobody named a driver for has something to drive. */
bool has_card = true;

/* Something of this module, whose address tells its file. */
constexpr char anchor = 0;

/* Where the file of this module lies. In a slot it is a link. */
std::string module_directory()
{
    Dl_info info;
    char path[PATH_MAX];
    if ((dladdr(&anchor, &info) == 0) ||
        (realpath(info.dli_fname, path) == nullptr)) {
        return ".";
    }
    return std::string(path, std::strrchr(path, '/'));
}

void warn(const char *text)
{
    ucs_warn("%s", text);
}

std::unique_ptr<const shim::library> load()
{
    const std::string wanted = config().driver;
    const auto choice        = shim::choose_driver(wanted, module_directory());

    switch (choice.result) {
    case shim::driver_choice::outcome::library:
        break;
    case shim::driver_choice::outcome::no_card:
        ucs_debug("gaudi: no Gaudi card in this machine");
        has_card = false;
        return nullptr;
    case shim::driver_choice::outcome::invalid:
        ucs_error("UCX_GAUDI_DRIVER=%s is not %s",
                  shim::to_printable(wanted).c_str(), shim::driver_syntax);
        return nullptr;
    }

    shim::set_warning_handler(warn);
    auto loaded = std::make_unique<shim::library>(choice.path);
    if (!loaded->usable()) {
        ucs_error("gaudi: the driver library cannot be used "
                  "(UCX_GAUDI_DRIVER=%s): %s",
                  wanted.c_str(), loaded->reason().c_str());
        return nullptr;
    }
    ucs_debug("gaudi: driver library %s", choice.path.c_str());
    hook_driver(*loaded);
    return loaded;
}

} // namespace

const shim::library *driver()
{
    /* Kept to the end: objects of the driver may outlive any other order. */
    static const shim::library *library = load().release();
    return library;
}

std::string why_no_driver()
{
    return has_card ? ""
                    : "this machine has no Gaudi card (no device node in "
                      "/dev/accel); UCX_GAUDI_DRIVER=emulator uses a software "
                      "one";
}

} // namespace gaudi::base
