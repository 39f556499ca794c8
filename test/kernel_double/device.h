/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A card as the driver has it for this process: what its ioctls do, and what
 * has to be known to judge them. Any thread.
 */
#pragma once

#include "kernel_double/engines.h"
#include "kernel_double/kernel_abi.h"
#include "util/fork_handlers.h"

#include <map>

#include <sys/types.h>

namespace gaudi::kernel_double {

/** Open a device file. @return A descriptor, or -errno. */
int open_node(node_of_card which, int flags);

/** ioctl(2) on a node. @return 0 or -errno. */
int control_node(int fd, node_of_card of, unsigned long request,
                 void *argument);

/** What an open of a compute node has. A new one for each open; the last stays,
 *  since threads may still be in it, or the parent's were when it forked. */
class context {
public:
    int submit(int fd, const submit_in &in, submit_out &out, bool &keep_p);
    int wait(int fd, const wait_in &in, wait_out &out, bool &keep_p);
    int memory(int fd, const memory_in &in, uint64_t &value_p);

private:
    struct allocation {
        uint64_t bytes;
        unsigned mappings = 0;
    };
    struct mapping {
        enum { device, host, import } kind;
        uint64_t bytes;
        uint64_t handle;
    };
    /* A submission: 0 of the emulator for one that was refused. */
    struct job {
        uint64_t seq         = 0;
        uint64_t of_emulator = 0;
    };

    int check(const chunk &one) const;
    int allocate(int fd, const memory_in &in, uint64_t &value_p);
    int free(int fd, const memory_in &in);
    int map(int fd, const memory_in &in, uint64_t &value_p);
    int unmap(int fd, const memory_in &in);
    int export_dmabuf(int fd, const memory_in &in, uint64_t &value_p);
    int import(int fd, const memory_in &in, uint64_t &value_p);

    util::child_mutex lock_;
    hlthunk_hw_ip_info info_{};
    uint64_t next_seq_ = 1;
    job jobs_[max_in_flight];
    std::map<uint64_t, allocation> allocations_;
    std::map<uint64_t, mapping> mappings_;
};

/** Of a card that this process has opened. */
context &context_of(unsigned card);

} // namespace gaudi::kernel_double
