/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The folder by which processes find each other whose namespaces keep them
 * apart, as those of two pods (UCX_GAUDI_IPC_DIR).
 *
 * In it each user has a folder of its own, closed to all others. There a
 * process has two files, which go when it ends; those of killed processes go
 * when another one comes:
 *
 *   the socket of its file service
 *   a FIFO, open for reading as long as the process lives and executes no other
 *   program: who has opened it for writing is told its end by poll(2)
 *
 * Any thread. The files are made by the first call; a child that was forked
 * makes its own.
 */
#pragma once

#include "util/fork_handlers.h"
#include "util/process.h"
#include "util/unique_fd.h"

#include <cstdint>
#include <mutex>
#include <string>

namespace gaudi::ipc {

/** In words that name processes: by their files in the folder. No pid has this
 *  bit, nor the next one, which others use. */
inline constexpr uint64_t in_folder = uint64_t{1} << 30;

/** Names the files of a process. */
constexpr uint64_t folder_word(uint64_t nonce)
{
    return (nonce | in_folder) & ~(in_folder << 1);
}

class shared_folder {
public:
    static shared_folder &instance();

    /** Tells the user's folder from others of the machine; 0: there is none,
     *  or none that can be used, which is said as a warning. */
    [[nodiscard]] uint32_t identity();

    /** The socket of this process; -1: none. Stays the folder's. */
    [[nodiscard]] int service();

    /** Connect a client to the service of a process.
     *  @param word  folder_word() of it. @return false, with
     *               errno. */
    [[nodiscard]] bool connect(int client, uint64_t word);

    /** @param word  The same.
     *  @return What polls as readable when the process has ended; none, with
     *          errno: it has (ENXIO, ENOENT), or cannot be had. */
    [[nodiscard]] util::unique_fd open_life(uint64_t word);

private:
    void open(); /* under the lock */
    [[nodiscard]] std::string make_files(const std::string &in);
    [[nodiscard]] std::string path_of(const std::string &file) const;
    void remove_files(uint64_t word) const;
    void sweep() const;
    static void remove_at_exit();

    std::mutex lock_;
    bool asked_        = false;
    uint32_t identity_ = 0;
    uint64_t word_     = 0; /* of the process that made the files */
    util::unique_fd folder_;
    util::unique_fd life_;
    util::unique_fd socket_;
    util::closed_in_children not_in_children_[3];
};

/** Whether the process that an owner word (process_id::word_for) names has
 *  ended. One that cannot be looked at is taken to live. */
[[nodiscard]] bool process_has_ended(uint64_t word);

} // namespace gaudi::ipc
