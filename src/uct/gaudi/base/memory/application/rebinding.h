/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Has functions of a loaded library lead elsewhere, by what the dynamic linker
 * goes by: its data, never code. Other threads may call, look up and fork
 * meanwhile; each of them meets the one function or the other.
 *
 * A pointer that somebody got from dlsym before stays what it is.
 */
#pragma once

#include <span>

namespace gaudi::base {

/** A function that a library exports, and what is called in its place. */
struct rebinding {
    const char *name;
    const void *original; /**< as dlsym gave it at first */
    const void *replacement;
};

/**
 * Give out replacements wherever the library's names are looked up from now on:
 * by dlsym, for libraries that are loaded later, and at a first call.
 *
 * @param handle  Of the library. What was done already stays done.
 * @return false when its table of symbols is not to be changed: nothing is.
 */
[[nodiscard]] bool rebind_symbols(void *handle,
                                  std::span<const rebinding> functions);

/** Replace what the dynamic linker has filled in for calls and pointers of all
 *  libraries that are loaded by now.
 *
 * @param library  The SONAME of the one whose functions they are.
 * @return Whether one of these is linked with it. Where none is, somebody has
 *         opened it and looked its functions up, which nobody sees. */
[[nodiscard]] bool rebind_slots(const char *library,
                                std::span<const rebinding> functions);

} // namespace gaudi::base
