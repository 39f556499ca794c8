/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/ports/verbs_library.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

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
        const std::string beside = symbol_table::file_of(
            reinterpret_cast<void *>(driver.hlthunk_open));
        return {beside.substr(0, beside.rfind('/') + 1)};
    }
    const char *folder = secure_getenv("RDMA_CORE_LIB");
    return {((folder != nullptr) && (*folder != '\0'))
                ? std::string(folder) + "/"
                : std::string(),
            default_folder};
}

} // namespace

verbs_library::verbs_library(const library &driver)
{
    if (!std::ranges::any_of(folders_for(driver),
                             [&](const std::string &folder) {
                                 return open(folder + file_name);
                             })) {
        return;
    }
    const bool renamed = (find("hlibv_get_device_list") != nullptr);
    const auto name_of = [&](const std::string &name) {
        return (renamed && name.starts_with("ibv_")) ? "hl" + name : name;
    };
#define PORT_SYMBOL(_name) look_up(_name, name_of(#_name), need::required);
#include "hlthunk_shim/ports/symbols.def"
#undef PORT_SYMBOL
    file_ = file_of(reinterpret_cast<void *>(hbldv_open_device));
    finish(file_.empty() ? file_name : file_);
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

} // namespace gaudi::shim
