/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that opens libraries in the order of its arguments:
 *
 *   FILE      dlopen it
 *   deep      open all that follow with RTLD_DEEPBIND
 *   no-files  have the system refuse files in memory, as containers do
 *   init      have the last one initialized, as UCX's loader of modules does
 *   call      the functions of ucx_gaudi.h in the last one
 *   threads   one of them in several threads at once
 *   chdir     to the root folder
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ucx_gaudi.h>

enum { THREADS = 4 };

static void *function(void *library, const char *name)
{
    void *found = dlsym(library, name);

    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return found;
}

/* A function of ucx_gaudi.h in a library. */
#define CALL(_name) ((__typeof__(&_name))function(library, #_name))

static void call(void *library)
{
    char any[256];
    size_t offset;
    void *address;
    int fd;

    printf("version %#x\n", CALL(ucx_gaudi_version)());
    printf("memory type %d\n", CALL(ucx_gaudi_memory_type)());
    printf("query %d\n", CALL(ucx_gaudi_mem_query)(any, 1, (void *)any));
    printf("export %d\n", CALL(ucx_gaudi_dmabuf_export)(any, 1, &fd, &offset));
    printf("import %d\n",
           CALL(ucx_gaudi_dmabuf_import)(0, 0, 1, NULL, &address));
    printf("release %d %d\n", CALL(ucx_gaudi_dmabuf_release)(NULL),
           CALL(ucx_gaudi_dmabuf_release)(any));
    printf("cards %d\n", CALL(ucx_gaudi_card_query)(5, (void *)any));
    printf("open %d\n", CALL(ucx_gaudi_open)("gaudi5"));
    printf("close %d\n", CALL(ucx_gaudi_close)());
    printf("alloc %d\n", CALL(ucx_gaudi_mem_alloc)(6, "gaudi5", &address));
    printf("free %d %d\n", CALL(ucx_gaudi_mem_free)(NULL),
           CALL(ucx_gaudi_mem_free)(any));
    printf("copy %d\n", CALL(ucx_gaudi_mem_copy)(any, NULL, 7));
    printf("fill %d\n", CALL(ucx_gaudi_mem_fill)(NULL, 8, any, 2));
    printf("host %d %d %d\n", CALL(ucx_gaudi_host_register)(any, 9),
           CALL(ucx_gaudi_host_unregister)(NULL),
           CALL(ucx_gaudi_host_unregister)(any));
    printf("stream %d %d %d %d %d %d\n",
           CALL(ucx_gaudi_stream_create)((ucx_gaudi_stream_h *)&address),
           CALL(ucx_gaudi_stream_destroy)(NULL),
           CALL(ucx_gaudi_stream_synchronize)((void *)any),
           CALL(ucx_gaudi_stream_query)((void *)any),
           CALL(ucx_gaudi_stream_wait_event)((void *)any, NULL),
           CALL(ucx_gaudi_mem_copy_async)(any, NULL, 7, (void *)any));
    printf("event %d %d %d %d %d\n",
           CALL(ucx_gaudi_event_create)((ucx_gaudi_event_h *)&address),
           CALL(ucx_gaudi_event_destroy)(NULL),
           CALL(ucx_gaudi_event_record)((void *)any, NULL),
           CALL(ucx_gaudi_event_query)((void *)any),
           CALL(ucx_gaudi_event_synchronize)((void *)any));
    printf("ipc %d %d %d %d\n", CALL(ucx_gaudi_ipc_export)(any, 6, (void *)any),
           CALL(ucx_gaudi_ipc_withdraw)(any, 6),
           CALL(ucx_gaudi_ipc_open)((void *)any, &address, NULL),
           CALL(ucx_gaudi_ipc_close)(NULL));
}

static pthread_barrier_t start;

static void *ask_for_type(void *library)
{
    typedef int (*type_t)(void);

    const type_t type = (type_t)function(library, "ucx_gaudi_memory_type");

    pthread_barrier_wait(&start);
    printf("thread: memory type %d\n", type());
    return NULL;
}

static void call_in_threads(void *library)
{
    pthread_t threads[THREADS];
    int i;

    pthread_barrier_init(&start, NULL, THREADS);
    for (i = 0; i < THREADS; ++i) {
        if (pthread_create(&threads[i], NULL, ask_for_type, library) != 0) {
            fprintf(stderr, "no thread\n");
            exit(1);
        }
    }
    for (i = 0; i < THREADS; ++i) {
        pthread_join(threads[i], NULL);
    }
}

static int refuse_files(void)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog filter = {4, steps};

    return (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) &&
           (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

int main(int argc, char **argv)
{
    typedef signed char (*init_t)(void);

    int flags     = RTLD_NOW | RTLD_LOCAL;
    void *library = NULL;
    int i;

    setvbuf(stdout, NULL, _IOLBF, 0);
    for (i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "init") == 0) {
            printf("init %d\n",
                   ((init_t)function(library, "ucs_module_global_init"))());
        } else if (strcmp(argv[i], "call") == 0) {
            call(library);
        } else if (strcmp(argv[i], "threads") == 0) {
            call_in_threads(library);
        } else if (strcmp(argv[i], "chdir") == 0) {
            if (chdir("/") != 0) {
                return 1;
            }
        } else if (strcmp(argv[i], "deep") == 0) {
            flags |= RTLD_DEEPBIND;
        } else if (strcmp(argv[i], "no-files") == 0) {
            if (!refuse_files()) {
                return 1;
            }
        } else {
            library = dlopen(argv[i], flags);
            if (library == NULL) {
                fprintf(stderr, "%s\n", dlerror());
                return 1;
            }
        }
    }
    printf("the program goes on\n");
    return 0;
}
