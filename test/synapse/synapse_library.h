/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The stand-in for SynapseAI in a test's own process.
 */
#pragma once

#include "synapse/stand_in.h"

#include <string>

namespace gaudi::test {

/** The folder that it lies in. */
std::string synapse_folder();

class synapse_library {
public:
    /** Loaded as a framework does; aborts when it cannot be. */
    static const synapse_library &instance();

#define STAND_IN_SYMBOL(_result, _name, _parameters)                           \
    _result(*_name) _parameters = nullptr;
#include "synapse/stand_in_symbols.def"
#undef STAND_IN_SYMBOL

private:
    synapse_library();
};

/** Shorthand: its functions. */
inline const synapse_library &synapse()
{
    return synapse_library::instance();
}

} // namespace gaudi::test
