/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Streams and events of ucx_gaudi.h: copies that are made in their order while
 * the program does something else.
 *
 * A stream has a thread, which makes one copy after the other as
 * ucx_gaudi_mem_copy does. So it gets on without the program's help, whatever
 * its copies need of the CPU. Who waits for a stream does that work itself
 * where the thread is not at it: to wake one takes longer than a short copy.
 *
 * Threads: any. A lock per stream, which is held across nothing.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "util/process.h"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

namespace gaudi {

/** Whether what was before a place in a stream is done, and how that went. */
class moment {
public:
    /** @return UCS_INPROGRESS, UCS_OK, or what failed before. */
    [[nodiscard]] ucs_status_t status() const
    {
        return static_cast<ucs_status_t>(status_.load());
    }

    /** The same, once it is known. */
    [[nodiscard]] ucs_status_t wait() const
    {
        status_.wait(UCS_INPROGRESS);
        return status();
    }

    void set(ucs_status_t status)
    {
        status_.store(status);
        status_.notify_all();
    }

private:
    std::atomic<int> status_{UCS_INPROGRESS};
};

/** What a stream does next: wait for one moment, copy, tell another one. All
 *  that is missing here is left out. */
struct stream_step {
    void *dst       = nullptr;
    const void *src = nullptr;
    size_t length   = 0;
    std::shared_ptr<const moment> after{};
    std::shared_ptr<moment> then{};
};

/** What a stream has to do. The stream shares it with its thread. */
class stream_work {
public:
    void add(stream_step step);

    /** Return when all that was added is done, and forget its failure. */
    [[nodiscard]] ucs_status_t finish();

    /** @return UCS_INPROGRESS; else the failure, which stays. */
    [[nodiscard]] ucs_status_t status();

    /** Nothing is added any more. */
    void end();

    /** The thread, until the end. */
    void run();

private:
    void do_next(std::unique_lock<std::mutex> &guard);

    std::mutex lock_;
    std::condition_variable changed_;
    std::deque<stream_step> steps_;
    bool is_busy_   = false; /* somebody makes a step */
    bool is_ended_  = false;
    uint64_t added_ = 0;
    uint64_t done_  = 0;
    /* Of the first step that failed; what comes after it is left out. */
    ucs_status_t failure_ = UCS_OK;
};

} // namespace gaudi

struct ucx_gaudi_stream {
    const gaudi::util::in_use open{}; /* a child would lack its thread */
    const std::shared_ptr<gaudi::stream_work> work =
        std::make_shared<gaudi::stream_work>();
};

struct ucx_gaudi_event {
    /* What was recorded last; nullptr: nothing. */
    std::shared_ptr<gaudi::moment> last()
    {
        const std::lock_guard<std::mutex> guard(lock);
        return recorded;
    }

    std::mutex lock{}; /* of what is recorded */
    std::shared_ptr<gaudi::moment> recorded{};
};
