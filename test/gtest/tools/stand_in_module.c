/* SPDX-License-Identifier: BSD-3-Clause */
/* In a module's place: tells that it was opened, and answers the loader. With
 * STAND_IN_CALLS=LOADER its constructor calls the loader, and takes long;
 * with STAND_IN_ENDS=1 it ends the program, saying STAND_IN_SAYS before. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

#ifdef STAND_IN_IS_BROKEN
extern int nobody_has_this_function(void);
#endif

static void call_back(const char *loader)
{
    typedef int (*type_t)(void);

    void *handle = dlopen(loader, RTLD_LAZY | RTLD_NOLOAD);
    type_t type  = (type_t)dlsym(handle, "ucx_gaudi_memory_type");

    usleep(100000);
    printf("constructor: memory type %d\n", type());
}

__attribute__((constructor)) static void module_constructor(void)
{
    const char *loader = getenv("STAND_IN_CALLS");
    Dl_info self;

    if (dladdr((void *)module_constructor, &self) != 0) {
        printf("opened %s\n", self.dli_fname);
    }
    if (getenv("STAND_IN_ENDS") != NULL) {
        if (getenv("STAND_IN_SAYS") != NULL) {
            fprintf(stderr, "%s\n", getenv("STAND_IN_SAYS"));
        }
        (void)raise(SIGKILL);
    }
    if (loader != NULL) {
        call_back(loader);
    }
#ifdef STAND_IN_IS_BROKEN
    (void)nobody_has_this_function();
#endif
}

PUBLIC int uct_gaudi_report(void)
{
    puts("{}");
    return 1;
}

PUBLIC int ucx_gaudi_memory_type(void)
{
    return 42;
}

/* What the loader was given has to come here, as it was. */
PUBLIC signed char ucx_gaudi_card_query(unsigned number, const void *attr)
{
    return ((number == 5) && (attr != NULL)) ? 15 : -100;
}

PUBLIC signed char ucx_gaudi_open(const char *card)
{
    return (strcmp(card, "gaudi5") == 0) ? 16 : -100;
}

PUBLIC signed char ucx_gaudi_close(void)
{
    return 17;
}

PUBLIC signed char ucx_gaudi_mem_alloc(size_t length, const char *card,
                                       void **address_p)
{
    return ((length == 6) && (strcmp(card, "gaudi5") == 0) &&
            (address_p != NULL))
               ? 18
               : -100;
}

PUBLIC signed char ucx_gaudi_mem_free(const void *address)
{
    return (address == NULL) ? 0 : 19;
}

PUBLIC signed char ucx_gaudi_mem_copy(const void *dst, const void *src,
                                      size_t length)
{
    return ((dst != NULL) && (src == NULL) && (length == 7)) ? 20 : -100;
}

PUBLIC signed char ucx_gaudi_mem_fill(const void *address, size_t length,
                                      const void *pattern,
                                      size_t pattern_length)
{
    return ((address == NULL) && (length == 8) && (pattern != NULL) &&
            (pattern_length == 2))
               ? 21
               : -100;
}

PUBLIC signed char ucx_gaudi_mem_query(void)
{
    return 11;
}

PUBLIC signed char ucx_gaudi_dmabuf_export(void)
{
    return 12;
}

PUBLIC signed char ucx_gaudi_dmabuf_import(void)
{
    return 13;
}

PUBLIC signed char ucx_gaudi_dmabuf_release(const void *address)
{
    return (address == NULL) ? 0 : 14;
}

PUBLIC signed char ucx_gaudi_host_register(const void *address, size_t length)
{
    return ((address != NULL) && (length == 9)) ? 22 : -100;
}

PUBLIC signed char ucx_gaudi_mem_copy_async(const void *dst, const void *src,
                                            size_t length, const void *stream)
{
    return ((dst != NULL) && (src == NULL) && (length == 7) && (stream != NULL))
               ? 28
               : -100;
}

PUBLIC signed char ucx_gaudi_ipc_export(const void *address, size_t length,
                                        const void *handle_p)
{
    return ((address != NULL) && (length == 6) && (handle_p != NULL)) ? 34
                                                                      : -100;
}

PUBLIC signed char ucx_gaudi_ipc_withdraw(const void *address, size_t length)
{
    return ((address != NULL) && (length == 6)) ? 35 : -100;
}

PUBLIC signed char ucx_gaudi_ipc_open(const void *handle, const void *address_p,
                                      const void *length_p)
{
    return ((handle != NULL) && (address_p != NULL) && (length_p == NULL))
               ? 36
               : -100;
}

/* Of one pointer, which may be missing, and of two, the second of which is. */
#define ONE(_name, _number)                                                    \
    PUBLIC signed char _name(const void *what)                                 \
    {                                                                          \
        return (what == NULL) ? 0 : (_number);                                 \
    }
#define TWO(_name, _number)                                                    \
    PUBLIC signed char _name(const void *first, const void *second)            \
    {                                                                          \
        return ((first != NULL) && (second == NULL)) ? (_number) : -100;       \
    }

ONE(ucx_gaudi_host_unregister, 23)
ONE(ucx_gaudi_stream_create, 24)
ONE(ucx_gaudi_stream_destroy, -100)
ONE(ucx_gaudi_stream_synchronize, 25)
ONE(ucx_gaudi_stream_query, 26)
TWO(ucx_gaudi_stream_wait_event, 27)
ONE(ucx_gaudi_event_create, 29)
ONE(ucx_gaudi_event_destroy, -100)
TWO(ucx_gaudi_event_record, 30)
ONE(ucx_gaudi_event_query, 31)
ONE(ucx_gaudi_event_synchronize, 32)
ONE(ucx_gaudi_ipc_close, -100)
