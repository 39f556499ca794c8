/* As much of a libucs as the loader looks at: a list of memory types that no
 * release has. */
#include <stddef.h>

__attribute__((visibility("default"))) const char *ucs_memory_type_names[] = {
    "host", "first", "second", "unknown", NULL};
