/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The one place where the emulator moves bytes.
 *
 * A card keeps the pages that it has mapped; here the program may have unmapped
 * them. A copy that meets with that ends, and the process goes on: a
 * handler of SIGSEGV and SIGBUS sees to it, which hands on whatever does not
 * come from a copy. Any thread.
 */
#pragma once

#include <cstddef>

namespace gaudi::emu {

/** Install the handler, before the first card is open: it looks up a function
 *  of libc's, for which engines do not wait. */
void guard_copies();

/** Copy memory for a card, of which the program may have unmapped a part; the
 *  ranges may overlap.
 *  @return false: a part is not there, and some bytes may have been copied. */
[[nodiscard]] bool copy_if_there(char *dst, const char *src, size_t size);

/** Read a packet for an engine. @return As copy_if_there. */
[[nodiscard]] bool read_if_there(void *packet, const char *src, size_t size);

} // namespace gaudi::emu
