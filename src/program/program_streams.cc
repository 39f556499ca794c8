/* SPDX-License-Identifier: BSD-3-Clause */
#include "program/program_streams.h"

#include "program/program_memory.h"
#include "program/ucx_gaudi.h"
#include "util/locks.h"

#include <algorithm>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

namespace gaudi {

namespace {

/* Copies of a stream that are under way at a time: about what a card takes. */
constexpr size_t most_under_way = 64;

/* The card is to go on by itself: long copies wait for nobody to ask. */
constexpr base::transfer_options of_streams = {.long_jobs  = 64,
                                               .logs_paths = true};

/* An engine that is asked collects at least so many pieces that have ended. */
constexpr size_t pieces_per_look = 8;

/* Looks in a row that find nothing, before whoever waits sleeps in between. */
constexpr unsigned eager_looks = 256;

/* Look again and again until something is so. */
template <typename IsSo, typename Attempt>
void wait_until(IsSo &&is_so, Attempt &&attempt)
{
    for (unsigned idle = 0; !is_so();) {
        if (attempt()) {
            idle = 0;
        } else if (++idle < eager_looks) {
            std::this_thread::yield();
        } else {
            util::nap();
        }
    }
}

bool overlap(const void *one, size_t length, const void *other,
             size_t other_length)
{
    const auto first  = reinterpret_cast<uintptr_t>(one);
    const auto second = reinterpret_cast<uintptr_t>(other);
    return (first < second + other_length) && (second < first + length);
}

/* Whether one of two copies has to come after the other. */
bool depend(const stream_step &one, const stream_step &other)
{
    return overlap(one.dst, one.length, other.dst, other.length) ||
           overlap(one.dst, one.length, other.src, other.length) ||
           overlap(one.src, one.length, other.dst, other.length);
}

void note_end(uct_completion_t *self)
{
    static_assert(offsetof(stream_step, ended) == 0);
    reinterpret_cast<stream_step *>(self)->result = self->status;
}

} // namespace

bool moment::progress(look how) const
{
    const auto stream = awaited();
    return (stream != nullptr) && stream->progress(how);
}

stream_work::~stream_work()
{
    if (engine_ != nullptr) {
        engine_->close(domain_);
    }
}

uint64_t stream_work::add(stream_step step)
{
    const std::lock_guard<std::mutex> guard(lock_);
    steps_.push_back(std::move(step));
    return ++added_;
}

template <typename Test>
bool stream_work::any_begun(Test &&test) const
{
    return std::any_of(steps_.begin(),
                       steps_.begin() + static_cast<ptrdiff_t>(begun_), test);
}

/* @return Whether it has begun; it may have ended then. */
bool stream_work::begin(stream_step &step)
{
    if ((failure_ != UCS_OK) || any_begun([](const stream_step &before) {
            return UCS_STATUS_IS_ERR(before.result);
        })) {
        return true; /* and has done nothing */
    }
    if (step.after != nullptr) {
        step.result = step.after->status();
        return step.result != UCS_INPROGRESS;
    }
    if (step.length == 0) {
        return true;
    }
    if (!step.by_card) {
        if (begun_ == 0) {
            step.result = copy_memory(step.dst, step.src, step.length);
        }
        return begun_ == 0;
    }
    if (begun_ == most_under_way) {
        return false;
    }
    if (!step.sides) {
        step.sides.emplace(step.dst, step.src, step.length);
    }
    step.result = program_memory::prepare_engine(step.sides->is_within(),
                                                 of_streams, engine_);
    if (step.result == UCS_OK) {
        step.result = step.sides->connect(*engine_);
    }
    if (step.result != UCS_OK) {
        return true;
    }
    if (any_begun([&](const stream_step &before) {
            return (before.result == UCS_INPROGRESS) && depend(before, step);
        })) {
        engine_->fence();
    }
    step.ended  = {.func = note_end, .count = 1, .status = UCS_OK};
    step.result = engine_->start(domain_, step.sides->dst, step.sides->src,
                                 step.length, &step.ended);
    if (step.result == UCS_ERR_NO_RESOURCE) {
        step.result = UCS_OK; /* the next time */
        return false;
    }
    return true;
}

void stream_work::retire_first()
{
    const stream_step &first = steps_.front();
    if (first.sides) {
        first.sides->log_end(first.result);
    }
    if (failure_ == UCS_OK) {
        failure_ = first.result;
    }
    if (first.then != nullptr) {
        first.then->set(failure_);
    }
    steps_.pop_front();
    --begun_;
    ++done_;
}

/* How often the engine is asked until it has collected all that has ended: it
 * tells of copies only, and a long one is of many pieces. */
size_t stream_work::looks_for_all() const
{
    size_t pieces = 0;
    (void)any_begun([&](const stream_step &each) {
        if (each.result == UCS_INPROGRESS) {
            pieces += each.length / of_streams.piece_bytes + 1;
        }
        return false;
    });
    return pieces / pieces_per_look + 1;
}

/* Do what this stream can do. @return Whom it waits for; nullptr: nobody. */
std::shared_ptr<stream_work> stream_work::get_on(look how, bool &any_p)
{
    const std::unique_lock<std::mutex> guard(lock_, std::try_to_lock);
    if (!guard.owns_lock()) {
        return nullptr;
    }
    if (engine_ != nullptr) {
        size_t looks = (how == look::thorough) ? looks_for_all() : 1;
        for (; looks > 0; --looks) {
            any_p |= (engine_->progress() > 0);
        }
    }
    for (;; any_p = true) {
        if ((begun_ < steps_.size()) && begin(steps_[begun_])) {
            ++begun_;
        } else if ((begun_ > 0) && (steps_.front().result != UCS_INPROGRESS)) {
            retire_first();
        } else {
            break;
        }
    }
    const bool waits =
        (begun_ < steps_.size()) && (steps_[begun_].after != nullptr);
    return waits ? steps_[begun_].after->awaited() : nullptr;
}

bool stream_work::progress(look how)
{
    bool any = false;
    std::vector<std::shared_ptr<stream_work>> others; /* that got on */
    for (stream_work *each = this;;) {
        auto next = each->get_on(how, any);
        each      = next.get();
        if ((each == nullptr) || (each == this) ||
            (std::find(others.begin(), others.end(), next) != others.end())) {
            return any;
        }
        others.push_back(std::move(next));
    }
}

void stream_work::wait_for(uint64_t number)
{
    const auto is_done = [&] {
        const std::lock_guard<std::mutex> guard(lock_);
        return done_ >= number;
    };
    wait_until(is_done, [&] { return progress(look::brief); });
}

ucs_status_t stream_work::finish()
{
    wait_for(add({}));
    const std::lock_guard<std::mutex> guard(lock_);
    return std::exchange(failure_, UCS_OK);
}

ucs_status_t stream_work::status()
{
    while (progress(look::thorough)) {}
    const std::unique_lock<std::mutex> guard(lock_, std::try_to_lock);
    return (!guard.owns_lock() || (done_ < added_)) ? UCS_INPROGRESS : failure_;
}

namespace {

/* What a function does with streams and events. */
template <typename Body, typename... Object>
ucs_status_t call(const char *function, Body &&body,
                  const Object *...objects) noexcept
{
    return ((objects != nullptr) && ...) ? base::guarded_entry(body)
                                         : refuse_null(function);
}

} // namespace

} // namespace gaudi

