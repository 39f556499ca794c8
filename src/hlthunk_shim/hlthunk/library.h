/* SPDX-License-Identifier: BSD-3-Clause */
/** The functions of libhl-thunk. */
#pragma once

#include "hlthunk_shim/abi/hlthunk.h"
#include "hlthunk_shim/library/symbol_table.h"

#include <string>

namespace gaudi::shim {

struct card_kind;

class library : public symbol_table {
public:
    /**
     * Load the driver library.
     *
     * @param path  File to load, or a bare name for the loader's search path.
     * @param unknown  What @ref kind_of takes unknown cards for.
     */
    explicit library(const std::string &path,
                     hlthunk_device_name unknown = HLTHUNK_DEVICE_INVALID);

    /** What was asked for at construction. */
    [[nodiscard]] const std::string &path() const { return path_; }

    /** Of which kind a card is.
     *  @param fd      Of one of its nodes.
     *  @param pci_id  As the driver tells it, in hlthunk_hw_ip_info. */
    [[nodiscard]] const card_kind &kind_of(int fd, uint32_t pci_id) const;

    /** Call another function than the one that the library has by this name.
     *  Before anything is called; what is not used here is left alone. */
    void redirect(const char *function, void *to);

#define HLTHUNK_SYMBOL(_need, _result, _name, _parameters)                     \
    _result(*_name) _parameters = nullptr;
#include "hlthunk_shim/hlthunk/symbols.def"
#undef HLTHUNK_SYMBOL

private:
    std::string path_;
    hlthunk_device_name unknown_;
};

} // namespace gaudi::shim
