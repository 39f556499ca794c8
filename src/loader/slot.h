/*
 * Slot loading: UCX's loader opens this file under another module's name.
 *
 * It takes the first file of a name that it finds. Where a link with that name
 * leads to this file, the other module is displaced, and brought in here.
 */
#pragma once

/*
 * Load the modules that links to this file displace: what UCX's loader would
 * have found without the links. As there, a module that cannot be loaded is a
 * line at debug level and no failure. Called under the lock of UCX's loader.
 */
void gaudi_load_displaced_modules(void);
