/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The shared pages of the processes whose memory this one uses: a cache, one
 * per process. Those of processes that have ended go when the next one is
 * looked for, and by sweep(). Any thread; the lock is not held while another
 * process is asked for something.
 */
#pragma once

#include "uct/gaudi/ipc/process/shared_page.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace gaudi::ipc {

class foreign_pages {
public:
    static foreign_pages &instance();

    /** A memory domain opens, or closes: the last one forgets all pages. */
    void open();
    void close();

    /** Find the page of a process, and tell that process that this one uses its
     *  memory.
     *  @param page  Of that process, where its page is not known yet.
     *  @return UCS_ERR_UNREACHABLE: it is gone or out of reach; said at debug
     *          level. UCS_ERR_NO_RESOURCE: no room for a descriptor or a
     *          mapping; logged. */
    [[nodiscard]] ucs_status_t find(const process_id &id, const file_ref &page,
                                    std::shared_ptr<foreign_page> &page_p);

    /** Forget the pages of processes that have ended. */
    void sweep();

    /** How many processes there are. */
    [[nodiscard]] uint64_t count() const;

private:
    mutable std::mutex lock_;
    unsigned users_ = 0; /* memory domains */
    std::unordered_map<uint64_t, std::shared_ptr<foreign_page>>
        pages_;                     /* by nonce */
    std::atomic<bool> empty_{true}; /* none of them */
};

} // namespace gaudi::ipc
