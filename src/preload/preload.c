/*
 * libucx_gaudi_preload.so: what LD_PRELOAD names.
 *
 * It needs nothing but the C library, so a process that does not use UCX has
 * one small library more and nothing else. A process that has UCX gets the
 * module before main; one that loads UCX later (Open MPI does) gets it at the
 * first call of one of the wrapped functions that come before UCX reads its
 * configuration and lists its components. Two more are wrapped for what is to
 * be said when they fail because there is no card.
 */
#define _GNU_SOURCE
#include "preload/tls_alias.h"

#include <dlfcn.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))

static const char module_name[] = "libuct_hlthunk.so.0";

/* The module, when it is loaded. */
static void *module;

/* Open the module that lies beside this file, if UCX is in the process. */
static void load_module(void)
{
    static int tried;
    char path[PATH_MAX];
    const char *slash;
    void *handle;
    Dl_info self;
    void *ucs;

    if (__atomic_load_n(&tried, __ATOMIC_ACQUIRE)) {
        return;
    }
    ucs = dlopen("libucs.so.0", RTLD_LAZY | RTLD_NOLOAD);
    if (ucs == NULL) {
        return;
    }
    dlclose(ucs);
    if (__atomic_exchange_n(&tried, 1, __ATOMIC_ACQ_REL)) {
        return;
    }

    if (dladdr(module_name, &self) == 0) {
        return;
    }
    slash = strrchr(self.dli_fname, '/');
    snprintf(path, sizeof(path), "%.*s%s",
             (slash == NULL) ? 0 : (int)(slash + 1 - self.dli_fname),
             self.dli_fname, module_name);
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        fprintf(stderr, "ucx-gaudi: the module cannot be loaded: %s\n",
                dlerror());
    }
    __atomic_store_n(&module, handle, __ATOMIC_RELEASE);
}

/* Let the module say why there is no card; NULL, or parameters of an
 * allocation, which was perhaps not for it. */
static void explain_refusal(const void *params)
{
    typedef void (*function_t)(const void *);

    void *handle       = __atomic_load_n(&module, __ATOMIC_ACQUIRE);
    function_t explain = NULL;

    if (handle != NULL) {
        explain = (function_t)dlsym(handle, "uct_gaudi_explain_refusal");
    }
    if (explain != NULL) {
        explain(params);
    }
}

static void rewrite_tls(void)
{
    const char *tls = getenv("UCX_TLS");
    char *rewritten = (tls == NULL) ? NULL : gaudi_rewrite_tls(tls);

    if (rewritten != NULL) {
        setenv("UCX_TLS", rewritten, 1);
        free(rewritten);
    }
}

__attribute__((constructor)) static void preload_init(void)
{
    rewrite_tls();
    load_module();
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
        fprintf(stderr, "ucx-gaudi: %s is not to be found in %s\n", name,
                library);
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

PUBLIC status_t ucp_config_read(const char *env_prefix, const char *filename,
                                void **config_p)
{
    load_module();
    return NEXT("libucp.so.0", ucp_config_read)(env_prefix, filename, config_p);
}

PUBLIC status_t ucp_init_version(unsigned api_major_version,
                                 unsigned api_minor_version, const void *params,
                                 const void *config, void **context_p)
{
    load_module();
    return NEXT("libucp.so.0", ucp_init_version)(
        api_major_version, api_minor_version, params, config, context_p);
}

PUBLIC status_t uct_query_components(void **components_p,
                                     unsigned *num_components_p)
{
    load_module();
    return NEXT("libuct.so.0", uct_query_components)(components_p,
                                                     num_components_p);
}

PUBLIC status_t uct_mem_alloc(size_t length, const int *methods,
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

PUBLIC status_t uct_md_open(void *component, const char *name,
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