using gaudi::call;

ucs_status_t ucx_gaudi_stream_create(ucx_gaudi_stream_h *stream_p)
{
    if (stream_p == nullptr) {
        return gaudi::refuse_null(__func__);
    }
    return gaudi::base::guarded_entry([&] {
        *stream_p = new ucx_gaudi_stream;
        gaudi::program_memory::instance().count(
            gaudi::program_memory::use::stream, 1);
        return UCS_OK;
    });
}

ucs_status_t ucx_gaudi_stream_destroy(ucx_gaudi_stream_h stream)
{
    if (stream == nullptr) {
        return UCS_OK;
    }
    const auto destroy = [&] {
        const ucs_status_t status =
            gaudi::base::guarded([&] { return stream->work->finish(); });
        delete stream;
        gaudi::program_memory::instance().count(
            gaudi::program_memory::use::stream, -1);
        return status;
    };
    return call(__func__, destroy, stream);
}

ucs_status_t ucx_gaudi_stream_synchronize(ucx_gaudi_stream_h stream)
{
    return call(
        __func__, [&] { return stream->work->finish(); }, stream);
}

ucs_status_t ucx_gaudi_stream_query(ucx_gaudi_stream_h stream)
{
    return call(
        __func__, [&] { return stream->work->status(); }, stream);
}

