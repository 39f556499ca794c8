/*
 * The functions of UCX that the loader wraps, where it comes before UCX in the
 * order of look-up: preloaded, or linked with the program.
 *
 * A program that loads UCX late (Open MPI does) gets the module at the first
 * call of one that comes before UCX reads its configuration and lists its
 * components. One comes earlier still, since a program may look up
 * ucp_config_read in libucp itself (dlsym). Two more are wrapped for what is to
 * be said when they fail because there is no card.
 */
#define _GNU_SOURCE
#include "loader/loader.h"
#include "loader/report.h"
#include "loader/tls_setting.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Let the module say why there is no card; NULL, or parameters of an
 * allocation, which was perhaps not for it. */
static void explain_refusal(const void *params)
{
    typedef void (*function_t)(const void *);

    const function_t explain =
        (function_t)gaudi_module_function("uct_gaudi_explain_refusal");

    if (explain != NULL) {
        explain(params);
    }
}

/* The wrapped function itself, looked up once for each wrapper. Libraries that
 * dlopen brought in are found through the handle of the one that has it. */
static void *next_function(void **known, const char *library, const char *name)
{
    void *function = __atomic_load_n(known, __ATOMIC_RELAXED);
    if (function != NULL) {
        return function;
    }
    function = dlsym(RTLD_NEXT, name);
    if (function == NULL) {
        void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
        if (handle != NULL) {
            function = dlsym(handle, name);
            dlclose(handle);
        }
    }
    if (function == NULL) {
        gaudi_say("%s is not to be found in %s", name, library);
        abort();
    }
    __atomic_store_n(known, function, __ATOMIC_RELAXED);
    return function;
}

/* That function, from inside its wrapper. */
#define NEXT(_library, _function)                                              \
    ({                                                                         \
        static void *known;                                                    \
        (__typeof__(&_function))next_function(&known, _library, #_function);   \
    })

/*
 * Only the calling convention of the wrapped functions matters here; their
 * types are those of ucp.h and uct.h. ucs_status_t is a packed enumeration: one
 * byte, and the rest of the register means nothing.
 */
typedef signed char status_t;

/* Called by the constructor of libucs, in which no module can be loaded yet. */
GAUDI_EXPORT void ucm_set_global_opts(const void *options)
{
    gaudi_rewrite_tls_setting();
    NEXT("libucm.so.0", ucm_set_global_opts)(options);
}

GAUDI_EXPORT status_t ucp_config_read(const char *env_prefix,
                                      const char *filename, void **config_p)
{
    gaudi_load_module();
    return NEXT("libucp.so.0", ucp_config_read)(env_prefix, filename, config_p);
}

GAUDI_EXPORT status_t ucp_init_version(unsigned api_major_version,
                                       unsigned api_minor_version,
                                       const void *params, const void *config,
                                       void **context_p)
{
    gaudi_load_module();
    return NEXT("libucp.so.0", ucp_init_version)(
        api_major_version, api_minor_version, params, config, context_p);
}

GAUDI_EXPORT status_t uct_query_components(void **components_p,
                                           unsigned *num_components_p)
{
    gaudi_load_module();
    return NEXT("libuct.so.0", uct_query_components)(components_p,
                                                     num_components_p);
}

GAUDI_EXPORT status_t uct_mem_alloc(size_t length, const int *methods,
                                    unsigned num_methods, const void *params,
                                    void *memory)
{
    const status_t status = NEXT("libuct.so.0", uct_mem_alloc)(
        length, methods, num_methods, params, memory);

    if (status != 0) {
        explain_refusal(params);
    }
    return status;
}

/* UCP opens every memory domain that there is, and so asks for nothing. */
static int is_ucp(const void *code)
{
    Dl_info info;

    return (dladdr(code, &info) != 0) &&
           (strstr(info.dli_fname, "/libucp.so") != NULL);
}

GAUDI_EXPORT status_t uct_md_open(void *component, const char *name,
                                  const void *config, void **md_p)
{
    const status_t status =
        NEXT("libuct.so.0", uct_md_open)(component, name, config, md_p);

    if ((status != 0) && (name != NULL) && !strcmp(name, "gaudi_copy") &&
        !is_ucp(__builtin_return_address(0))) {
        explain_refusal(NULL);
    }
    return status;
}
