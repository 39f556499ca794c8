/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/ports/verbs_library.h"

#include "hlthunk_shim/ports/links.h"
#include "util/process.h"

#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <dlfcn.h>

namespace gaudi::shim {

namespace {

constexpr char file_name[] = "libhbl.so";

/* GCFG_HCL_RDMA_DEFAULT_PATH in HCL. */
constexpr char default_folder[] = "/opt/habanalabs/rdma-core/src/build/lib/";

/* Folders to look in, as prefixes of the name; empty: as the dynamic linker
 * does. */
std::vector<std::string> folders_for(const library &driver)
{
    /* The cards of a library that has our extension are no other one's. */
    if (driver.hlthunk_sys_box != nullptr) {
        Dl_info info;
        const bool found =
            dladdr(reinterpret_cast<void *>(driver.hlthunk_open), &info) != 0;
        const std::string beside = found ? info.dli_fname : "";
        return {beside.substr(0, beside.rfind('/') + 1)};
    }
    const char *folder = secure_getenv("RDMA_CORE_LIB");
    return {((folder != nullptr) && (*folder != '\0'))
                ? std::string(folder) + "/"
                : std::string(),
            default_folder};
}

} // namespace

void *verbs_library::open(const library &driver)
{
    for (const std::string &folder : folders_for(driver)) {
        const std::string path = folder + file_name;
        void *handle           = util::open_loaded(path.c_str());
        if (handle == nullptr) {
            handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        }
        if (handle != nullptr) {
            reason_.clear();
            return handle;
        }
        /* What is wrong with one that is there tells more than that another is
         * not. */
        const char *error = dlerror();
        if (reason_.empty() || (error == nullptr) ||
            (std::strstr(error, "No such file") == nullptr)) {
            reason_ = (error != nullptr) ? error : "dlopen failed";
        }
    }
    return nullptr;
}

verbs_library::verbs_library(const library &driver)
{
    void *handle = open(driver);
    if (handle == nullptr) {
        return;
    }
    const bool renamed = dlsym(handle, "hlibv_get_device_list") != nullptr;
    std::string missing;
    const auto look_up = [&](std::string name) {
        if (renamed && name.starts_with("ibv_")) {
            name.insert(0, "hl");
        }
        void *found = dlsym(handle, name.c_str());
        if (found == nullptr) {
            missing += (missing.empty() ? "" : ", ") + name;
        }
        return found;
    };
#define PORT_SYMBOL(_name)                                                     \
    _name = reinterpret_cast<decltype(_name)>(look_up(#_name));
#include "hlthunk_shim/ports/symbols.def"
#undef PORT_SYMBOL
    Dl_info info;
    file_ = ((hbldv_open_device != nullptr) &&
             (dladdr(reinterpret_cast<void *>(hbldv_open_device), &info) != 0))
                ? info.dli_fname
                : file_name;
    if (!missing.empty()) {
        reason_ = file_ + " lacks " + missing;
    }
}

bool verbs_library::has_device(const std::string &name) const
{
    int count          = 0;
    bool found         = false;
    ibv_device **known = ibv_get_device_list(&count);
    for (int i = 0; (known != nullptr) && (i < count); ++i) {
        found |= (name == ibv_get_device_name(known[i]));
    }
    if (known != nullptr) {
        ibv_free_device_list(known);
    }
    return found;
}

/* The structure is another one in HCL's header (abi.h): what was written tells
 * which it is. */
std::string verbs_library::find_ports(ibv_context *context, uint64_t enabled,
                                      uint64_t &usable_p) const
{
    struct hcl_device_attr {
        uint64_t caps;
        uint8_t num_ports;
        uint64_t ext_ports_mask;
        uint64_t hw_ports_mask;
    };
    constexpr unsigned char untouched = 0xa5;
    alignas(8) std::array<unsigned char, 256> room;
    room.fill(untouched);

    const int ret = hbldv_query_device(
        context, reinterpret_cast<hbldv_device_attr *>(room.data()));
    if (ret != 0) {
        return file_ + ": hbldv_query_device: " + std::strerror(ret);
    }
    size_t written = room.size();
    while ((written > 0) && (room[written - 1] == untouched)) {
        --written;
    }
    uint64_t usable = 0;
    if (written <= sizeof(hbldv_device_attr)) {
        hbldv_device_attr known;
        std::memcpy(&known, room.data(), sizeof(known));
        for (unsigned port = 0; port < 64; ++port) {
            const unsigned number = verbs_port(enabled, port);
            if ((number != 0) && (number < 64) &&
                (((known.ports_mask >> number) & 1) != 0)) {
                usable |= uint64_t{1} << port;
            }
        }
    } else if (written <= sizeof(hcl_device_attr)) {
        hcl_device_attr known;
        std::memcpy(&known, room.data(), sizeof(known));
        if (std::popcount(known.hw_ports_mask) == known.num_ports) {
            usable = known.hw_ports_mask & enabled;
        }
    }
    if ((usable == 0) && (enabled != 0)) {
        return file_ + " answers neither as rdma-core's nor as HCL's: it has "
                       "structures that this release does not know";
    }
    usable_p = usable;
    return "";
}

} // namespace gaudi::shim
