/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The vendor's libhbl.so, by which a process uses the ports of its cards. It is
 * found as HabanaAI/HCL finds it
 * (hcl_ibv_loader.cpp), and may call plain verbs hlibv_*, as what it ships, or
 * ibv_*, as rdma-core does.
 */
#pragma once

#include "hlthunk_shim/abi/ports.h"
#include "hlthunk_shim/hlthunk/library.h"

#include <cstdint>
#include <string>

namespace gaudi::shim {

class verbs_library : public symbol_table {
public:
    /** @param driver  Whose cards it is for: software cards have a libhbl.so of
     *                 their own beside their libhl-thunk.so. */
    explicit verbs_library(const library &driver);

    /** The file that was loaded. */
    [[nodiscard]] const std::string &file() const { return file_; }

    /** Whether it shows a verbs device, as software cards have it that sysfs
     *  shows none of. @pre reason() is empty. */
    [[nodiscard]] bool has_device(const std::string &name) const;

#define PORT_SYMBOL(_name) decltype(&::_name) _name = nullptr;
#include "hlthunk_shim/ports/symbols.def"
#undef PORT_SYMBOL

private:
    std::string file_;
};

} // namespace gaudi::shim
