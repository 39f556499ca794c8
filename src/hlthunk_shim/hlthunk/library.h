/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Owns the driver library: one dlopen, one table of function pointers.
 *
 * Immutable after construction, so any thread may call through it. Never
 * unloaded: driver libraries start threads and profiler hooks of their own.
 */
#pragma once

#include "hlthunk_shim/hlthunk/abi.h"

#include <string>

namespace gaudi::shim {

struct card_kind;

class library {
public:
    /**
     * Load the driver library.
     *
     * @param path  File to load, or a bare name for the loader's search path.
     * @param unknown  What @ref kind_of takes unknown cards for.
     */
    explicit library(const std::string &path,
                     hlthunk_device_name unknown = HLTHUNK_DEVICE_INVALID);

    library(const library &)            = delete;
    library &operator=(const library &) = delete;

    /** Whether the library and all its required symbols are there. */
    [[nodiscard]] bool usable() const { return reason_.empty(); }

    /** Why the library is not usable; empty when it is. */
    [[nodiscard]] const std::string &reason() const { return reason_; }

    /** The optional symbols of hl-thunk's that it does not have. */
    [[nodiscard]] const std::string &lacks() const { return lacks_; }

    /** What was asked for at construction. */
    [[nodiscard]] const std::string &path() const { return path_; }

    /** Of which kind a card is.
     *  @param fd      Of one of its nodes.
     *  @param pci_id  As the driver tells it, in hlthunk_hw_ip_info. */
    [[nodiscard]] const card_kind &kind_of(int fd, uint32_t pci_id) const;

    /**
     * Address of a symbol that is not in the table, for hooks of the emulator.
     *
     * @return nullptr when the library does not export it.
     */
    [[nodiscard]] void *find(const char *symbol) const;

    /** Whether the process had it before, so that others may call it through
     *  pointers of their own. */
    [[nodiscard]] bool was_loaded() const { return was_loaded_; }

    /** Call another function than the one that the library has by this name.
     *  Before anything is called; what is not used here is left alone. */
    void redirect(const char *function, void *to);

    /** The loader's handle; nullptr when the library could not be loaded. */
    [[nodiscard]] void *handle() const { return handle_; }

#define HLTHUNK_SYMBOL(_need, _result, _name, _parameters)                     \
    _result(*_name) _parameters = nullptr;
#include "hlthunk_shim/hlthunk/symbols.def"
#undef HLTHUNK_SYMBOL

private:
    std::string path_;
    std::string reason_;
    std::string lacks_;
    hlthunk_device_name unknown_;
    void *handle_    = nullptr;
    bool was_loaded_ = false;
};

} // namespace gaudi::shim
