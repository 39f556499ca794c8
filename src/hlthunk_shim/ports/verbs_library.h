/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The vendor's libhbl.so, by which a process uses the ports of its cards: one
 * dlopen, one table of functions. It is found as HabanaAI/HCL finds it
 * (hcl_ibv_loader.cpp), and may call plain verbs hlibv_*, as what it ships, or
 * ibv_*, as rdma-core does.
 *
 * Immutable after construction, so any thread may call through it. Never
 * unloaded.
 */
#pragma once

#include "hlthunk_shim/hlthunk/library.h"
#include "hlthunk_shim/ports/abi.h"

#include <cstdint>
#include <string>

namespace gaudi::shim {

class verbs_library {
public:
    /** @param driver  Whose cards it is for: software cards have a libhbl.so of
     *                 their own beside their libhl-thunk.so. */
    explicit verbs_library(const library &driver);

    verbs_library(const verbs_library &)            = delete;
    verbs_library &operator=(const verbs_library &) = delete;

    /** Why it cannot be used, in one line; empty: it can. */
    [[nodiscard]] const std::string &reason() const { return reason_; }

    /** The file that was loaded. */
    [[nodiscard]] const std::string &file() const { return file_; }

    /** Whether it shows a verbs device, as software cards have it that sysfs
     *  shows none of. @pre reason() is empty. */
    [[nodiscard]] bool has_device(const std::string &name) const;

    /**
     * Ask an open device for its ports.
     *
     * @param enabled  Ports of the card that are there, by the driver.
     * @param usable_p  Of these, those that the library lets us use; filled on
     *                  success only.
     * @return What is wrong; empty: nothing. A library whose structures are
     *         others than those of rdma-core or of HCL does not answer as they
     *         do.
     */
    [[nodiscard]] std::string find_ports(ibv_context *context, uint64_t enabled,
                                         uint64_t &usable_p) const;

#define PORT_SYMBOL(_name) decltype(&::_name) _name = nullptr;
#include "hlthunk_shim/ports/symbols.def"
#undef PORT_SYMBOL

private:
    void *open(const library &driver);

    std::string file_;
    std::string reason_;
};

} // namespace gaudi::shim
