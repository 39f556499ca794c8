/*
 * The modules that belong to this loader.
 */
#pragma once

#include "loader/running_ucx.h"

#include <stddef.h>

/*
 * The path of the module for the running UCX.
 *
 * Returns 0, after a line that names what is installed and what to do, when
 * there is none.
 */
int gaudi_find_module(const struct gaudi_ucx *ucx, char *path, size_t size);

/*
 * The file of this loader, without links; "" when it is gone.
 *
 * It is found at the first call, which the loader's constructor makes: its name
 * may be relative to the folder that the program was started in.
 */
const char *gaudi_own_file(void);
