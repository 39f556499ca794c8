/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/memory_type.h"

#include "uct/gaudi/base/ucx/config.h"
#include "util/process.h"
#include "util/transport_list.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include <dlfcn.h>
#include <link.h>

namespace gaudi::base {

namespace {

constexpr char gaudi[] = "gaudi";

/* Types that can stand for ours. The first one that this release has, and whose
 * own module is not installed, is taken. Not CUDA: a default of UCP's
 * configuration names it and would no longer parse. Not ROCm from 1.17 on, with
 * which allocations of UCX 1.18 fail. */
constexpr struct {
    const char *name;   /* UCX's, and the value of UCX_GAUDI_MEMORY_TYPE */
    const char *module; /* UCX's own transport for it */
} candidates[] = {
#if UCT_API >= UCT_VERSION(1, 17)
    {"ze-device", "ze"},
#else
    {"rocm", "rocm"},
#endif
    {"cuda-managed", "cuda"}};

ucs_memory_type_t taken = UCS_MEMORY_TYPE_UNKNOWN;

/* Whether UCX's own transport for a type lies where UCX looks for it: beside
 * libucs, which may be a link of a slot, and where UCX_MODULE_DIR says. */
bool is_installed(const char *name)
{
    const auto is_in = [&](const std::string &folder) {
        return gaudi_has_module(folder.c_str(), name);
    };
    const auto beside = [](const std::string &file) {
        return file.substr(0, file.rfind('/') + 1) + "ucx";
    };
    Dl_info info;
    if (dladdr(reinterpret_cast<void *>(&ucs_log_dispatch), &info) != 0) {
        char resolved[PATH_MAX];
        if (is_in(beside(info.dli_fname)) ||
            ((realpath(info.dli_fname, resolved) != nullptr) &&
             is_in(beside(resolved)))) {
            return true;
        }
    }
    return (ucs_global_opts.module_dir != nullptr) &&
           is_in(ucs_global_opts.module_dir);
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
    const size_t bytes = static_cast<const ElfW(Sym) *>(symbol)->st_size;
    return std::min<size_t>(bytes / sizeof(*list), UCS_MEMORY_TYPE_LAST);
}

/* UCX's own list of names, which is whole whatever a program has. */
const char *const *names_of_ucx()
{
    void *libucs =
        util::open_library_at(reinterpret_cast<void *>(&ucs_log_dispatch));
    if (libucs == nullptr) {
        return nullptr;
    }
    const auto *names = static_cast<const char *const *>(
        dlsym(libucs, "ucs_memory_type_names"));
    dlclose(libucs); /* it stays, this module needs it */
    return names;
}

/* By its name in UCX's list: there are more in later releases. */
std::optional<ucs_memory_type_t> find_type(const char *name)
{
    const char *const *names = names_of_ucx();
    for (unsigned type = 0; (names != nullptr) && (type < UCS_MEMORY_TYPE_LAST);
         ++type) {
        if (std::strcmp(names[type], name) == 0) {
            return static_cast<ucs_memory_type_t>(type);
        }
    }
    return std::nullopt;
}

void refuse(const char *wanted, const std::string &names)
{
    ucs_error("UCX_GAUDI_MEMORY_TYPE=%s is not one of auto%s", wanted,
              names.c_str());
}

void take(ucs_memory_type_t type)
{
    taken = type;
    ucs_debug("gaudi: device memory is UCX memory type %d (%s)", type,
              ucs_memory_type_names[type]);
    ucs_memory_type_names[type] = gaudi;
    if (type < room_of(ucs_memory_type_descs)) {
        ucs_memory_type_descs[type] = "Intel Gaudi device memory";
    }
}

} // namespace

bool init_memory_type()
{
    const char *wanted = memory_type_at_load();
    const bool any     = (std::strcmp(wanted, "auto") == 0);
    bool known         = any;
    std::string names; /* of those that this release has */

    if (const auto own = find_type(gaudi)) { /* from 1.21 on */
        if (!any && (std::strcmp(wanted, gaudi) != 0)) {
            refuse(wanted, ", gaudi");
            return false;
        }
        taken = *own;
        return true;
    }
    const size_t room = room_of(ucs_memory_type_names);
    if (room < UCS_MEMORY_TYPE_LAST) {
        ucs_warn("gaudi: this program was linked with an older UCX and has "
                 "room for %zu of %d memory types: Gaudi memory may be "
                 "another one than in other programs; link it again",
                 room, UCS_MEMORY_TYPE_LAST);
    }
    for (const auto &candidate : candidates) {
        const auto type = find_type(candidate.name);
        if (!type.has_value() || (*type >= room)) {
            continue;
        }
        names += std::string(", ") + candidate.name;
        if (!any && (std::strcmp(wanted, candidate.name) != 0)) {
            continue;
        }
        known = true;
        if (!any || !is_installed(candidate.module)) {
            take(*type);
            return true;
        }
    }

    if (!known) {
        refuse(wanted, names);
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
