/*
 * A program that opens libraries in the order of its arguments:
 *
 *   FILE      dlopen it
 *   init      have the last one initialized, as UCX's loader of modules does
 *   call      the functions of ucx_gaudi.h in the last one
 *   threads   one of them in several threads at once
 *   chdir     to the root folder
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static void call_for_memory(void *library)
{
    typedef signed char (*card_query_t)(unsigned, void *);
    typedef signed char (*open_t)(const char *);
    typedef signed char (*close_t)(void);
    typedef signed char (*alloc_t)(size_t, const char *, void **);
    typedef signed char (*free_t)(void *);
    typedef signed char (*copy_t)(void *, const void *, size_t);
    typedef signed char (*fill_t)(void *, size_t, const void *, size_t);

    const free_t release = (free_t)function(library, "ucx_gaudi_mem_free");
    char any[256];
    void *address;

    printf("cards %d\n",
           ((card_query_t)function(library, "ucx_gaudi_card_query"))(5, any));
    printf("open %d\n",
           ((open_t)function(library, "ucx_gaudi_open"))("gaudi5"));
    printf("close %d\n", ((close_t)function(library, "ucx_gaudi_close"))());
    printf("alloc %d\n", ((alloc_t)function(library, "ucx_gaudi_mem_alloc"))(
                             6, "gaudi5", &address));
    printf("free %d %d\n", release(NULL), release(any));
    printf("copy %d\n",
           ((copy_t)function(library, "ucx_gaudi_mem_copy"))(any, NULL, 7));
    printf("fill %d\n",
           ((fill_t)function(library, "ucx_gaudi_mem_fill"))(NULL, 8, any, 2));
}

static void call(void *library)
{
    typedef int (*type_t)(void);
    typedef unsigned (*version_t)(void);
    typedef signed char (*query_t)(const void *, size_t, void *);
    typedef signed char (*export_t)(const void *, size_t, int *, size_t *);
    typedef signed char (*import_t)(int, size_t, size_t, const char *, void **);
    typedef signed char (*release_t)(void *);

    const release_t release =
        (release_t)function(library, "ucx_gaudi_dmabuf_release");
    char any[256];
    size_t offset;
    void *address;
    int fd;

    printf("version %#x\n",
           ((version_t)function(library, "ucx_gaudi_version"))());
    printf("memory type %d\n",
           ((type_t)function(library, "ucx_gaudi_memory_type"))());
    printf("query %d\n",
           ((query_t)function(library, "ucx_gaudi_mem_query"))(any, 1, any));
    printf("export %d\n",
           ((export_t)function(library, "ucx_gaudi_dmabuf_export"))(any, 1, &fd,
                                                                    &offset));
    printf("import %d\n",
           ((import_t)function(library, "ucx_gaudi_dmabuf_import"))(
               0, 0, 1, NULL, &address));
    printf("release %d %d\n", release(NULL), release(any));
    call_for_memory(library);
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

int main(int argc, char **argv)
{
    typedef signed char (*init_t)(void);

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
        } else {
            library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
            if (library == NULL) {
                fprintf(stderr, "%s\n", dlerror());
                return 1;
            }
        }
    }
    printf("the program goes on\n");
    return 0;
}
