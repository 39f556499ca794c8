/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The emulator that is linked into the double: its cards hold the memory and
 * move the bytes. Of its functions these are hl-thunk's; here nothing but the
 * double calls them, and only inside of @ref own_call.
 */
#pragma once

#include "hlthunk_emulator/hlthunk_emu.h"
#include "hlthunk_shim/abi/hlthunk.h"

#define HLTHUNK_SYMBOL(_need, _result, _name, _parameters)                     \
    extern "C" _result _name _parameters;
#include "hlthunk_shim/hlthunk/symbols.def"
#undef HLTHUNK_SYMBOL

namespace gaudi::kernel_double {

/** While one lives, system calls of this thread are the emulator's own and
 *  pass through the double. */
class own_call {
public:
    own_call() { ++depth; }
    ~own_call() { --depth; }
    own_call(const own_call &)            = delete;
    own_call &operator=(const own_call &) = delete;

    static bool is_active() { return depth > 0; }

private:
    static thread_local int depth;
};

/** What a descriptor of this process is. */
enum class node { none, compute, control, inherited };

struct node_of_card {
    node kind     = node::none;
    unsigned card = 0;
};

/** @param thorough  Also find duplicates, which takes locks of cards. */
node_of_card find_node(int fd, bool thorough);

} // namespace gaudi::kernel_double
