/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/hlthunk/library.h"

#include "hlthunk_shim/hlthunk/card_kinds.h"
#include "util/process.h"

#include <string_view>

#include <dlfcn.h>

namespace gaudi::shim {

namespace {

/* Whether a symbol is of our extension. */
bool is_own(std::string_view name)
{
    return name.starts_with("hlthunk_sys_");
}

} // namespace

library::library(const std::string &path, hlthunk_device_name unknown)
    : path_(path), unknown_(unknown)
{
    handle_     = util::open_loaded(path.c_str());
    was_loaded_ = (handle_ != nullptr);
    if (!was_loaded_) {
        handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    if (handle_ == nullptr) {
        const char *error = dlerror();
        reason_           = (error != nullptr) ? error : "dlopen failed";
        return;
    }

    constexpr bool required = true;
    constexpr bool optional = false;
    std::string missing;
#define HLTHUNK_SYMBOL(_need, _result, _name, _parameters)                     \
    _name = reinterpret_cast<decltype(_name)>(dlsym(handle_, #_name));         \
    if ((_name == nullptr) && !is_own(#_name)) {                               \
        std::string &list = _need ? missing : lacks_;                          \
        list += (list.empty() ? "" : ", ") + std::string(#_name);              \
    }
#include "hlthunk_shim/hlthunk/symbols.def"
#undef HLTHUNK_SYMBOL
    if (!missing.empty()) {
        reason_ = path + " lacks " + missing;
    }
}

void library::redirect(const char *function, void *to)
{
    const std::string_view wanted = function;
#define HLTHUNK_SYMBOL(_need, _result, _name, _parameters)                     \
    if (wanted == #_name) {                                                    \
        _name = reinterpret_cast<decltype(_name)>(to);                         \
    }
#include "hlthunk_shim/hlthunk/symbols.def"
#undef HLTHUNK_SYMBOL
}

const card_kind &library::kind_of(int fd, uint32_t pci_id) const
{
    const card_kind &found =
        find_kind(pci_id, hlthunk_get_device_name_from_fd(fd));
    return is_known(found) ? found : find_kind(0, unknown_);
}

void *library::find(const char *symbol) const
{
    return (handle_ != nullptr) ? dlsym(handle_, symbol) : nullptr;
}

} // namespace gaudi::shim
