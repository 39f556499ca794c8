/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memory of other processes that this one has opened: a cache, one per process.
 *
 * A buffer is what a driver mapped in one piece, however many keys point into
 * it. Each card of ours that uses it maps windows of it. Of too many the one
 * that was not used for the longest time is unmapped, never one that an
 * operation uses; the next use maps it again.
 *
 * What has been withdrawn, or whose process has died, is never used again: keys
 * tell by the buffer's cell. It is unmapped when the next buffer is opened, and
 * by sweep().
 *
 * Threads: any, and one of its own for each import that takes long. The lock of
 * the cache is not held while the driver or another process is asked for
 * something; that of the mappings of a window is.
 */
#pragma once

#include "uct/gaudi/base/cards/card.h"
#include "uct/gaudi/base/memory/import_windows.h"
#include "uct/gaudi/ipc/process/shared_page.h"
#include "uct/gaudi/ipc/sharing/key.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gaudi::ipc {

class remote_buffers;

/** A buffer of another process: where cards of ours find what is in it. Shared
 *  by the keys into it and the cache. While a window is imported, only its own
 *  lock is held. */
class remote_buffer : public std::enable_shared_from_this<remote_buffer> {
public:
    /** Imports of more bytes are made in the background, if nobody waits for
     *  them. By what the driver needs for a page, 0.3 us while it has few, this
     *  many take some ten milliseconds. */
    static constexpr uint64_t quick_bytes = 2 * base::window_grain;

    /** @param cache  Outlives it. */
    remote_buffer(std::shared_ptr<foreign_page> of, const wire_key &key,
                  remote_buffers &cache);
    ~remote_buffer();
    remote_buffer(const remote_buffer &)            = delete;
    remote_buffer &operator=(const remote_buffer &) = delete;

    /** Whether its process has withdrawn it. */
    [[nodiscard]] bool is_withdrawn() const
    {
        return of_->cell(key_.buffer.cell) != key_.buffer.stamp;
    }

    /** Keep the window of a range from being unmapped.
     *  @return nullptr for what is not in the buffer. Throws bad_alloc. */
    [[nodiscard]] base::kept_window keep(uint64_t address, uint64_t length);

    /** Where a card finds a range of it, which is kept; imports the window when
     *  the card uses it for the first time.
     *  @param waits  Else an import that takes long is made in the background.
     *  @return 0, or -errno: -EOPNOTSUPP when the driver cannot import, -ENOENT
     *          when it is withdrawn, -ESRCH when its process has died, -EFAULT
     *          for what is not in the buffer; -EINPROGRESS. */
    [[nodiscard]] int va_on(base::card &user, uint64_t address, uint64_t length,
                            bool waits, uint64_t &va_p);

private:
    friend class remote_buffers;

    [[nodiscard]] int import_once(base::card &user,
                                  const base::kept_window &window,
                                  uint64_t &first_p);
    [[nodiscard]] base::card_mappings::answer
    import_on(base::card &user, const base::kept_window &window,
              shim::registration &mapping);
    [[nodiscard]] bool start_import(base::card &user,
                                    const base::kept_window &window);

    const std::shared_ptr<foreign_page> of_;
    const wire_key key_; /* that it was opened with */
    remote_buffers &cache_;
    base::import_windows windows_;
    unsigned mapped_ = 0; /* of them; under the cache's lock */
};

class remote_buffers {
public:
    struct limits {
        unsigned max_regions = 1024;
        size_t max_bytes     = SIZE_MAX;
    };

    struct statistics {
        uint64_t hits      = 0;
        uint64_t misses    = 0; /**< windows that were opened */
        uint64_t evictions = 0; /**< that had to make room */
        uint64_t withdrawn = 0; /**< that went for other reasons */
        uint64_t regions   = 0; /**< that are mapped now */
        uint64_t bytes     = 0; /**< in these */
        uint64_t processes = 0; /**< whose memory this one uses */
    };

    static remote_buffers &instance();

    /** Cards may be used from now on; the limits of the first user hold. */
    void open(const limits &wished);

    /** Undo one open; the last one unmaps everything. */
    void close();

    /** Find the process that a key is of, and tell it that this one uses its
     *  memory.
     *  @return UCS_ERR_UNREACHABLE: it is gone or out of reach; said at debug
     *          level. UCS_ERR_NO_RESOURCE: no room for a descriptor or a
     *          mapping; logged. */
    [[nodiscard]] ucs_status_t find(const wire_key &key,
                                    std::shared_ptr<foreign_page> &source_p);

    /** Find, or open, the buffer that a key of device memory points into.
     *  @return As above; also UCS_ERR_UNREACHABLE when no card of ours reaches
     *          it now, UCS_ERR_UNSUPPORTED when none can, UCS_ERR_REJECTED when
     *          its process has withdrawn it; said at debug level.
     *          UCS_ERR_NO_RESOURCE with a buffer: there was no room to map it,
     *          and its first use that finds room does. */
    [[nodiscard]] ucs_status_t find(const wire_key &key,
                                    std::shared_ptr<foreign_page> &source_p,
                                    std::shared_ptr<remote_buffer> &buffer_p);

    /** Unmap what was withdrawn, and what is of dead processes, unless another
     *  thread is at it. */
    void sweep();

    /** A key lets go of a buffer. */
    void forget(const std::shared_ptr<remote_buffer> &buffer);

    [[nodiscard]] statistics numbers() const;

    /* What buffers tell; under no lock but a window's. */

    /** A window was imported, or never can be: 0 bytes. */
    void opened(remote_buffer &buffer, const base::kept_window &window,
                uint64_t bytes);
    /** A buffer goes, with all its windows. */
    void gone(remote_buffer &buffer);
    /** So many more threads have cards map or unmap. */
    void count_threads(int change);

private:
    /* Names a buffer: its process and its stamp there. The rest is what
     * keys say of it, so that a wrong one spoils nothing for the right ones. */
    using name = std::pair<process_id, wire_buffer>;
    static name name_of(const wire_key &key)
    {
        return {key.process, key.buffer};
    }

    /* What is to go when the lock is free: imports, buffers, sources. */
    using leftovers = std::vector<std::shared_ptr<void>>;

    /* Windows that are mapped. */
    struct mapping {
        remote_buffer *of;
        uint64_t bytes = 0; /* that count for it, on all cards */
    };
    using mappings = std::unordered_map<base::import_window *, mapping>;

    /* Under lock_. */
    mappings::iterator unlist(mappings::iterator which);
    bool detach(mappings::iterator which, leftovers &rest);
    void detach_all(remote_buffer &buffer, leftovers &rest);
    void make_room(leftovers &rest);

    mutable std::mutex lock_;
    unsigned users_ = 0;
    limits limits_;
    std::unordered_map<uint64_t, std::shared_ptr<foreign_page>> sources_;
    std::map<name, std::shared_ptr<remote_buffer>> buffers_;
    mappings mapped_;
    int threads_ = 0; /* that use cards, which the last close() waits for */
    std::condition_variable changed_;
    uint64_t bytes_ = 0; /* in them */
    statistics counted_; /* without what is asked when it is shown */

    std::atomic<bool> empty_{true}; /* no sources */
};

} // namespace gaudi::ipc
