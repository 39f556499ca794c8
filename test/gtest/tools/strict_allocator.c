/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An allocator to preload that ends the program when it is given memory of
 * libc's. Its own memory has a mark in front that ends a program which gives it
 * to libc's: "free(): invalid pointer". Memory is taken once.
 *
 * And UCX opens its modules with RTLD_DEEPBIND, as it does after `configure
 * --enable-module-deepbind`: these find libc's functions first.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { POOL = 1 << 30, SMALLEST = 16 };

/* For libc a size that is too large. */
static const size_t mark = (size_t)-0xaf;

struct head {
    size_t size;
    size_t mark;
};

static _Alignas(4096) char pool[POOL];
static size_t used;

static struct head *head_of(void *memory)
{
    struct head *head = (struct head *)memory - 1;

    if (((char *)memory <= pool) || ((char *)memory >= pool + POOL) ||
        (head->mark != mark)) {
        static const char text[] = "strict allocator: foreign memory\n";

        (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
        abort();
    }
    return head;
}

EXPORT void *memalign(size_t alignment, size_t size)
{
    const size_t step = (alignment < SMALLEST) ? SMALLEST : alignment;
    const size_t room = size + sizeof(struct head) + step;
    size_t start;
    struct head *head;

    if (size > POOL) {
        return NULL;
    }
    start = __atomic_fetch_add(&used, room, __ATOMIC_RELAXED);
    if (start + room > POOL) {
        return NULL;
    }
    start = ((size_t)pool + start + sizeof(*head) + step - 1) / step * step;
    head  = (struct head *)start - 1;
    head->size = size;
    head->mark = mark;
    return head + 1;
}

EXPORT void *malloc(size_t size)
{
    return memalign(SMALLEST, size);
}

EXPORT void *calloc(size_t count, size_t size)
{
    size_t all;

    return __builtin_mul_overflow(count, size, &all) ? NULL : malloc(all);
}

EXPORT void free(void *memory)
{
    if (memory != NULL) {
        head_of(memory)->mark = 0;
    }
}

EXPORT void *realloc(void *memory, size_t size)
{
    const size_t old = (memory == NULL) ? 0 : head_of(memory)->size;
    void *other      = malloc(size);

    if ((other != NULL) && (memory != NULL)) {
        memcpy(other, memory, (old < size) ? old : size);
        free(memory);
    }
    return other;
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

EXPORT int posix_memalign(void **memory_p, size_t alignment, size_t size)
{
    *memory_p = memalign(alignment, size);
    return (*memory_p == NULL) ? ENOMEM : 0;
}

EXPORT void *dlopen(const char *file, int flags)
{
    typedef void *(*function_t)(const char *, int);

    /* In a folder of UCX's, not the one that the loader opens. */
    const int is_module =
        (file != NULL) && ((strstr(file, "/ucx/libuct_") != NULL) ||
                           (strstr(file, "/plugin/libuct_") != NULL));

    return ((function_t)dlsym(RTLD_NEXT, "dlopen"))(
        file, flags | (is_module ? RTLD_DEEPBIND : 0));
}

EXPORT size_t malloc_usable_size(void *memory)
{
    return (memory == NULL) ? 0 : head_of(memory)->size;
}
