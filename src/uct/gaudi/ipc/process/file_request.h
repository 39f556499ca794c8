/**
 * A question to the file service of another process.
 *
 * Asked and answered in steps that wait for nothing, so that an interface's
 * progress can do it, too. One thread at a time. Costs a descriptor while it is
 * under way.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/process/process_id.h"
#include "util/unique_fd.h"

#include <chrono>
#include <cstdint>

namespace gaudi::ipc {

inline constexpr uint64_t request_magic = 0x6c69662d69647561; /* "audi-fil" */

/** What is sent to a service. */
struct wire_request {
    uint64_t magic;
    uint64_t number; /**< comes back in the reply */
    file_ref file;
    uint32_t version;
    uint32_t reserved; /**< 0 */
};
static_assert(sizeof(wire_request) == 64);

/** What it answers. */
struct wire_reply {
    uint64_t number;
    int32_t status; /**< ucs_status_t; with UCS_OK a descriptor comes along */
    uint32_t anew;  /**< the file was opened anew */
};
static_assert(sizeof(wire_reply) == 16);

class file_request {
public:
    /** Ask from now on.
     *  @return UCS_ERR_UNREACHABLE: there is no such service. UCS_ERR_REJECTED:
     *          it would not answer this process. UCS_ERR_NO_RESOURCE: no room
     *          for a descriptor. Said at debug level. */
    [[nodiscard]] ucs_status_t start(const process_id &process,
                                     const file_ref &file, int timeout_ms);

    [[nodiscard]] bool is_under_way() const { return bool(socket_); }

    /** Go on as far as possible without waiting.
     *  @param fd_p    A new descriptor, close-on-exec.
     *  @param anew_p  Whether the file was opened anew.
     *  @return UCS_INPROGRESS; else it has ended: UCS_OK, or what the service
     *          says, UCS_ERR_REJECTED where it gives this process nothing;
     *          UCS_ERR_TIMED_OUT, or as @ref start. */
    [[nodiscard]] ucs_status_t progress(util::unique_fd &fd_p, bool &anew_p);

    /** Wait until there is some progress to be made, or none any more.
     *  @param pidfd  Of the process: its end ends the wait. */
    void wait(int pidfd) const;

    /** Whether a process has a service that would listen to this one, as far as
     *  can be known without asking.
     *  @return UCS_OK, UCS_ERR_UNREACHABLE or UCS_ERR_NO_RESOURCE. */
    [[nodiscard]] static ucs_status_t find_service(const process_id &process);

private:
    using clock = std::chrono::steady_clock;

    ucs_status_t send();
    ucs_status_t receive(util::unique_fd &fd_p, bool &anew_p);

    process_id process_{};
    file_ref file_{};
    uint64_t number_ = 0;
    clock::time_point deadline_;
    util::unique_fd socket_;
    bool sent_ = false;
};

} // namespace gaudi::ipc
