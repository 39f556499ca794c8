/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * dma-bufs of the emulator.
 *
 * A dma-buf is one end of a socket pair whose queue holds a message: what is
 * exported, with the memory and what holds the card attached as descriptors.
 * Whoever peeks at the message gets copies of these and leaves it in place, in
 * any process, also when the exporter has gone; and the CPU cannot map a
 * socket.
 *
 * The memory is attached through a file description of its own, which carries a
 * lock. The lock goes with the last reference to the description: with the last
 * copy of the dma-buf, and the last mapping that an importer made of it, in
 * whatever process. So nothing is kept where the export was made.
 */
#pragma once

#include "hlthunk_emulator/hbm.h"
#include "util/file_mapping.h"
#include "util/fork_handlers.h"
#include "util/unique_fd.h"

#include <cstdint>
#include <vector>

namespace gaudi::emu {

/**
 * Create a dma-buf.
 *
 * @param memory_fd  The memfd.
 * @param holder_fd  Holds the card: it stays taken while the dma-buf lives.
 * @param card       Index of the exporting card.
 * @param mark       Name of the mapping, for @ref is_exported: its address.
 * @param runs       The exported pieces of the memfd, in order.
 * @return The dma-buf's file descriptor, owned by the caller, or -errno.
 */
int create_dmabuf(int memory_fd, int holder_fd, unsigned card, uint64_t mark,
                  const std::vector<hbm_run> &runs);

/** Whether any process holds a dma-buf, or an import of one, that was created
 *  with this mark. */
bool is_exported(int memory_fd, uint64_t mark);

/** @return Bytes of a dma-buf, -EINVAL for another file, or -EBADF. */
int64_t size_of_dmabuf(int fd);

/** The memory behind a dma-buf, where only the engines of the importer know. */
class imported_memory {
public:
    /**
     * Map a dma-buf.
     *
     * @param fd      Stays the caller's.
     * @param size    Bytes from the first one on, at most all.
     * @return 0, -EBADF, -EINVAL for another file or size, or -errno.
     */
    static int create(int fd, uint64_t size, imported_memory &memory_p);

    [[nodiscard]] char *data() const { return mapping_.start(); }

    /** Index of the card that has it. */
    [[nodiscard]] unsigned card() const { return card_; }

private:
    util::unique_fd fd_; /* of the dma-buf: holds the card, too. It is
                            assigned to when it is empty only */
    util::closed_in_children closed_in_children_;
    util::file_mapping mapping_;
    unsigned card_ = 0;
};

} // namespace gaudi::emu
