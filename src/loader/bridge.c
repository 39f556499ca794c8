/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library that modules are linked with instead of UCX's, made when it is
 * known which files those are: it has no content, and needs them. So the
 * dynamic linker finds UCX's functions for a module in the UCX of this process,
 * whatever its files are called, and in no other one.
 */
#define _GNU_SOURCE
#include "loader/running_ucx.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What modules need, as cmake/UcxTarget.cmake has it. */
static const char soname[] = "libucx-of-process.so";

enum { SEGMENTS = 3, ENTRIES = GAUDI_UCX_LIBRARIES + 8 };

/* The file. It is mapped as it is, at any address. */
struct image {
    ElfW(Ehdr) header;
    ElfW(Phdr) segments[SEGMENTS];
    ElfW(Dyn) entries[ENTRIES]; /* ends with zeros */
    ElfW(Sym) symbol;           /* none */
    uint32_t hash[4];           /* one bucket, one symbol: that one */
    char names[sizeof(soname) + 1 + GAUDI_UCX_LIBRARIES * PATH_MAX];
};

#define AT(_field) offsetof(struct image, _field)

static void set_header(ElfW(Ehdr) * header)
{
    Dl_info self;

    /* What depends on the machine is as in this file. */
    if (dladdr(soname, &self) != 0) {
        memcpy(header, self.dli_fbase, sizeof(*header));
    }
    header->e_type      = ET_DYN;
    header->e_entry     = 0;
    header->e_phoff     = AT(segments);
    header->e_phentsize = sizeof(ElfW(Phdr));
    header->e_phnum     = SEGMENTS;
    header->e_shoff     = 0;
    header->e_shnum     = 0;
    header->e_shstrndx  = 0;
}

static void set_segment(ElfW(Phdr) * segment, uint32_t type, size_t offset,
                        size_t size)
{
    segment->p_type   = type;
    segment->p_flags  = PF_R | PF_W; /* not executable, nor is the stack */
    segment->p_offset = offset;
    segment->p_vaddr  = offset;
    segment->p_paddr  = offset;
    segment->p_filesz = size;
    segment->p_memsz  = size;
    segment->p_align  = (type == PT_LOAD) ? 0x10000 : sizeof(void *);
}

static void add_entry(struct image *image, ElfW(Sxword) tag, ElfW(Xword) value)
{
    ElfW(Dyn) *entry = image->entries;

    while (entry->d_tag != DT_NULL) {
        ++entry;
    }
    entry->d_tag      = tag;
    entry->d_un.d_val = value;
}

/* An entry whose value is text. Names follow on a zero. */
static void add_name(struct image *image, ElfW(Sxword) tag, const char *name,
                     size_t *size)
{
    add_entry(image, tag, *size);
    *size += (size_t)sprintf(image->names + *size, "%s", name) + 1;
}

static void fill(struct image *image, char files[GAUDI_UCX_LIBRARIES][PATH_MAX])
{
    size_t size = 1;
    int i;

    set_header(&image->header);
    for (i = 0; i < GAUDI_UCX_LIBRARIES; ++i) {
        if (files[i][0] != '\0') {
            add_name(image, DT_NEEDED, files[i], &size);
        }
    }
    add_name(image, DT_SONAME, soname, &size);
    add_entry(image, DT_HASH, AT(hash));
    add_entry(image, DT_STRTAB, AT(names));
    add_entry(image, DT_SYMTAB, AT(symbol));
    add_entry(image, DT_STRSZ, size);
    add_entry(image, DT_SYMENT, sizeof(image->symbol));
    image->hash[0] = 1;
    image->hash[1] = 1;
    set_segment(&image->segments[0], PT_LOAD, 0, sizeof(*image));
    set_segment(&image->segments[1], PT_DYNAMIC, AT(entries),
                sizeof(image->entries));
    set_segment(&image->segments[2], PT_GNU_STACK, 0, 0);
}

/* A file with an image, to be closed; -1 after an errno. */
static int make_file(const struct image *image)
{
    const int fd = memfd_create("ucx-gaudi", MFD_CLOEXEC);
    int error;

    if ((fd >= 0) && (write(fd, image, sizeof(*image)) != sizeof(*image))) {
        error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

void *gaudi_open_bridge(char files[GAUDI_UCX_LIBRARIES][PATH_MAX], char *why,
                        size_t size)
{
    struct image *image = calloc(1, sizeof(*image));
    void *handle        = NULL;
    int fd              = -1;
    char path[64];

    if (image != NULL) {
        fill(image, files);
        fd = make_file(image);
    }
    if (fd < 0) {
        snprintf(why, size,
                 "a file in memory cannot be made: %s (let memfd_create pass "
                 "the seccomp filter and vm.memfd_noexec, and look at limits "
                 "of memory and open files)",
                 strerror(errno));
    } else {
        /* The dynamic linker remembers the name, which others must not mean by
         * theirs when the descriptor is closed: nobody else has a dot there. */
        snprintf(path, sizeof(path), "/proc/self/./fd/%d", fd);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (handle == NULL) {
            snprintf(why, size, "%s (mount /proc, and use a whole UCX)",
                     dlerror());
        }
        close(fd);
    }
    free(image);
    return handle;
}
