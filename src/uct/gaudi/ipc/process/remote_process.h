/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Another process of the machine: whether it lives, and how to get its files.
 *
 * One object per process, shared by all that have to do with it. Any thread.
 * This process itself gives an object, too. Nothing here waits longer than the
 * timeout, and nothing waits for a process that has died.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/process/datagram.h"
#include "uct/gaudi/ipc/process/file_service.h"
#include "uct/gaudi/ipc/process/process_id.h"
#include "util/other_process.h"
#include "util/process.h"
#include "util/unique_fd.h"

#include <array>
#include <memory>

namespace gaudi::ipc {

class remote_process {
public:
    /** Find a process.
     *  @return UCS_ERR_UNREACHABLE: there is no such process any more, or the
     *          kernel does not let us look; said at debug level.
     *          UCS_ERR_NO_RESOURCE: no room for one more descriptor. */
    [[nodiscard]] static ucs_status_t
    open(const process_id &id, std::shared_ptr<remote_process> &process_p);

    [[nodiscard]] const process_id &id() const { return id_; }

    /** Whether it is this process. */
    [[nodiscard]] bool is_self() const { return self_; }

    /** A system call. */
    [[nodiscard]] bool is_alive() const;

    /** Readable when the process has ended: a pidfd, or, of another PID
     *  namespace, what the shared folder has. Owned by this object. */
    [[nodiscard]] int life() const { return life_.get(); }

    /** Its host memory; out of reach in another PID namespace. */
    [[nodiscard]] const util::process_memory &memory() const { return memory_; }

    /** Get files of the process from its file service.
     *  @param files_p  New descriptors, close-on-exec.
     *  @param brought  What goes to the process for it; -1: nothing. Borrowed.
     *  @return UCS_ERR_UNREACHABLE: the process is gone, or gives this one
     *          nothing. UCS_ERR_NO_ELEM: it does not have these files (any
     *          more). UCS_ERR_TIMED_OUT, UCS_ERR_NO_RESOURCE. Said at debug
     *          level. */
    [[nodiscard]] ucs_status_t
    get_files(const file_ref &file, file_pair &files_p,
              std::array<int, 2> brought = {-1, -1}) const;

    /** Whether the process can be asked for files; it is not asked now.
     *  @return UCS_OK, UCS_ERR_UNREACHABLE or UCS_ERR_NO_RESOURCE. */
    [[nodiscard]] ucs_status_t probe_files() const;

    /** How long requests to file services may take, in seconds. */
    static void set_timeout(double seconds);
    [[nodiscard]] static int timeout_ms();

private:
    remote_process(const process_id &id, util::unique_fd life);

    [[nodiscard]] ucs_status_t connect(util::unique_fd &socket_p) const;
    [[nodiscard]] ucs_status_t ask(const file_ref &file,
                                   std::array<int, 2> brought,
                                   file_pair &files_p) const;

    const process_id id_;
    const util::unique_fd life_;
    const bool self_;
    util::process_memory memory_;
};

} // namespace gaudi::ipc
