/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The functions of SynapseAI, as one library of the process has them.
 *
 * Found in the libSynapse.so that the process has loaded, and in that alone:
 * other libraries of a framework have functions of the same names, which pass
 * on to it.
 */
#pragma once

#include "hlthunk_shim/abi/synapse.h"
#include "hlthunk_shim/library/symbol_table.h"

#include <memory>
#include <string>

namespace gaudi::shim {

class synapse_functions : public symbol_table {
public:
    static constexpr char no_acquisition[] =
        "libSynapse.so lacks functions to acquire a device";

    /** Find the library that the process has loaded.
     *  @param load   Load it when the process has none.
     *  @param why_p  Set when nullptr is returned: there is none, or one that
     *                lacks a function. */
    static std::unique_ptr<const synapse_functions> find(bool load,
                                                         std::string &why_p);

    /** Whether it has what acquires and releases a device; else
     *  @ref no_acquisition says so. */
    [[nodiscard]] bool can_acquire() const
    {
        return (synInitialize != nullptr) && (synDestroy != nullptr) &&
               (synDeviceAcquire != nullptr) && (synDeviceRelease != nullptr);
    }

    /** Whether code is SynapseAI's. */
    [[nodiscard]] static bool has_code(const void *code);

#define SYNAPSE_SYMBOL(_need, _result, _name, _parameters)                     \
    _result(*_name) _parameters = nullptr;
#include "hlthunk_shim/synapse/symbols.def"
#undef SYNAPSE_SYMBOL

private:
    bool open(bool load);
};

/**
 * What a status of SynapseAI is as an errno.
 *
 * @return 0 or -errno: -EAGAIN for what is not done or has no room now, -ENODEV
 *         when SynapseAI has no device any more.
 */
[[nodiscard]] int to_error(synStatus status);

} // namespace gaudi::shim
