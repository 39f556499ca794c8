/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * How files cross processes: each process has an abstract socket, named after
 * its nonce, another one in the shared folder, if there is one, and a thread
 * that answers on both, from the first offered file on. It gives files to
 * processes of the same user that know their names, whatever the rest of the
 * process does: to those of the same user and PID namespaces, and to those that
 * have come by the folder.
 *
 * It is a thread of ours, not UCX's async thread: that one is lost in a forked
 * child, where its event set is still the parent's. Any thread may call.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/process/datagram.h"
#include "uct/gaudi/ipc/process/process_id.h"

#include <array>
#include <functional>

namespace gaudi::ipc {

inline constexpr uint64_t request_magic = 0x6c69662d69647561; /* "audi-fil" */

/** What is sent to a service, with the descriptor that answers go to, and
 *  perhaps others. */
struct wire_request {
    uint64_t magic;
    uint64_t number; /**< comes back in the reply */
    process_id sender;
    file_ref file; /**< what it is to answer with */
    uint32_t version;
    uint32_t reserved;
};
static_assert(sizeof(wire_request) == 64);

/** What it answers. */
struct wire_reply {
    uint64_t number;
    int32_t status; /**< ucs_status_t; with UCS_OK descriptors come along */
    uint32_t reserved;
};
static_assert(sizeof(wire_reply) == 16);

/** Files that others may have. */
struct file_offer {
    /** Handed out together; the second one may be missing. They stay the
     *  caller's, open until @ref file_service::remove. */
    std::array<int, 2> fds{-1, -1};

    /** Instead of them: makes a file for each who asks. Under the service's
     *  lock; takes no lock that is held across remove.
     *  @return UCS_ERR_NO_RESOURCE. */
    std::function<ucs_status_t(util::unique_fd &fd_p)> open{};

    /** Who asks brings files, and gets an answer if this takes them. On the
     *  service's thread, under no lock. */
    ucs_status_t (*take)(const process_id &sender, file_pair brought) = nullptr;
};

class file_service {
public:
    /** Hand out files from now on. Without a service, which is said at
     *  diagnostic level, nobody gets them.
     *  @return UCS_ERR_IO_ERROR: they are not open, or there are no random
     *          numbers. */
    [[nodiscard]] static ucs_status_t add(file_offer offer, file_ref &file_p);

    /** After it the service does not use the descriptors any more, nor opens
     *  anything. */
    static void remove(const file_ref &file);

    /** What the service of this process answers: those of others are asked by
     *  @ref remote_process.
     *  @param files_p  New descriptors, close-on-exec.
     *  @return UCS_ERR_NO_ELEM: there is no such file. UCS_ERR_NO_RESOURCE, and
     *          what file_offer::open says. */
    [[nodiscard]] static ucs_status_t look_up(const file_ref &file,
                                              file_pair &files_p);

    /** Call a function, the same for all, on the service's thread, when a
     *  process has ended. For what is taken, which that thread does.
     *  @param life  Readable then, see @ref remote_process; may be closed. */
    static void call_at_end(int life, void (*handler)());
};

} // namespace gaudi::ipc
