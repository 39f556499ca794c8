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

/* The file of this loader, without links. Returns 0 when it is gone. */
int gaudi_own_file(char path[PATH_MAX]);
