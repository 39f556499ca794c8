/**
 * Hands out files of this process to others of the same user and the same user
 * and PID namespaces that have been told of them, where they may not take them
 * with pidfd_getfd, and hears from them that they withdraw theirs.
 *
 * An abstract socket, named after the process's nonce, and a thread that
 * answers on it, both from the first registered file on. It is a thread of
 * ours, not UCX's async thread: that one is lost in a forked child, where its
 * event set is still the parent's.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/process/process_id.h"
#include "util/unique_fd.h"

namespace gaudi::ipc {

/** Open a registered file anew, whose descriptor no longer stands for it.
 *  Called on the service's thread, or on the one that asks for a file of its
 *  own process, under no lock of ours; perhaps when the file has just been
 *  removed.
 *  @param fd_p  A new descriptor, owned by the caller.
 *  @return UCS_ERR_NO_ELEM: it is not there any more. UCS_ERR_NO_RESOURCE. */
using reopen_function = ucs_status_t (*)(const file_ref &file, int &fd_p);

class file_service {
public:
    /** Hand out a file from now on.
     *  @param reopen  nullptr: it is refused once its descriptor stands for
     *                 another file.
     *  @return UCS_OK; else others get the file with pidfd_getfd only. Said at
     *          debug level. */
    static ucs_status_t add(const file_ref &file,
                            reopen_function reopen = nullptr);

    static void remove(const file_ref &file);

    /** What the service answers, for files of the own process. Parameters as of
     *  file_request::progress.
     *  @return UCS_ERR_NO_ELEM when there is no such file, or its token is
     *          another one. UCS_ERR_NO_RESOURCE. */
    [[nodiscard]] static ucs_status_t
    look_up(const file_ref &file, util::unique_fd &fd_p, bool &anew_p);

    /** Call a function, on the service's thread, when another process has
     *  withdrawn memory. For the process; children inherit it. */
    static void on_withdrawal(void (*handler)());

    /** Tell another process that memory has been withdrawn. Waits for nothing:
     *  a process that is too busy to hear finds out by itself later. */
    static void tell_withdrawal(const process_id &process);
};

} // namespace gaudi::ipc
