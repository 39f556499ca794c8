/* In a module's place: tells that it was opened, and answers the loader. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#define PUBLIC __attribute__((visibility("default")))

#ifdef STAND_IN_IS_BROKEN
extern int nobody_has_this_function(void);
#endif

__attribute__((constructor)) static void module_constructor(void)
{
    Dl_info self;

    if (dladdr((void *)module_constructor, &self) != 0) {
        printf("opened %s\n", self.dli_fname);
    }
#ifdef STAND_IN_IS_BROKEN
    (void)nobody_has_this_function();
#endif
}

PUBLIC int ucx_gaudi_memory_type(void)
{
    return 42;
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
