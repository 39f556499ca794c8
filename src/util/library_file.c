/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "util/library_file.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* More than any library has. */
enum { most_headers = 256 };

/* Where a file has to end at the earliest, by its headers; 0: it is none that
 * dlopen would map. */
static uint64_t find_end(int fd)
{
    ElfW(Ehdr) head;
    ElfW(Phdr) parts[most_headers];
    uint64_t end = 0;
    ssize_t bytes;
    size_t i;

    if ((pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head)) ||
        (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) ||
        (head.e_phentsize != sizeof(parts[0])) ||
        (head.e_phnum > most_headers)) {
        return 0;
    }
    bytes = (ssize_t)(head.e_phnum * sizeof(parts[0]));
    if (pread(fd, parts, (size_t)bytes, (off_t)head.e_phoff) != bytes) {
        return head.e_phoff + (uint64_t)bytes;
    }
    for (i = 0; i < head.e_phnum; ++i) {
        const uint64_t behind = parts[i].p_offset + parts[i].p_filesz;

        if ((parts[i].p_type == PT_LOAD) && (behind > end)) {
            end = behind;
        }
    }
    return end;
}

int gaudi_may_be_loaded(const char *file, char *reason, size_t size)
{
    struct stat info;
    int is_fine = 1;
    int fd;

    if (strchr(file, '/') == NULL) {
        return 1;
    }
    fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return 1;
    }
    if (fstat(fd, &info) == 0) {
        const uint64_t end = S_ISREG(info.st_mode) ? find_end(fd) : 0;

        is_fine = S_ISREG(info.st_mode) && ((uint64_t)info.st_size >= end);
        if (!S_ISREG(info.st_mode)) {
            snprintf(reason, size, "%s: not a regular file", file);
        } else if (!is_fine) {
            snprintf(reason, size, "%s: cut off after %llu of %llu bytes", file,
                     (unsigned long long)info.st_size, (unsigned long long)end);
        }
    }
    close(fd);
    return is_fine;
}
