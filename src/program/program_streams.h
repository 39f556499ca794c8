/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Streams and events of ucx_gaudi.h: copies that are made in their order while
 * the program does something else.
 *
 * A stream has an engine of its own, which has the card make copies of memory
 * that the card reaches. Several are under way at a time, unless one needs the
 * bytes of another. What the CPU has to take part in is copied before the call
 * returns. Everybody who asks a stream or an event, or waits for it, has the
 * stream get on, and those that it waits for, one after the other, each once:
 * they may wait for each other in a circle.
 *
 * Threads: any. A lock per stream, under which the stream gets on: who finds it
 * taken knows that somebody else is at it. No other stream's lock is taken
 * under it.
 */
#pragma once

#include "program/program_copies.h"
#include "uct/gaudi/base/transfer/engine.h"
#include "util/process.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

namespace gaudi {

class stream_work;

/** What a stream collects of what has ended. */
enum class look { brief, thorough };

/** Whether what was before a place in a stream is done, and how that went. */
class moment {
public:
    explicit moment(const std::shared_ptr<stream_work> &in) : in_(in) {}

    /** @return UCS_INPROGRESS, UCS_OK, or what failed before. */
    [[nodiscard]] ucs_status_t status() const { return status_.load(); }

    /** @return The stream that it is in, until it is set. */
    [[nodiscard]] std::shared_ptr<stream_work> awaited() const
    {
        return (status() == UCS_INPROGRESS) ? in_.lock() : nullptr;
    }

    /** Have that stream get on. @return Whether anything has. */
    bool progress(look how) const;

    void set(ucs_status_t status) { status_.store(status); }

private:
    const std::weak_ptr<stream_work> in_; /* which is there until it is set */
    std::atomic<ucs_status_t> status_{UCS_INPROGRESS};
};

/** What a stream does next: wait for one moment, copy, tell another one. All
 *  that is missing here is left out. */
struct stream_step {
    uct_completion_t ended{}; /* first */
    void *dst       = nullptr;
    const void *src = nullptr;
    size_t length   = 0;
    bool by_card    = false; /* and nobody else */
    std::shared_ptr<const moment> after{};
    std::shared_ptr<moment> then{};
    std::optional<copy_sides> sides{};
    ucs_status_t result = UCS_OK; /* UCS_INPROGRESS: the card is at it */
};

/** What a stream has to do. */
class stream_work {
public:
    stream_work() { base::transfer_engine::open(domain_); }
    ~stream_work();
    stream_work(const stream_work &)            = delete;
    stream_work &operator=(const stream_work &) = delete;

    /** @return Its number. */
    uint64_t add(stream_step step);

    /** Return when so many steps are done. */
    void wait_for(uint64_t number);

    /** Return when all that was added is done, and forget its failure. */
    [[nodiscard]] ucs_status_t finish();

    /** @return UCS_INPROGRESS; else the failure, which stays. */
    [[nodiscard]] ucs_status_t status();

    /** Do what can be done now, here and in the streams that this waits for.
     *  @return Whether there was anything. */
    bool progress(look how);

private:
    [[nodiscard]] std::shared_ptr<stream_work> get_on(look how, bool &any_p);
    [[nodiscard]] size_t looks_for_all() const;
    [[nodiscard]] bool begin(stream_step &step);
    template <typename Test>
    [[nodiscard]] bool any_begun(Test &&test) const;
    void retire_first();

    std::mutex lock_;
    base::flush_domain domain_{};
    std::deque<stream_step> steps_;
    std::unique_ptr<base::transfer_engine> engine_; /* since it was needed */
    size_t begun_   = 0; /* of them, the first ones */
    uint64_t added_ = 0;
    uint64_t done_  = 0;
    /* Of the first step that failed; what comes after it is left out. */
    ucs_status_t failure_ = UCS_OK;
};

} // namespace gaudi

struct ucx_gaudi_stream {
    const gaudi::util::in_use open{}; /* it has an engine */
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
