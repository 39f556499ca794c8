/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The emulated machine: its cards' names, who has them, and how its processes
 * find each other.
 *
 * A card is taken by binding an abstract socket named after user, box and card,
 * so it is free again the moment its holder dies, and nothing stays behind.
 * Processes of one user and network namespace that give HLTHUNK_EMU_NODE the
 * same value share a box. Other users can bind these names, too; in a folder
 * that HLTHUNK_EMU_NODE names, locked files stand in for them, which stay.
 */
#pragma once

#include "util/unique_fd.h"

#include <functional>
#include <string>

namespace gaudi::emu {

/** Bus id of a card, "dddd:bb:dd.f". */
std::string bus_id_of(unsigned index);

/**
 * Find a card by bus id; the domain may be left out.
 *
 * @return Its index, -1 when the box has no such card.
 */
int index_of_bus_id(const char *bus_id);

/**
 * Take a card for this process.
 *
 * @return A file descriptor that holds it, -EBUSY, or another -errno.
 */
int take_card(unsigned index);

/**
 * Have no other process of the box do what takes this, too: waits for those
 * that do.
 *
 * @return A file descriptor that holds the turn, or -errno.
 */
int take_turn();

/**
 * Whether a process of the box has a card, this one included, or a dma-buf of
 * it. Does not take it.
 */
bool card_is_taken(unsigned index);

/**
 * Open the files in memory of a name, by which the processes of a box know of
 * each other: those that processes of this user have open, if they may be
 * looked into.
 *
 * @param name    As memfd_create was given it.
 * @param access  O_RDONLY or O_RDWR.
 * @param visit   Called with each; returns whether to go on.
 */
void visit_memory_files(const std::string &name, int access,
                        const std::function<bool(util::unique_fd)> &visit);

/**
 * Open the file in memory of a name that the processes of the box share, or
 * make it, all zeros. Nobody else of the box makes one meanwhile.
 *
 * @param length  Bytes that it is to have at least.
 * @param begin   Called with the file when it is new, before others see what is
 *                in it; gives 0 or -errno.
 * @return 0, -EINVAL for a shorter file, or another -errno.
 */
int share_memory_file(const std::string &name, size_t length,
                      util::unique_fd &file_p,
                      const std::function<int(int fd)> &begin);

} // namespace gaudi::emu
