#define _GNU_SOURCE
#include "loader/report.h"

#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

void gaudi_say(const char *format, ...)
{
    char line[2048];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    fprintf(stderr, "ucx-gaudi: %s\n", line);
}

const char *gaudi_file_of(void *handle)
{
    struct link_map *map = NULL;

    return (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0) ? map->l_name : "";
}
