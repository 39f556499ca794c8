/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/hlthunk/library.h"

#include "hlthunk_shim/hlthunk/card_kinds.h"

#include <string_view>

namespace gaudi::shim {

library::library(const std::string &path, hlthunk_device_name unknown)
    : path_(path), unknown_(unknown)
{
    if (!open(path)) {
        return;
    }
    /* Those of our extension, which the vendor's does not have. */
    const auto need_of = [](std::string_view name, need known) {
        return name.starts_with("hlthunk_sys_") ? need::extension : known;
    };
    using enum need;
#define HLTHUNK_SYMBOL(_need, _result, _name, _parameters)                     \
    look_up(_name, #_name, need_of(#_name, _need));
#include "hlthunk_shim/hlthunk/symbols.def"
#undef HLTHUNK_SYMBOL
    finish(path);
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

} // namespace gaudi::shim
