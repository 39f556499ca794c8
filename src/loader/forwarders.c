/*
 * The functions of ucx_gaudi.h: programs link the loader, and the module has
 * them. Where there is no module, no memory is a card's and no card is open.
 *
 * Only the calling convention matters here, their types are those of
 * ucx_gaudi.h.
 */
#include "loader/loader.h"

#include <dlfcn.h>
#include <string.h>

/* As ucs/type/status.h has them. */
enum {
    STATUS_OK           = 0,
    STATUS_INVALID_ADDR = -7,
    STATUS_NO_ELEM      = -12,
    STATUS_NO_DEVICE    = -14
};

/* The module's function of a forwarder. A program that is linked with nothing
 * else of UCX gets it here. */
static void *forwarded(const char *name)
{
    void *function = gaudi_module_function(name);

    if (function != NULL) {
        return function;
    }
    if (dlopen("libucs.so.0", RTLD_LAZY) == NULL) {
        gaudi_complain("there is no UCX: %s", dlerror());
        return NULL;
    }
    gaudi_load_module();
    return gaudi_module_function(name);
}

/* The body of a forwarder that answers with a status: its own name, what it
 * answers without a module, its types, and its arguments. */
#define FORWARD(_name, _absent, _types, ...)                                   \
    typedef status_t(*function_t) _types;                                      \
                                                                               \
    const function_t function = (function_t)forwarded(#_name);                 \
                                                                               \
    return (status_t)((function != NULL) ? function(__VA_ARGS__) : (_absent))

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

GAUDI_EXPORT status_t ucx_gaudi_card_query(unsigned number, void *attr)
{
    FORWARD(ucx_gaudi_card_query, STATUS_NO_ELEM, (unsigned, void *), number,
            attr);
}

GAUDI_EXPORT status_t ucx_gaudi_open(const char *card)
{
    FORWARD(ucx_gaudi_open, STATUS_NO_DEVICE, (const char *), card);
}

GAUDI_EXPORT status_t ucx_gaudi_close(void)
{
    FORWARD(ucx_gaudi_close, STATUS_OK, (void), );
}

GAUDI_EXPORT status_t ucx_gaudi_mem_alloc(size_t length, const char *card,
                                          void **address_p)
{
    FORWARD(ucx_gaudi_mem_alloc, STATUS_NO_DEVICE,
            (size_t, const char *, void **), length, card, address_p);
}

GAUDI_EXPORT status_t ucx_gaudi_mem_free(void *address)
{
    FORWARD(ucx_gaudi_mem_free,
            (address == NULL) ? STATUS_OK : STATUS_INVALID_ADDR, (void *),
            address);
}

GAUDI_EXPORT status_t ucx_gaudi_mem_copy(void *dst, const void *src,
                                         size_t length)
{
    FORWARD(ucx_gaudi_mem_copy, STATUS_NO_DEVICE,
            (void *, const void *, size_t), dst, src, length);
}

GAUDI_EXPORT status_t ucx_gaudi_mem_fill(void *address, size_t length,
                                         const void *pattern,
                                         size_t pattern_length)
{
    FORWARD(ucx_gaudi_mem_fill, STATUS_NO_DEVICE,
            (void *, size_t, const void *, size_t), address, length, pattern,
            pattern_length);
}

GAUDI_EXPORT status_t ucx_gaudi_mem_query(const void *address, size_t length,
                                          void *attr)
{
    FORWARD(ucx_gaudi_mem_query, STATUS_INVALID_ADDR,
            (const void *, size_t, void *), address, length, attr);
}

GAUDI_EXPORT status_t ucx_gaudi_dmabuf_export(const void *address,
                                              size_t length, int *fd_p,
                                              size_t *offset_p)
{
    FORWARD(ucx_gaudi_dmabuf_export, STATUS_INVALID_ADDR,
            (const void *, size_t, int *, size_t *), address, length, fd_p,
            offset_p);
}

GAUDI_EXPORT status_t ucx_gaudi_dmabuf_import(int fd, size_t offset,
                                              size_t length, const char *card,
                                              void **address_p)
{
    FORWARD(ucx_gaudi_dmabuf_import, STATUS_NO_DEVICE,
            (int, size_t, size_t, const char *, void **), fd, offset, length,
            card, address_p);
}

GAUDI_EXPORT status_t ucx_gaudi_dmabuf_release(void *address)
{
    FORWARD(ucx_gaudi_dmabuf_release,
            (address == NULL) ? STATUS_OK : STATUS_INVALID_ADDR, (void *),
            address);
}
