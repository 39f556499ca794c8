/* SPDX-License-Identifier: BSD-3-Clause */
#include "program/program_streams.h"

#include "program/program_copies.h"
#include "program/program_memory.h"
#include "program/ucx_gaudi.h"
#include "util/background_thread.h"

#include <system_error>
#include <utility>

namespace gaudi {

void stream_work::add(stream_step step)
{
    {
        const std::lock_guard<std::mutex> guard(lock_);
        steps_.push_back(std::move(step));
        ++added_;
    }
    changed_.notify_all();
}

/* Make the next step, without the lock. There is one, and nobody is busy. */
void stream_work::do_next(std::unique_lock<std::mutex> &guard)
{
    const stream_step step = std::move(steps_.front());
    steps_.pop_front();
    ucs_status_t status = failure_;
    is_busy_            = true;
    guard.unlock();
    if ((status == UCS_OK) && (step.after != nullptr)) {
        status = step.after->wait();
    }
    if (status == UCS_OK) {
        status = copy_memory(step.dst, step.src, step.length);
    }
    guard.lock();
    is_busy_ = false;
    failure_ = status;
    ++done_;
    if (step.then != nullptr) {
        step.then->set(status);
    }
    changed_.notify_all();
}

ucs_status_t stream_work::finish()
{
    std::unique_lock<std::mutex> guard(lock_);
    const uint64_t last = added_;
    while (done_ < last) {
        if (is_busy_) {
            changed_.wait(guard);
        } else {
            do_next(guard);
        }
    }
    return std::exchange(failure_, UCS_OK);
}

ucs_status_t stream_work::status()
{
    const std::lock_guard<std::mutex> guard(lock_);
    return (done_ < added_) ? UCS_INPROGRESS : failure_;
}

void stream_work::end()
{
    {
        const std::lock_guard<std::mutex> guard(lock_);
        is_ended_ = true;
    }
    changed_.notify_all();
}

void stream_work::run()
{
    std::unique_lock<std::mutex> guard(lock_);
    while (!is_ended_ || !steps_.empty()) {
        if (is_busy_ || steps_.empty()) {
            changed_.wait(guard);
        } else {
            do_next(guard);
        }
    }
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

ucs_status_t create_stream(ucx_gaudi_stream_h &stream_p)
{
    auto stream = std::make_unique<ucx_gaudi_stream>();
    try {
        util::start_background_thread("ucx-gaudi-async",
                                      [work = stream->work] { work->run(); });
    } catch (const std::system_error &error) {
        ucs_error("gaudi: a stream cannot have a thread: %s", error.what());
        return UCS_ERR_NO_RESOURCE;
    }
    program_memory::instance().count(program_memory::use::stream, 1);
    stream_p = stream.release();
    return UCS_OK;
}

} // namespace

} // namespace gaudi

using gaudi::call;

ucs_status_t ucx_gaudi_stream_create(ucx_gaudi_stream_h *stream_p)
{
    if (stream_p == nullptr) {
        return gaudi::refuse_null(__func__);
    }
    return gaudi::base::guarded_entry(
        [&] { return gaudi::create_stream(*stream_p); });
}

ucs_status_t ucx_gaudi_stream_destroy(ucx_gaudi_stream_h stream)
{
    if (stream == nullptr) {
        return UCS_OK;
    }
    const auto destroy = [&] {
        const ucs_status_t status =
            gaudi::base::guarded([&] { return stream->work->finish(); });
        stream->work->end();
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
        if (const auto recorded = event->last()) {
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
            stream->work->add({.dst = dst, .src = src, .length = length});
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
        auto recorded = std::make_shared<gaudi::moment>();
        stream->work->add({.then = recorded});
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
        return (recorded == nullptr) ? UCS_OK : recorded->status();
    };
    return call(__func__, query, event);
}

ucs_status_t ucx_gaudi_event_synchronize(ucx_gaudi_event_h event)
{
    const auto wait = [&] {
        const auto recorded = event->last();
        return (recorded == nullptr) ? UCS_OK : recorded->wait();
    };
    return call(__func__, wait, event);
}
