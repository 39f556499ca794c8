/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What happens when the loader opens the module.
 *
 * Runs before main, inside UCX's module loader, or at a call of UCX.
 */
#include "program/program_memory.h"
#include "program/ucx_gaudi.h"
#include "uct/gaudi/base/cards/card_events.h"
#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/cards/report.h"
#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/memory/registration_cache.h"
#include "uct/gaudi/base/ucx/config.h"
#include "uct/gaudi/base/ucx/memory_events.h"
#include "uct/gaudi/base/ucx/memory_type.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/base/ucx/topology.h"
#include "uct/gaudi/copy/copy_md.h"
#include "uct/gaudi/ipc/ipc_md.h"

#include <cstdio>

#include <dlfcn.h>

namespace {

ucs_status_t load()
{
    using namespace gaudi;

    base::warn_by_ucx();
    if (!base::init_config() || !base::init_memory_type()) {
        return UCS_ERR_UNSUPPORTED;
    }
    base::init_topology();
    base::init_memory_events([](auto &allocations) {
        base::memory_map::instance().collect_allocations(allocations);
    });
    base::card_events::look_for_driver();
    init_perftest();
    copy::register_component();
    ipc::register_component();
    return UCS_OK;
}

bool registered = false;

/* As UCX says of itself. */
void tell_version()
{
    Dl_info self;

    if (dladdr(&registered, &self) != 0) {
        ucs_info("Gaudi transports %d.%d.%d for UCX " GAUDI_UCX_VERSION
                 " (loaded from %s)",
                 UCX_GAUDI_VERSION_MAJOR, UCX_GAUDI_VERSION_MINOR,
                 UCX_GAUDI_VERSION_PATCH, self.dli_fname);
    }
}

__attribute__((constructor)) void module_init()
{
    registered = (gaudi::base::guarded(load) == UCS_OK);
    if (registered) {
        tell_version();
    }
}

} // namespace

/* Asked by `ucx-gaudi info` in a child process: prints the report in a line,
 * and before it each library that is loaded for it, which may end the child.
 * @return Whether UCX has the components, and it was printed. */
extern "C" [[gnu::visibility("default")]] int uct_gaudi_report()
{
    const auto print = [] {
        gaudi::shim::tell_before_loading([](const char *path) {
            std::printf("\n- loading and asking %s\n", path);
            std::fflush(stdout);
        });
        /* A line of its own, whatever others have printed. */
        std::printf("\n%s\n",
                    gaudi::shim::to_json(gaudi::base::make_report()).c_str());
        return (std::fflush(stdout) == 0) ? UCS_OK : UCS_ERR_IO_ERROR;
    };
    return (registered && (gaudi::base::guarded(print) == UCS_OK)) ? 1 : 0;
}
