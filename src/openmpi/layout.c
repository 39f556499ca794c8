/* SPDX-License-Identifier: BSD-3-Clause */
#include "openmpi/openmpi.h"

#include "openmpi/abi.h"

#include <dlfcn.h>
#include <link.h>

void *gaudi_mpi_variable(const void *return_address, const char *name,
                         size_t *size_p)
{
    const ElfW(Sym) *symbol = NULL;
    Dl_info info;
    void *library, *variable;

    if (!dladdr(return_address, &info)) {
        return NULL;
    }
    /* Not by name alone: Open MPI may be in a scope of its own. */
    library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL) {
        return NULL;
    }
    variable = dlsym(library, name);
    if ((variable != NULL) &&
        dladdr1(variable, &info, (void **)&symbol, RTLD_DL_SYMENT)) {
        *size_p = (symbol != NULL) ? symbol->st_size : 0;
    }
    dlclose(library);
    return variable;
}

bool gaudi_mpi_class_has_size(const void *return_address, const char *name,
                              size_t size)
{
    size_t own = 0;
    const struct mpi5_class *found =
        gaudi_mpi_variable(return_address, name, &own);

    return (found != NULL) && (own == sizeof(*found)) && (found->size == size);
}
