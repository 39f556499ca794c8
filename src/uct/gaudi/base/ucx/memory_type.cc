/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/memory_type.h"

#include "uct/gaudi/base/ucx/config.h"
#include "util/transport_list.h"

#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>

#include <dlfcn.h>
#include <link.h>

namespace gaudi_absent {
inline constexpr auto UCS_MEMORY_TYPE_GAUDI     = UCS_MEMORY_TYPE_UNKNOWN;
inline constexpr auto UCS_MEMORY_TYPE_ZE_DEVICE = UCS_MEMORY_TYPE_UNKNOWN;
} // namespace gaudi_absent
using namespace gaudi_absent; /* NOLINT(google-build-using-namespace) */

namespace gaudi::base {

namespace {

struct candidate {
    const char *name; /* UCX's, and the value of UCX_GAUDI_MEMORY_TYPE */
    ucs_memory_type_t type;
    const char *module; /* UCX's own transport for it */
};

constexpr candidate native = {"gaudi", ::UCS_MEMORY_TYPE_GAUDI, ""};

/* Types that can stand for ours. The first one whose own module is not
 * installed is taken. Not CUDA: a default of UCP's configuration names it and
 * would no longer parse. Not ROCm from 1.17 on, with which allocations of
 * UCX 1.18 fail. */
constexpr candidate others[] = {
    (UCT_API >= UCT_VERSION(1, 17))
        ? candidate{"ze-device", ::UCS_MEMORY_TYPE_ZE_DEVICE, "ze"}
        : candidate{"rocm", UCS_MEMORY_TYPE_ROCM, "rocm"},
    {"cuda-managed", UCS_MEMORY_TYPE_CUDA_MANAGED, "cuda"}};

ucs_memory_type_t taken = UCS_MEMORY_TYPE_UNKNOWN;

/* Whether UCX's own transport for a type lies where UCX looks for it: beside
 * libucs, which may be a link of a slot, and where UCX_MODULE_DIR says. */
bool is_installed(const char *name)
{
    const auto is_beside = [name](const std::string &file) {
        const auto folder = file.substr(0, file.rfind('/') + 1) + "ucx";
        return gaudi_has_module(folder.c_str(), name) != 0;
    };
    Dl_info info;
    char resolved[PATH_MAX];
    if ((dladdr(reinterpret_cast<void *>(&ucs_log_dispatch), &info) != 0) &&
        (is_beside(info.dli_fname) ||
         ((realpath(info.dli_fname, resolved) != nullptr) &&
          is_beside(resolved)))) {
        return true;
    }
    return (ucs_global_opts.module_dir != nullptr) &&
           gaudi_has_module(ucs_global_opts.module_dir, name);
}

/* For how many types a list of UCX has room. UCX uses the list of the program
 * if the program names it, with the room that there was when it was linked:
 * fewer types, where that was with an older release. */
size_t room_of(const char *const *list)
{
    void *symbol = nullptr;
    Dl_info info;
    /* Its second name: at its start there may be symbols without a size, such
     * as __bss_start of a program that exports all it has. */
    if ((dladdr1(list + 1, &info, &symbol, RTLD_DL_SYMENT) == 0) ||
        (symbol == nullptr)) {
        return UCS_MEMORY_TYPE_LAST;
    }
    return static_cast<const ElfW(Sym) *>(symbol)->st_size / sizeof(*list);
}

void take(ucs_memory_type_t type)
{
    taken = type;
    ucs_debug("gaudi: device memory is UCX memory type %d (%s)", type,
              ucs_memory_type_names[type]);
    ucs_memory_type_names[type] = native.name;
    if (type < room_of(ucs_memory_type_descs)) {
        ucs_memory_type_descs[type] = "Intel Gaudi device memory";
    }
}

} // namespace

bool init_memory_type()
{
    const std::string wanted = memory_type_at_load();
    const bool any           = (wanted == "auto");
    bool known               = any;
    std::string names; /* of those that can be taken */

    if (native.type != UCS_MEMORY_TYPE_UNKNOWN) {
        known = any || (wanted == native.name);
        names = std::string(", ") + native.name;
        if (known) {
            taken = native.type;
            return true;
        }
    } else {
        const size_t room = room_of(ucs_memory_type_names);
        if (room < UCS_MEMORY_TYPE_LAST) {
            ucs_warn("gaudi: this program was linked with an older UCX and has "
                     "room for %zu of %d memory types: Gaudi memory may be "
                     "another one than in other programs; link it again",
                     room, UCS_MEMORY_TYPE_LAST);
        }
        for (const candidate &each : others) {
            if (each.type >= room) {
                continue;
            }
            names += std::string(", ") + each.name;
            known |= (wanted == each.name);
            if ((wanted == each.name) || (any && !is_installed(each.module))) {
                take(each.type);
                return true;
            }
        }
    }

    if (!known) {
        ucs_error("UCX_GAUDI_MEMORY_TYPE=%s is not one of auto%s",
                  wanted.c_str(), names.c_str());
    } else {
        ucs_error("gaudi: the modules of all memory types that could stand for "
                  "Gaudi memory are installed; choose one to give up with "
                  "UCX_GAUDI_MEMORY_TYPE: one of %s",
                  names.c_str() + 2);
    }
    return false;
}

ucs_memory_type_t memory_type()
{
    return taken;
}

} // namespace gaudi::base
