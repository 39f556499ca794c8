/*
 * The functions of ucx_gaudi.h: programs link the loader, and the module has
 * them. Where there is no module, no memory is a card's and no card is open.
 *
 * Only the calling convention matters here, their types are those of
 * ucx_gaudi.h. ucs_status_t is a packed enumeration, as in the wrappers.
 */
#include "loader/loader.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

typedef signed char status_t;

/* As ucs/type/status.h has them. */
enum { STATUS_NO_DEVICE = -14, STATUS_INVALID_ADDR = -7 };

/* The module's function of a forwarder. A program that is linked with nothing
 * else of UCX gets it here. */
static void *forwarded(const char *name)
{
    void *function = gaudi_module_function(name);

    if ((function == NULL) && (dlopen("libucs.so.0", RTLD_LAZY) != NULL)) {
        gaudi_load_module();
        function = gaudi_module_function(name);
    }
    return function;
}

/* UCS_MEMORY_TYPE_UNKNOWN comes after all types, of which every release has
 * others; UCX has a list of their names, which ends with NULL. */
static int unknown_memory_type(void)
{
    void *libucs             = dlopen("libucs.so.0", RTLD_LAZY | RTLD_NOLOAD);
    const char *const *names = NULL;
    int type                 = 0;

    if (libucs != NULL) {
        names = dlsym(libucs, "ucs_memory_type_names");
    }
    while ((names != NULL) && (names[type] != NULL) &&
           (strcmp(names[type], "unknown") != 0)) {
        ++type;
    }
    return type;
}

GAUDI_EXPORT unsigned ucx_gaudi_version(void)
{
    return (GAUDI_VERSION_MAJOR << 24) | (GAUDI_VERSION_MINOR << 16) |
           GAUDI_VERSION_PATCH;
}

GAUDI_EXPORT int ucx_gaudi_memory_type(void)
{
    typedef int (*function_t)(void);

    const function_t function = (function_t)forwarded("ucx_gaudi_memory_type");

    return (function != NULL) ? function() : unknown_memory_type();
}

GAUDI_EXPORT status_t ucx_gaudi_mem_query(const void *address, size_t length,
                                          void *attr)
{
    typedef status_t (*function_t)(const void *, size_t, void *);

    const function_t function = (function_t)forwarded("ucx_gaudi_mem_query");

    return (function != NULL) ? function(address, length, attr)
                              : STATUS_INVALID_ADDR;
}

GAUDI_EXPORT status_t ucx_gaudi_dmabuf_export(const void *address,
                                              size_t length, int *fd_p,
                                              size_t *offset_p)
{
    typedef status_t (*function_t)(const void *, size_t, int *, size_t *);

    const function_t function =
        (function_t)forwarded("ucx_gaudi_dmabuf_export");

    return (function != NULL) ? function(address, length, fd_p, offset_p)
                              : STATUS_INVALID_ADDR;
}

GAUDI_EXPORT status_t ucx_gaudi_dmabuf_import(int fd, size_t offset,
                                              size_t length, const char *card,
                                              void **address_p)
{
    typedef status_t (*function_t)(int, size_t, size_t, const char *, void **);

    const function_t function =
        (function_t)forwarded("ucx_gaudi_dmabuf_import");

    return (function != NULL) ? function(fd, offset, length, card, address_p)
                              : STATUS_NO_DEVICE;
}

GAUDI_EXPORT status_t ucx_gaudi_dmabuf_release(void *address)
{
    typedef status_t (*function_t)(void *);

    const function_t function =
        (function_t)forwarded("ucx_gaudi_dmabuf_release");

    if (function != NULL) {
        return function(address);
    }
    return (address == NULL) ? 0 : STATUS_INVALID_ADDR;
}
