/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A process that is copied for, by the ring that it has brought: see
 * copy_ring.h. Knows how it asks and is told, and what of it is under way.
 *
 * Under the server's lock, but when that is being closed, and where interfaces
 * look for something to do.
 */
#pragma once

#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/ipc/process/shared_page.h"
#include "uct/gaudi/ipc/serving/copy_ring.h"
#include "uct/gaudi/ipc/serving/served_ports.h"
#include "util/file_mapping.h"

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

namespace gaudi::ipc {

class served_client;

/** A copy that it has asked for. */
struct served_copy {
    uct_completion_t done;
    served_client *of = nullptr;
    uint64_t number   = 0;
    uint64_t stamp    = 0;
    bool is_running   = false;
};

class served_client {
public:
    served_client(std::shared_ptr<foreign_page> of, util::unique_fd wake)
        : of_(std::move(of)), wake_(std::move(wake))
    {}
    ~served_client()
    {
        ports_.end();
        if (memory_ != nullptr) {
            memory_->put();
        }
    }

    /** Map its ring. @return UCS_ERR_INVALID_PARAM: it is none;
     *  UCS_ERR_NO_MEMORY. */
    [[nodiscard]] ucs_status_t map(int fd);

    /** Whether it wants nothing more, and all has ended that was started.
     *  Nobody tells that it has executed another program: it is gone when it
     *  is looked at. */
    [[nodiscard]] bool is_gone() const
    {
        return (running_ == 0) &&
               (gone_ || (ring().client_gone.load() != 0) || of_->has_left());
    }

    [[nodiscard]] bool has_posted() const
    {
        return !gone_.load(std::memory_order_relaxed) &&
               (ring().posted.load() !=
                started_.load(std::memory_order_relaxed));
    }

    /** Whether the next copy may start now.
     *  @param share  How many may be under way, but for writes over ports,
     * which lead to nobody else: all that it can ask for. */
    [[nodiscard]] bool may_start(unsigned share) const
    {
        return has_posted() && may_start(share, request(started_.load()).kind);
    }

    /** Whether there is something to do for it. */
    [[nodiscard]] bool is_waiting() const
    {
        return (running_.load(std::memory_order_relaxed) != 0) || has_posted();
    }

    /** Tell it on which core there is progress. */
    void set_core(uint32_t core)
    {
        auto &told = ring().server_core;
        if (told.load(std::memory_order_relaxed) != core) {
            told.store(core, std::memory_order_relaxed);
        }
    }
    [[nodiscard]] bool was_on(uint32_t core) const
    {
        return ring().client_core.load(std::memory_order_relaxed) == core;
    }

    /** Copies that were started, and have not ended. */
    [[nodiscard]] unsigned running() const { return running_; }

    /** It is to ring before it waits for anything; or not. */
    void set_sleeping(bool sleeping)
    {
        ring().server_sleeps.store(sleeping ? 1 : 0);
    }

    /** Tell it that nothing more is copied. */
    void end()
    {
        gone_ = true;
        ring().server_gone.store(1);
        wake();
    }

    /** Nothing goes over its ports any more; while the engine is there. */
    void end_ports() { ports_.end(); }
    /** The same, if it has ended, or has given this up: it acknowledges nothing
     *  any more. */
    void end_ports_if_gone()
    {
        if (!ports_.empty() &&
            ((ring().client_gone.load() != 0) || of_->has_left())) {
            end_ports();
        }
    }

    /** Start the next copy.
     *  @param share  See @ref may_start.
     *  @return false: there is none, or no room now. */
    bool start_next(base::transfer_engine &engine, base::flush_domain &domain,
                    unsigned share);

    /** Tell it what has become of one. @param result  0 or -errno. */
    void finish(served_copy &copy, int result);

private:
    static constexpr unsigned most_over_ports = 1024;

    [[nodiscard]] copy_ring &ring() const
    {
        return *reinterpret_cast<copy_ring *>(mapping_.start());
    }
    [[nodiscard]] copy_request &request(uint64_t number) const
    {
        return ring().requests()[number % copies_.size()];
    }

    void wake();
    [[nodiscard]] bool may_start(unsigned share, uint32_t kind) const
    {
        return running_ < ((kind == request_write) ? most_over_ports : share);
    }
    [[nodiscard]] ucs_status_t start(const request_body &asked,
                                     base::transfer_engine &engine,
                                     base::flush_domain &domain,
                                     served_copy &copy);
    [[nodiscard]] bool is_in_chunks(uint64_t offset, uint64_t length) const
    {
        return (length != 0) && (offset <= data_bytes_) &&
               (length <= data_bytes_ - offset);
    }
    [[nodiscard]] int connect_ports(const request_body &asked,
                                    base::transfer_engine &engine);

    const std::shared_ptr<foreign_page> of_;
    const util::unique_fd wake_;
    util::file_mapping mapping_;
    char *data_                = nullptr;
    uint64_t data_bytes_       = 0;
    base::host_region *memory_ = nullptr; /* the chunks; goes first */
    std::vector<served_copy> copies_;     /* by slot */
    served_ports ports_;
    std::atomic<uint64_t> started_{0};
    std::atomic<unsigned> running_{0};
    std::atomic<bool> gone_{false};
};

} // namespace gaudi::ipc
