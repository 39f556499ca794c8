/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What cards have written to the memory of others, and is still on its way.
 *
 * A write over PCIe is posted: the writer's job ends, and the bytes arrive
 * later. Nothing says when, but a read by the writer from the same memory,
 * which does not overtake its writes. Here they never arrive by themselves,
 * unless newer ones push them, so that whoever relies on it finds old bytes.
 *
 * With early write response the owner's port answers for writes that its memory
 * does not have yet. What was read back is in the chip then: whoever reads over
 * PCIe finds it, and the owner's engines do not, until the owner flushes
 * (hl_flush_pending_writes, drivers/accel/habanalabs/common/habanalabs_drv.c of
 * the vendor's driver). What has not reached the port, no flush pushes: the
 * register that it reads is read by the host, on another way through the
 * switches.
 *
 * They wait in the file of the memory, behind what the card has, a place for
 * each card that writes: so they outlive the writer, and its owner finds them.
 */
#pragma once

#include "util/fork_handlers.h"
#include "util/unique_fd.h"

#include <cstdint>
#include <mutex>

namespace gaudi::emu {

/** Bytes that they need behind those of a memory. */
uint64_t posted_bytes();

class posted_writes {
public:
    /** Those of one card to one memory. What an earlier process has left there
     *  arrives now.
     *  @param memory_fd  The file of the memory; opened anew.
     *  @param memory     Bytes of the memory.
     *  @param writer     Index of the card. @return 0 or -errno. */
    int open(int memory_fd, uint64_t memory, unsigned writer);

    /** Have all of them arrive. */
    ~posted_writes();

    posted_writes()                                 = default;
    posted_writes(const posted_writes &)            = delete;
    posted_writes &operator=(const posted_writes &) = delete;

    /** Write. @param offset  In the memory. Any thread, as all functions. */
    void post(uint64_t offset, const char *data, uint64_t size);

    /** The card reads: what it wrote before has arrived, with early write
     *  response in the chip. */
    void push();

    /** What it reads then: with early write response it finds what it wrote.
     *  @param offset  In the memory, of what is at `src` here. */
    void read(uint64_t offset, char *dst, const char *src, uint64_t size);

private:
    std::mutex lock_;
    util::unique_fd fd_;
    util::closed_in_children closed_in_children_;
    uint64_t place_ = 0; /* in the file */
};

/** Nothing is on its way any more, of any card. */
void push_posted_writes(int memory_fd, uint64_t memory);

/** The owner flushes: what has reached the chip is in its memory. */
void flush_posted_writes(int memory_fd, uint64_t memory);

} // namespace gaudi::emu