ucs_status_t ucx_gaudi_stream_wait_event(ucx_gaudi_stream_h stream,
                                         ucx_gaudi_event_h event)
{
    const auto wait = [&] {
        const auto recorded = event->last();
        /* Behind its own places a stream is anyway. */
        if ((recorded != nullptr) && (recorded->awaited() != stream->work)) {
            stream->work->add({.after = recorded});
        }
        return UCS_OK;
    };
    return call(__func__, wait, stream, event);
}

ucs_status_t ucx_gaudi_mem_copy_async(void *dst, const void *src, size_t length,
                                      ucx_gaudi_stream_h stream)
{
    const auto copy = [&, own = __func__] {
        const ucs_status_t status = gaudi::check_copy(own, dst, src, length);
        if (status == UCS_OK) {
            const bool by_card    = gaudi::is_of_cards(dst, src, length);
            const uint64_t number = stream->work->add(
                {.dst = dst, .src = src, .length = length, .by_card = by_card});
            if (by_card) {
                stream->work->progress(gaudi::look::brief);
            } else {
                stream->work->wait_for(number);
            }
        }
        return status;
    };
    return call(__func__, copy, stream);
}

ucs_status_t ucx_gaudi_event_create(ucx_gaudi_event_h *event_p)
{
    if (event_p == nullptr) {
        return gaudi::refuse_null(__func__);
    }
    return gaudi::base::guarded_entry([&] {
        *event_p = new ucx_gaudi_event;
        return UCS_OK;
    });
}

ucs_status_t ucx_gaudi_event_destroy(ucx_gaudi_event_h event)
{
    const auto destroy = [&] {
        delete event;
        return UCS_OK;
    };
    return (event == nullptr) ? UCS_OK : call(__func__, destroy, event);
}

ucs_status_t ucx_gaudi_event_record(ucx_gaudi_event_h event,
                                    ucx_gaudi_stream_h stream)
{
    const auto record = [&] {
        auto recorded = std::make_shared<gaudi::moment>(stream->work);
        stream->work->add({.then = recorded});
        stream->work->progress(gaudi::look::brief);
        const std::lock_guard<std::mutex> guard(event->lock);
        event->recorded = std::move(recorded);
        return UCS_OK;
    };
    return call(__func__, record, event, stream);
}

ucs_status_t ucx_gaudi_event_query(ucx_gaudi_event_h event)
{
    const auto query = [&] {
        const auto recorded = event->last();
        if (recorded == nullptr) {
            return UCS_OK;
        }
        while (recorded->progress(gaudi::look::thorough)) {}
        return recorded->status();
    };
    return call(__func__, query, event);
}

ucs_status_t ucx_gaudi_event_synchronize(ucx_gaudi_event_h event)
{
    const auto wait = [&] {
        const auto recorded = event->last();
        if (recorded == nullptr) {
            return UCS_OK;
        }
        gaudi::wait_until(
            [&] { return recorded->status() != UCS_INPROGRESS; },
            [&] { return recorded->progress(gaudi::look::brief); });
        return recorded->status();
    };
    return call(__func__, wait, event);
}
