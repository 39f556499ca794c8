#include "uct/gaudi/base/cards/driver.h"

#include "hlthunk_shim/driver_choice.h"
#include "uct/gaudi/base/cards/card_events.h"
#include "uct/gaudi/base/ucx/config.h"
#include "uct/gaudi/base/ucx/status.h"
#include "util/fork_handlers.h"
#include "util/text.h"

#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

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

/* A child that is forked while the parent loads the driver loads it itself. */
constinit util::child_mutex loading;
std::atomic<bool> loaded{false};
/* Kept to the end: objects of the driver may outlive any other order. */
const shim::driver *loaded_driver = nullptr;

std::unique_ptr<const shim::driver> load()
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
                  util::to_printable(wanted).c_str(), shim::driver_syntax);
        return nullptr;
    }

    warn_by_ucx();
    auto opened = std::make_unique<shim::driver>(choice.path);
    if (!opened->reason().empty()) {
        ucs_error("gaudi: the driver library cannot be used "
                  "(UCX_GAUDI_DRIVER=%s): %s",
                  wanted.c_str(), opened->reason().c_str());
        return nullptr;
    }
    ucs_debug("gaudi: driver library %s", choice.path.c_str());
    card_events::for_each(
        [&](card_events &room) { room.driver_loaded(opened->lib()); });
    return opened;
}

} // namespace

const shim::driver *driver()
{
    if (!loaded.load(std::memory_order_acquire)) {
        std::lock_guard<util::child_mutex> guard(loading);
        if (!loaded.load(std::memory_order_relaxed)) {
            loaded_driver = load().release();
            loaded.store(true, std::memory_order_release);
        }
    }
    return loaded_driver;
}

std::string why_no_driver()
{
    return has_card ? ""
                    : "this machine has no Gaudi card (no device node in "
                      "/dev/accel); UCX_GAUDI_DRIVER=emulator uses a software "
                      "one";
}

} // namespace gaudi::base
