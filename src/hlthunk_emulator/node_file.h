/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The file behind an open compute node: a memfd, whose pages from the second on
 * are command buffers, which the application may map.
 *
 * Its name, "hlthunk-emu/<box>/accel<N>", shows in /proc who has a card. Not
 * thread-safe: its card's lock protects it.
 */
#pragma once

#include <cstdint>
#include <string>

#include <sys/types.h>

namespace gaudi::emu {

/** A file descriptor number, and the file that it stood for. */
struct node_id {
    int fd      = -1;
    dev_t dev   = 0;
    ino_t inode = 0;

    /** What a descriptor stands for. */
    [[nodiscard]] static node_id of(int fd);

    /** Whether the number still is this file: the application may have closed
     *  it with close(2), and the number may be another file's now. */
    [[nodiscard]] bool is_current() const;

    /** Whether another number is the same file. */
    [[nodiscard]] bool is_same(int other) const
    {
        return node_id{other, dev, inode}.is_current();
    }
};

class node_file {
public:
    /** Create the file of a card. @return A descriptor, which is the
     *  application's, or -errno. */
    int create(unsigned index);

    /** Make room for command buffers. @return Whether there is. */
    [[nodiscard]] bool resize(uint64_t size);

    /** A descriptor of it that the application still has, -1 without one: it
     *  may have made duplicates, and a card is closed with the last one. */
    int find();

    [[nodiscard]] bool is_same(int fd) const { return id_.is_same(fd); }
    [[nodiscard]] ino_t inode() const { return id_.inode; }

private:
    node_id id_; /* found last */
};

} // namespace gaudi::emu
