/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A card as the driver has it for this process: what its ioctls do. Any thread.
 */
#pragma once

#include "kernel_double/engines.h"
#include "kernel_double/kernel_abi.h"

#include <sys/types.h>

namespace gaudi::kernel_double {

/** Open a device file. @return A descriptor, or -errno. */
int open_node(node_of_card which, int flags);

/** ioctl(2) on a node. @return 0 or -errno. */
int control_node(int fd, node_of_card of, unsigned long request,
                 void *argument);

/* The calls on a compute node, as the kernel has them above the emulator. They
 * give 0 or -errno; keep_p: the arguments stay as they are. */

int submit(int fd, unsigned card, const submit_in &in, submit_out &out,
           bool &keep_p);
int wait(int fd, unsigned card, const wait_in &in, wait_out &out, bool &keep_p);
int memory(int fd, const memory_in &in, uint64_t &value_p);

/** A compute node was opened: numbers of submissions begin anew. */
void begin_submissions(unsigned card);

} // namespace gaudi::kernel_double
