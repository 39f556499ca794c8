/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the software Gaudi offers beside hl-thunk's functions: hooks for tests
 * and benchmarks, and what stands for files of the kernel. C; find them with
 * dlsym in the loaded library.
 *
 * What differs from the driver and matters to applications: in a forked child
 * every call on a compute node that the parent opened, these included, answers
 * -ENODEV, hlthunk_close excepted. hlthunk_get_open_stats knows the opens of
 * the calling process, not those of other ones; whether the card is in use it
 * knows of all processes of the box. What a card imports counts as device
 * memory in the counters. A node that is closed with close(2) leaves the card
 * taken until its process opens or asks about it again, or ends.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What the engines of one open card did so far. */
struct hlthunk_emu_counters {
    uint64_t host_to_device_bytes;
    uint64_t device_to_host_bytes;
    uint64_t device_to_device_bytes;
    uint64_t host_to_host_bytes;
    uint64_t packets;      /**< packets executed */
    uint64_t jobs;         /**< submissions accepted */
    uint64_t jobs_aborted; /**< of these, ended by a fault */
    uint64_t mappings;     /**< live mappings, device and host memory */
    uint64_t allocations;  /**< live device memory handles */
    uint64_t host_maps;    /**< mappings of host memory ever made */
    /** Command buffers of EDMA engines that ended without engine and message
     *  barrier behind their last copy. Here that is as good; a card may report
     *  their job done before the bytes are there. */
    uint64_t unfenced_buffers;
    /** What has left by each of the card's own ports, by the hardware's
     * numbers: bytes of messages that were acknowledged. */
    uint64_t port_bytes[24];
};

/**
 * Read the counters of an open card.
 *
 * @param fd  Its compute file descriptor.
 * @return 0, or -EBADF.
 */
int hlthunk_emu_get_counters(int fd, struct hlthunk_emu_counters *counters);

/**
 * Stop or restart the engines of an open card. Jobs are accepted and stay busy
 * while they are stopped; a copy that is being made right now ends first.
 *
 * @return 0, or -EBADF.
 */
int hlthunk_emu_pause(int fd, bool paused);

/**
 * Copy on an open card, whatever its queues take: for libraries that stand for
 * the vendor's own schedulers, which have the card's engines to themselves.
 * The addresses are device addresses, as in LIN_DMA packets; all memory that is
 * mapped can be reached. The job counts as a submission.
 *
 * @param engine  0 to 7: copies of one engine are made one after the other.
 * @param seq     Set to the job's number, for hlthunk_wait_for_cs.
 * @return 0, -EBADF, -EINVAL for another engine, or -ENODEV when the card is
 *         closed meanwhile. While as many jobs are under way as the card takes,
 *         it waits.
 */
int hlthunk_emu_copy(int fd, uint64_t dst, uint64_t src, uint64_t size,
                     unsigned engine, uint64_t *seq);

/**
 * Wish for faults, beside those of HLTHUNK_EMU_FAULTS.
 *
 * @param faults  A list as that variable has it; counts begin now. Beside its
 *                faults `now=reset` and `now=remove`, which happen at once.
 *                NULL or "": from now on nothing goes wrong; what has happened
 *                stays.
 * @return 0, -EINVAL for a bad list (HLTHUNK_EMU_LOG=1 tells why), or -ENOMEM.
 */
int hlthunk_emu_fault(const char *faults);

/** How many calls and jobs of this process have met with a fault that was
 *  wished for. */
uint64_t hlthunk_emu_faults_met(void);

/** lseek(2), which tells the size of a dma-buf. What else stands for files of
 *  the kernel is an extension of hl-thunk's ABI, too: see symbols.def. */
long hlthunk_sys_lseek(int fd, long offset, int whence);

#ifdef __cplusplus
}
#endif
