/**
 * Another process of the machine: whether it lives, and how to get its files.
 *
 * One object per process, shared by all that have to do with it. Any thread.
 * This process itself gives an object, too. Nothing here waits longer than the
 * timeout, and nothing waits for a process that has died.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/process/file_request.h"
#include "uct/gaudi/ipc/process/process_id.h"
#include "util/other_process.h"
#include "util/unique_fd.h"

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

    /** false in a forked child, for the object that was its parent itself. */
    [[nodiscard]] bool is_self() const;

    /** A system call. */
    [[nodiscard]] bool is_alive() const;

    /** Readable when the process has ended. Owned by this object. */
    [[nodiscard]] int pidfd() const { return pidfd_.get(); }

    /** Its host memory. */
    [[nodiscard]] const util::process_memory &memory() const { return memory_; }

    /** Get a file that the process has open: with pidfd_getfd, else from its
     *  file service.
     *  @param file  As the process describes it; what comes is compared with
     *               it, unless the service says that it opened the file anew.
     *  @param fd_p  A new descriptor, close-on-exec.
     *  @return UCS_ERR_UNREACHABLE: the process is gone, or lets nobody have
     *          its files. UCS_ERR_NO_ELEM: it does not have this file (any
     *          more). UCS_ERR_TIMED_OUT, UCS_ERR_NO_RESOURCE. Said at debug
     *          level. */
    [[nodiscard]] ucs_status_t get_file(const file_ref &file,
                                        util::unique_fd &fd_p) const;

    /** The same in steps that wait for nothing; UCS_INPROGRESS: again.
     *  @param request  Fresh for the first step, the same for all of them. */
    [[nodiscard]] ucs_status_t try_file(const file_ref &file,
                                        file_request &request,
                                        util::unique_fd &fd_p) const;

    /** Whether there is a way to a file, without asking the process: it can be
     *  taken, or the process be asked. @return As @ref get_file. */
    [[nodiscard]] ucs_status_t probe_file(const file_ref &file) const;

    /** How long requests to file services may take, in seconds. */
    static void set_timeout(double seconds);

    /** For tests: do as if the kernel forbade pidfd_getfd. */
    static void refuse_pidfd_getfd(bool refuse);

private:
    remote_process(const process_id &id, util::unique_fd pidfd);

    [[nodiscard]] ucs_status_t take_file(const file_ref &file,
                                         util::unique_fd &fd_p) const;

    const process_id id_;
    const util::unique_fd pidfd_;
    const unsigned generation_; /* of the process that made this object */
    const bool self_;
    util::process_memory memory_;
};

} // namespace gaudi::ipc
