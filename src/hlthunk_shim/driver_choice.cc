#include "hlthunk_shim/driver_choice.h"

#include <glob.h>

namespace gaudi::shim {

namespace {

constexpr char vendor_library[] = "libhl-thunk.so";
constexpr char emulator[]       = "hlthunk-emu/libhl-thunk.so";

/* The compute nodes of new and old kernels. Others than habanalabs make accel
 * nodes too, but then hl-thunk finds no card, which is all the same here. */
bool machine_has_card(const std::string &dev)
{
    for (const char *pattern : {"/accel/accel[0-9]*", "/hl[0-9]*"}) {
        glob_t found{};
        const bool any =
            (glob((dev + pattern).c_str(), GLOB_NOSORT, nullptr, &found) == 0);
        globfree(&found);
        if (any) {
            return true;
        }
    }
    return false;
}

} // namespace

driver_choice choose_driver(const std::string &text,
                            const std::string &directory,
                            const std::string &dev)
{
    using outcome = driver_choice::outcome;

    if (text == "auto") {
        return machine_has_card(dev)
                   ? driver_choice{outcome::library, vendor_library}
                   : driver_choice{outcome::no_card, ""};
    }
    if (text == "hlthunk") {
        return {outcome::library, vendor_library};
    }
    if (text == "emulator") {
        return {outcome::library, directory + "/" + emulator};
    }
    if (text.find('/') == std::string::npos) {
        return {outcome::invalid, ""};
    }
    return {outcome::library, text};
}

} // namespace gaudi::shim
