/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program without UCX that loads it when it runs.
 *
 * usage: late_ucx global|local|deep  libucp through dlopen and dlsym; deep is
 *                                    RTLD_DEEPBIND
 *        late_ucx deep LIBRARY       likewise, after that one without it
 *        late_ucx plugin FILE [deep] a component that is linked with libucp
 *        late_ucx uct                libuct, RTLD_GLOBAL, through dlsym
 *        late_ucx hold COMMAND...    run COMMAND while a UCP context is open
 *        late_ucx map                ask UCP for Gaudi memory, twice
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <uct/api/uct.h>
#include <unistd.h>

static void *open_library(const char *name, int flags)
{
    void *handle = dlopen(name, RTLD_NOW | flags);
    if (handle == NULL) {
        fprintf(stderr, "late_ucx: %s\n", dlerror());
        exit(1);
    }
    return handle;
}

#define FIND(_handle, _name) ((__typeof__(&(_name)))dlsym(_handle, #_name))

static ucp_context_h open_context(void *ucp)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features   = UCP_FEATURE_TAG};
    ucp_config_t *config;
    ucp_context_h context;

    if ((FIND(ucp, ucp_config_read)(NULL, NULL, &config) != UCS_OK) ||
        (FIND(ucp, ucp_init_version)(UCP_API_MAJOR, UCP_API_MINOR, &params,
                                     config, &context) != UCS_OK)) {
        fprintf(stderr, "late_ucx: no context\n");
        exit(1);
    }
    FIND(ucp, ucp_config_release)(config);
    return context;
}

static int show_context(int flags)
{
    void *ucp             = open_library("libucp.so.0", flags);
    ucp_context_h context = open_context(ucp);

    FIND(ucp, ucp_context_print_info)(context, stdout);
    FIND(ucp, ucp_cleanup)(context);
    return 0;
}

static int show_components(void)
{
    uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME};
    uct_component_h *components;
    unsigned i, count;

    open_library("libuct.so.0", RTLD_GLOBAL);
    if (FIND(RTLD_DEFAULT, uct_query_components)(&components, &count) !=
        UCS_OK) {
        return 1;
    }
    for (i = 0; i < count; ++i) {
        FIND(RTLD_DEFAULT, uct_component_query)(components[i], &attr);
        printf("component %s\n", attr.name);
    }
    FIND(RTLD_DEFAULT, uct_release_component_list)(components);
    return 0;
}

static int show_plugin(const char *file, int flags)
{
    void *plugin      = open_library(file, flags);
    int (*show)(void) = (int (*)(void))dlsym(plugin, "late_ucx_show_context");

    return (show == NULL) ? 1 : show();
}

static int hold(char **command)
{
    int status = -1;
    pid_t child;

    (void)open_context(open_library("libucp.so.0", RTLD_LOCAL));
    child = fork();
    if (child == 0) {
        execv(command[0], command);
        _exit(127);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int map_gaudi_memory(void)
{
    ucp_mem_map_params_t params = {.field_mask =
                                       UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                       UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                                       UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
                                   .length = 4096,
                                   .flags  = UCP_MEM_MAP_ALLOCATE};
    void *ucp                   = open_library("libucp.so.0", RTLD_LOCAL);
    void *ucs                   = open_library("libucs.so.0", RTLD_LOCAL);
    ucp_context_h context       = open_context(ucp);
    const char **names = (const char **)dlsym(ucs, "ucs_memory_type_names");
    int type           = 0;
    ucs_status_t status;
    ucp_mem_h memh;
    int i;

    while ((type < UCS_MEMORY_TYPE_LAST) &&
           (strcmp(names[type], "gaudi") != 0)) {
        ++type;
    }
    params.memory_type = type;
    for (i = 0; i < 2; ++i) {
        status = FIND(ucp, ucp_mem_map)(context, &params, &memh);
        if (status == UCS_OK) {
            FIND(ucp, ucp_mem_unmap)(context, memh);
        }
        printf("map: %d\n", status);
    }
    FIND(ucp, ucp_cleanup)(context);
    return 0;
}

int main(int argc, char **argv)
{
    const char *how = (argc > 1) ? argv[1] : "";

    if (!strcmp(how, "global")) {
        return show_context(RTLD_GLOBAL);
    } else if (!strcmp(how, "local")) {
        return show_context(RTLD_LOCAL);
    } else if (!strcmp(how, "deep")) {
        if (argc == 3) {
            open_library(argv[2], RTLD_LOCAL);
        }
        return show_context(RTLD_DEEPBIND);
    } else if (!strcmp(how, "uct")) {
        return show_components();
    } else if (!strcmp(how, "plugin") && (argc == 3)) {
        return show_plugin(argv[2], RTLD_LOCAL);
    } else if (!strcmp(how, "plugin") && (argc == 4)) {
        return show_plugin(argv[2], RTLD_DEEPBIND);
    } else if (!strcmp(how, "hold") && (argc > 2)) {
        return hold(argv + 2);
    } else if (!strcmp(how, "map")) {
        return map_gaudi_memory();
    }
    fprintf(stderr,
            "usage: late_ucx global|local|deep|uct|plugin|hold|map ...\n");
    return 2;
}
