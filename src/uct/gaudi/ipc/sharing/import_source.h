/**
 * Another process whose memory this one uses: what it says in its shared page,
 * and whether it is still there.
 *
 * One object per process, shared by the cache of remote buffers and the keys.
 * Threads: any; no locks.
 */
#pragma once

#include "uct/gaudi/ipc/process/remote_process.h"
#include "uct/gaudi/ipc/sharing/pace.h"
#include "uct/gaudi/ipc/sharing/shared_page.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace gaudi::ipc {

class import_source {
public:
    /** Find a process, and tell it that this one uses its memory.
     *  @param page  Its shared page, as keys name it.
     *  @return UCS_ERR_UNREACHABLE: it is gone or out of reach; said at debug
     *          level. UCS_ERR_NO_RESOURCE: no room for a descriptor or a
     *          mapping; logged. */
    [[nodiscard]] static ucs_status_t
    open(const process_id &process, const file_ref &page,
         std::shared_ptr<import_source> &source_p);

    import_source(std::shared_ptr<remote_process> process,
                  std::unique_ptr<foreign_page> page)
        : process_(std::move(process)), page_(std::move(page))
    {}

    [[nodiscard]] const remote_process &process() const { return *process_; }
    [[nodiscard]] const foreign_page &page() const { return *page_; }

    /** Whether the process has ended, or has executed another program; the
     *  kernel is asked every few milliseconds. */
    [[nodiscard]] bool is_dead();

    /** Whether the kernel lets us read and write its host memory; why not is
     *  said at debug level, once. */
    [[nodiscard]] bool has_memory();

private:
    friend class remote_buffers;
    friend class remote_buffer;

    /* How long what the kernel said of a process is taken for true, seconds. */
    static constexpr double trust = 5e-3;

    const std::shared_ptr<remote_process> process_;
    const std::unique_ptr<foreign_page> page_;

    pace asking_{trust};
    std::atomic<bool> dead_{false};
    std::atomic<int> memory_{-1};            /* has_memory, -1: not known */
    std::atomic<bool> without_peers_{false}; /* that was said */
};

} // namespace gaudi::ipc
