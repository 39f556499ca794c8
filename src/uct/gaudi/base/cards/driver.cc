/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/cards/driver.h"

#include "hlthunk_shim/discovery/driver.h"
#include "uct/gaudi/base/cards/card_events.h"
#include "uct/gaudi/base/ucx/config.h"
#include "uct/gaudi/base/ucx/status.h"
#include "util/made_once.h"
#include "util/text.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <memory>

#include <dlfcn.h>
#include <sys/auxv.h>

extern "C" {
#include <ucs/sys/uid.h>
}

namespace gaudi::base {

namespace {

/* Whether a machine that nobody named a driver for has something to drive. */
bool has_card = true;

/* Set while it is loaded. */
shim::problem failed;

/* Something of this module, whose address tells its file. */
constexpr char anchor = 0;

/* The folder of libraries, in which the module is ucx-gaudi/RELEASE/FILE. */
std::string library_directory()
{
    Dl_info info;
    char path[PATH_MAX];
    if ((dladdr(&anchor, &info) == 0) ||
        (realpath(info.dli_fname, path) == nullptr)) {
        return ".";
    }
    std::string directory = path;
    for (int levels = 0; levels < 3; ++levels) {
        directory.erase(std::min(directory.rfind('/'), directory.size()));
    }
    return directory;
}

/* Kept to the end: objects of the driver may outlive any other order. */
constinit util::made_once<std::unique_ptr<const shim::driver>> loaded;

constinit util::made_once<uint64_t> box;

shim::driver_options options()
{
    return {.used = (config().engine == engine_cs) ? shim::engine::cs
                    : (config().engine == engine_synapse)
                        ? shim::engine::synapse
                        : shim::engine::automatic,
            .map_application_memory = (config().synapse_host_map != 0),
            .unknown_card =
                (config().card_kind == kind_gaudi2)   ? HLTHUNK_DEVICE_GAUDI2
                : (config().card_kind == kind_gaudi3) ? HLTHUNK_DEVICE_GAUDI3
                                                      : HLTHUNK_DEVICE_INVALID};
}

const char *how_to_have_it(const std::string &wanted)
{
    return (wanted == "emulator") ? shim::install_emulator
           : (wanted.find('/') != wanted.npos)
               ? "set UCX_GAUDI_DRIVER to another libhl-thunk.so, or unset it"
               : "install the vendor's libhl-thunk.so, put its directory "
                 "(usually /usr/lib/habanalabs) into LD_LIBRARY_PATH, or set "
                 "UCX_GAUDI_DRIVER to its path";
}

std::unique_ptr<const shim::driver> load()
{
    if (!is_config_valid()) {
        return nullptr;
    }
    std::string wanted = config().driver;
    /* Also where a file that UCX has read says so: UCX takes one from the
     * caller's folder. */
    if ((getauxval(AT_SECURE) != 0) && (wanted != "auto")) {
        ucs_warn("UCX_GAUDI_DRIVER=%s is not used: the program has more rights "
                 "than who started it",
                 util::to_printable(wanted).c_str());
        wanted = "auto";
    }
    const auto choice = shim::choose_driver(wanted, library_directory());

    if (choice.result == shim::driver_choice::outcome::no_card) {
        ucs_debug("gaudi: no Gaudi card in this machine");
        has_card = false;
        return nullptr;
    }
    if (choice.result == shim::driver_choice::outcome::invalid) {
        failed = {"UCX_GAUDI_DRIVER=" + util::to_printable(wanted) +
                      " is not " + shim::driver_syntax,
                  "set it to one of these, or unset it"};
        ucs_error("%s (%s)", failed.what.c_str(), failed.fix.c_str());
        return nullptr;
    }

    warn_by_ucx();
    auto opened = std::make_unique<shim::driver>(choice.path, options());
    if (!opened->reason().empty()) {
        failed = {"the driver library cannot be used: " +
                      util::to_printable(opened->reason()),
                  how_to_have_it(wanted)};
        ucs_error("gaudi: the driver library cannot be used "
                  "(UCX_GAUDI_DRIVER=%s): %s (%s)",
                  wanted.c_str(), opened->reason().c_str(), failed.fix.c_str());
        return nullptr;
    }
    ucs_debug("gaudi: driver library %s", choice.path.c_str());
    card_events::driver_loaded(*opened);
    return opened;
}

} // namespace

const shim::driver *driver()
{
    return loaded.get(load).get();
}

const shim::problem &driver_problem()
{
    return failed;
}

std::string why_no_driver()
{
    return has_card ? ""
                    : "this machine has no Gaudi card (no device node in "
                      "/dev/accel); UCX_GAUDI_DRIVER=emulator uses a software "
                      "one";
}

uint64_t box_identity()
{
    return box.get([] {
        uint64_t hash = ucs_get_system_id() ^ 0xcbf29ce484222325u; /* FNV-1a */
        for (const unsigned char c :
             (driver() != nullptr) ? driver()->box_name() : std::string()) {
            hash = (hash ^ c) * 0x100000001b3u;
        }
        return hash;
    });
}

} // namespace gaudi::base
