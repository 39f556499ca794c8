/**
 * Sees what the application asks of the driver library.
 *
 * The functions of each loaded libhl-thunk.so that open and close cards, and
 * give out and take back device memory, lead to hooks wherever they are called
 * from a library, and for who looks them up with dlsym from then on. No code is
 * changed, and nothing of the library's names is exported. What others do
 * through pointers that they had before is not seen; memory that they map is
 * found by asking the driver how much of it there is.
 *
 * UCX's own module for Gaudi memory is not the application: a card that it
 * opens for itself is left to it, and it is lent none.
 */
#pragma once

namespace gaudi::base {

/** Hook the library that the process has loaded by now, if there is one. Cheap
 *  when there is nothing new. Called at load; later ones are hooked when cards
 *  are opened. The table of the one that this module uses is made to lead to
 * the original functions, so that what we do ourselves is never seen. */
void hook_loaded_driver();

} // namespace gaudi::base
