/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The software Gaudi as a test process loads it: the shim's table, the hooks,
 * and the driver functions that the shim has no use for.
 *
 * GAUDI_TEST_HLTHUNK names another library than the one of this build.
 */
#pragma once

#include "hlthunk_emulator/hlthunk_emu.h"
#include "hlthunk_shim/discovery/driver.h"
#include "hlthunk_shim/hlthunk/library.h"

#include <string>

namespace gaudi::test {

/** The file that tests load. */
std::string emulator_path();

class emulator {
public:
    /** The one of this process; aborts when it cannot be loaded. */
    static const emulator &instance();

    /** Looks up the names of the library, which aborts as well. */
    emulator();

    shim::driver driver;

#define EMULATOR_SYMBOL(_result, _name, _parameters)                           \
    _result(*_name) _parameters = nullptr;
#include "common/emulator_symbols.def"
#undef EMULATOR_SYMBOL
};

/** While one lives, the cards meet with faults, see hlthunk_emu_fault. What
 *  has happened to a card stays. */
class wished_faults {
public:
    explicit wished_faults(const std::string &faults);
    ~wished_faults();
    wished_faults(const wished_faults &)            = delete;
    wished_faults &operator=(const wished_faults &) = delete;
};

/** Shorthand: the driver functions of the shim's table. */
const shim::library &hl();

/** What the cards of the box allocate their memory in, bytes. */
uint64_t device_page();

/** What programs can have of a card of the box, bytes. */
uint64_t device_bytes();

/** Bus id of a card of the box. */
std::string bus_id(unsigned index);

} // namespace gaudi::test
