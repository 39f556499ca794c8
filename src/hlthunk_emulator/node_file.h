/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The file behind an open compute node: a memfd. Its first page tells other
 * processes about the card, the pages behind it are command buffers, which the
 * application may map.
 *
 * Other processes of the user find it in /proc by its name,
 * "hlthunk-emu/<box>/accel<N>". Not thread-safe: its card's lock protects it.
 */
#pragma once

#include "util/file_mapping.h"

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

    /** Another number of this process for the same file, -1 without one: the
     *  application may have duplicated it, and a card is closed with the last
     *  one. */
    [[nodiscard]] int find_duplicate() const;
};

class node_file {
public:
    /** Create the file of a card. The descriptor stays open, whatever becomes
     *  of this object: it is the application's. @return 0 or -errno. */
    int create(unsigned index);

    /** Make room for command buffers. @return Whether there is. */
    [[nodiscard]] bool resize(uint64_t size) const;

    /** Tell other processes how much device memory is free, bytes. */
    void publish(uint64_t dram_free);

    /** Go on with a duplicate of the descriptor. */
    void move_to(int fd) { id_.fd = fd; }

    [[nodiscard]] const node_id &id() const { return id_; }
    [[nodiscard]] int fd() const { return id_.fd; }

private:
    node_id id_;
    util::file_mapping page_;
};

/** What the compute node of a card is called. */
std::string node_name(unsigned index);

/** What this process can see of a compute node that somebody has open. */
struct node_sighting {
    bool open          = false; /**< a process has it */
    bool readable      = false; /**< dram_free is known */
    uint64_t dram_free = 0;     /**< bytes */
};

/** Look for a compute node in all processes that this one may look into: those
 *  of its user, unless they hide. */
node_sighting look_for_node(unsigned index);

} // namespace gaudi::emu
