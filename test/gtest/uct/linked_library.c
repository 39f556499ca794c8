/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls functions of the driver library by their names, and by a pointer that
 * the dynamic linker fills in. */
#include <stdbool.h>
#include <stdint.h>

uint64_t hlthunk_device_memory_alloc(int fd, uint64_t size, uint64_t page_size,
                                     bool contiguous, bool shared);
uint64_t hlthunk_device_memory_map(int fd, uint64_t handle, uint64_t hint);

uint64_t (*const volatile linked_pointer)(int, uint64_t,
                                          uint64_t) = hlthunk_device_memory_map;

/** Allocate and map device memory. */
__attribute__((visibility("default"))) uint64_t linked_map(int fd,
                                                           uint64_t size)
{
    const uint64_t handle =
        hlthunk_device_memory_alloc(fd, size, 0, false, true);

    return (handle == 0) ? 0 : linked_pointer(fd, handle, 0);
}
