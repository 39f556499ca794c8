#include "uct/gaudi/base/ucx/memory_type.h"

#include "uct/gaudi/base/ucx/config.h"

#include <cstring>
#include <string>

#include <dlfcn.h>
#include <unistd.h>

namespace gaudi::base {

namespace {

struct candidate {
    ucs_memory_type_t type;
    const char *name;   /* value of UCX_GAUDI_MEMORY_TYPE */
    const char *module; /* UCX's own transport for it */
};

/* The first whose own module is not installed is taken. Not CUDA: a default of
 * UCP's configuration names it and would no longer parse. */
constexpr candidate candidates[] = {
    {UCS_MEMORY_TYPE_ROCM, "rocm", "rocm"},
    {UCS_MEMORY_TYPE_CUDA_MANAGED, "cuda-managed", "cuda"}};

ucs_memory_type_t taken = UCS_MEMORY_TYPE_UNKNOWN;

/* Whether UCX's own transport for this type lies where UCX looks for it. */
bool is_native(const candidate &type)
{
    std::string directory;
    const char *override = getenv("UCX_MODULE_DIR");
    Dl_info info;

    if (override != nullptr) {
        directory = override;
    } else if (dladdr(reinterpret_cast<void *>(&ucs_log_dispatch), &info) !=
               0) {
        directory = info.dli_fname;
        directory.erase(directory.rfind('/') + 1);
        directory += "ucx";
    }
    const std::string module = directory + "/libuct_" + type.module + ".so.0";
    return access(module.c_str(), F_OK) == 0;
}

} // namespace

bool init_memory_type()
{
    const char *wanted = config().memory_type;
    const bool any     = (std::strcmp(wanted, "auto") == 0);
    bool known         = any;

    for (const candidate &type : candidates) {
        if (!any && (std::strcmp(wanted, type.name) != 0)) {
            continue;
        }
        known = true;
        if (any && is_native(type)) {
            continue;
        }
        taken                        = type.type;
        ucs_memory_type_names[taken] = "gaudi";
        ucs_memory_type_descs[taken] = "Intel Gaudi device memory";
        ucs_debug("gaudi: device memory is UCX memory type %d (%s)", taken,
                  type.name);
        return true;
    }

    if (!known) {
        ucs_error("UCX_GAUDI_MEMORY_TYPE=%s is not one of auto, rocm, "
                  "cuda-managed",
                  wanted);
    } else {
        ucs_error("gaudi: the modules of all memory types that could stand for "
                  "Gaudi memory are installed; choose one to give up with "
                  "UCX_GAUDI_MEMORY_TYPE=rocm or cuda-managed");
    }
    return false;
}

ucs_memory_type_t memory_type()
{
    return taken;
}

} // namespace gaudi::base
