/* SPDX-License-Identifier: BSD-3-Clause */
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
    void *libucs;

    if (function != NULL) {
        return function;
    }
    libucs = gaudi_open_libucs(NULL);
    if ((libucs == NULL) && (dlopen("libucs.so.0", RTLD_LAZY) == NULL)) {
        gaudi_complain("there is no UCX: %s (install it: libucx0)", dlerror());
        return NULL;
    }
    gaudi_load_module(NULL);
    return gaudi_module_function(name);
}

/* A function that answers with a status: its name and parameters, what it
 * answers without a module, and its arguments. */
#define FORWARD(_name, _parameters, _absent, ...)                              \
    GAUDI_EXPORT status_t _name _parameters                                    \
    {                                                                          \
        const __typeof__(&_name) function =                                    \
            (__typeof__(&_name))forwarded(#_name);                             \
                                                                               \
        return (status_t)((function != NULL) ? function(__VA_ARGS__)           \
                                             : (_absent));                     \
    }

/* UCS_MEMORY_TYPE_UNKNOWN comes after all types, of which every release has
 * others; UCX has a list of their names, which ends with NULL. */
static int unknown_memory_type(void)
{
    void *libucs             = gaudi_open_libucs(NULL);
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

FORWARD(ucx_gaudi_card_query, (unsigned number, void *attr), STATUS_NO_ELEM,
        number, attr)
FORWARD(ucx_gaudi_open, (const char *card), STATUS_NO_DEVICE, card)
FORWARD(ucx_gaudi_close, (void), STATUS_OK, )
FORWARD(ucx_gaudi_mem_alloc,
        (size_t length, const char *card, void **address_p), STATUS_NO_DEVICE,
        length, card, address_p)
FORWARD(ucx_gaudi_mem_free, (void *address),
        (address == NULL) ? STATUS_OK : STATUS_INVALID_ADDR, address)
FORWARD(ucx_gaudi_mem_copy, (void *dst, const void *src, size_t length),
        STATUS_NO_DEVICE, dst, src, length)
FORWARD(ucx_gaudi_mem_fill,
        (void *address, size_t length, const void *pattern,
         size_t pattern_length),
        STATUS_NO_DEVICE, address, length, pattern, pattern_length)
FORWARD(ucx_gaudi_host_register, (void *address, size_t length),
        STATUS_NO_DEVICE, address, length)
FORWARD(ucx_gaudi_host_unregister, (void *address),
        (address == NULL) ? STATUS_OK : STATUS_INVALID_ADDR, address)
FORWARD(ucx_gaudi_stream_create, (void **stream_p), STATUS_NO_DEVICE, stream_p)
FORWARD(ucx_gaudi_stream_destroy, (void *stream),
        (stream == NULL) ? STATUS_OK : STATUS_NO_DEVICE, stream)
FORWARD(ucx_gaudi_stream_synchronize, (void *stream), STATUS_NO_DEVICE, stream)
FORWARD(ucx_gaudi_stream_query, (void *stream), STATUS_NO_DEVICE, stream)
FORWARD(ucx_gaudi_stream_wait_event, (void *stream, void *event),
        STATUS_NO_DEVICE, stream, event)
FORWARD(ucx_gaudi_mem_copy_async,
        (void *dst, const void *src, size_t length, void *stream),
        STATUS_NO_DEVICE, dst, src, length, stream)
FORWARD(ucx_gaudi_event_create, (void **event_p), STATUS_NO_DEVICE, event_p)
FORWARD(ucx_gaudi_event_destroy, (void *event),
        (event == NULL) ? STATUS_OK : STATUS_NO_DEVICE, event)
FORWARD(ucx_gaudi_event_record, (void *event, void *stream), STATUS_NO_DEVICE,
        event, stream)
FORWARD(ucx_gaudi_event_query, (void *event), STATUS_NO_DEVICE, event)
FORWARD(ucx_gaudi_event_synchronize, (void *event), STATUS_NO_DEVICE, event)
FORWARD(ucx_gaudi_mem_query, (const void *address, size_t length, void *attr),
        STATUS_INVALID_ADDR, address, length, attr)
FORWARD(ucx_gaudi_ipc_export, (void *address, size_t length, void *handle_p),
        STATUS_NO_DEVICE, address, length, handle_p)
FORWARD(ucx_gaudi_ipc_withdraw, (void *address, size_t length),
        (address == NULL) ? STATUS_OK : STATUS_INVALID_ADDR, address, length)
FORWARD(ucx_gaudi_ipc_open,
        (const void *handle, void **address_p, size_t *length_p),
        STATUS_NO_DEVICE, handle, address_p, length_p)
FORWARD(ucx_gaudi_ipc_close, (void *address),
        (address == NULL) ? STATUS_OK : STATUS_INVALID_ADDR, address)
FORWARD(ucx_gaudi_dmabuf_export,
        (const void *address, size_t length, int *fd_p, size_t *offset_p),
        STATUS_INVALID_ADDR, address, length, fd_p, offset_p)
FORWARD(ucx_gaudi_dmabuf_import,
        (int fd, size_t offset, size_t length, const char *card,
         void **address_p),
        STATUS_NO_DEVICE, fd, offset, length, card, address_p)
FORWARD(ucx_gaudi_dmabuf_release, (void *address),
        (address == NULL) ? STATUS_OK : STATUS_INVALID_ADDR, address)
