/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/request_queue.h"

#include "uct/gaudi/base/cards/ports.h"
#include "uct/gaudi/base/transfer/operation.h"
#include "uct/gaudi/ipc/remote_key.h"
#include "util/locks.h"

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

namespace gaudi::ipc {

namespace {

/* Polls that find nothing before the service thread is woken, which leaves its
 * work to interfaces for a while after they did some. */
constexpr unsigned polls_before_bell = 1024;

/* A lane that is destroyed does not wait longer for a peer that does not
 * answer.
 */
constexpr uint64_t close_timeout_us = 100'000;

/* Keys that are remembered as valid: others are asked for anew. */
constexpr size_t most_checks = 4096;

} // namespace

int link::open_lane(const base::transfer_options &options,
                    std::unique_ptr<base::owner_lane> &lane_p)
{
    if (options_.chunks == 0) {
        return -EFBIG;
    }
    if (is_closed()) {
        return -ESRCH;
    }
    if (chunks().size() < options.chunk_bytes) {
        return -EMSGSIZE;
    }
    lane_p = std::make_unique<request_queue>(shared_from_this(), options);
    return 0;
}

int request_queue::post(const request_body &asked, void *cookie)
{
    if (has_failed()) [[unlikely]] {
        return (error_ != 0) ? error_ : -ESRCH;
    }
    if (outstanding() == max_requests) {
        return -EAGAIN;
    }
    static_cast<request_body &>(link_->request(posted_)) = asked;
    cookies_[posted_ % max_requests]                     = cookie;
    link_control &control                                = link_->control();
    control.posted.store(++posted_);
    if ((control.server_awake.load() == 0) &&
        (control.server_awake.exchange(1) == 0)) {
        link_->ring_bell(bell_reason::request);
    }
    return 0;
}

int request_queue::submit(const base::work_queue &queue, base::job &which,
                          uint64_t dst, uint64_t src)
{
    const uint64_t word =
        static_cast<const remote_key &>(*which.of->remote).word();
    if (queue.number != 0) {
        const int error = post({.word    = word,
                                .address = src,
                                .length  = which.length,
                                .offset  = dst,
                                .kind    = request_kind::write,
                                .number  = queue.number},
                               &which);
        writes_         = (error == 0) ? posted_ : writes_;
        return error;
    }
    const bool is_put =
        (queue.direction == shim::dma_direction::host_to_device);
    return post({.word    = word,
                 .address = is_put ? dst : src,
                 .length  = which.length,
                 .offset  = is_put ? src : dst,
                 .kind    = is_put ? request_kind::put : request_kind::get},
                &which);
}

int request_queue::confirm(base::remote_memory &of, bool again)
{
    auto &key = static_cast<remote_key &>(of);
    if (!again && (key.confirmed_by.load(std::memory_order_relaxed) == epoch_))
        [[likely]] {
        return 0;
    }
    key.confirmed_by       = 0;
    const uint64_t revoked = link_->revocations();
    if (again || (revoked != std::exchange(revocations_, revoked)) ||
        (checks_.size() >= most_checks)) {
        checks_.clear(); /* those under way say nothing any more */
    }
    auto [found, is_new] = checks_.try_emplace(key.word());
    if (is_new) {
        const int error = post({.word = key.word()}, this);
        if (error != 0) {
            checks_.erase(found);
            return (error == -EAGAIN) ? -EINPROGRESS : error;
        }
        found->second.number = posted_ - 1;
    }
    if (has_failed()) {
        return -ESRCH;
    }
    if ((found->second.result == -EINPROGRESS) &&
        is_answered(found->second.number)) {
        found->second.result = result_of(found->second.number);
    }
    const int result = found->second.result;
    if (result == 0) {
        key.confirmed_by.store(epoch_, std::memory_order_relaxed);
    } else if (result != -EINPROGRESS) {
        checks_.erase(found); /* asked anew by the next use */
    }
    return result;
}

/* Its slot will be used again. */
void request_queue::end_check(uint64_t number, int result)
{
    for (auto &[_, each] : checks_) {
        if ((each.number == number) && (each.result == -EINPROGRESS)) {
            each.result = result;
        }
    }
}

int request_queue::ports_answer(uint32_t number, shim::port_offer &offer_p)
{
    static std::atomic<uint64_t> last_epoch{0};
    const int error = link_->take_ports_answer(number, offer_p);
    if (error == 0) { /* the owner revokes keys for these ports alone */
        epoch_ = ++last_epoch;
        checks_.clear();
    }
    return error;
}

int request_queue::result_of(uint64_t number) const
{
    const int64_t result = read_once(link_->request(number).result);
    /* Whatever the peer has written, it is a final result. */
    const bool is_final = (result <= 0) && (result > -4096) &&
                          (result != -EAGAIN) && (result != -EINPROGRESS);
    return is_final ? static_cast<int>(result) : -EIO;
}

unsigned request_queue::poll(shim::dma_completion *completions, unsigned max)
{
    unsigned count  = 0;
    const auto take = [&](uint64_t number, int status) {
        void *const cookie = cookies_[number % max_requests];
        if (cookie != this) {
            completions[count++] = {cookie, status};
        } else {
            end_check(number, status);
        }
    };
    const auto take_ended = [&] {
        /* A write over ports may take seconds to fail: those behind it do not
         * wait for it. */
        for (uint64_t next = taken_; (count < max) && (next < posted_);
             ++next) {
            if (!is_taken(next) && is_answered(next)) {
                take(next, result_of(next));
                taken_early_.set(next % max_requests);
            } else if (taken_ >= writes_) {
                break;
            }
        }
        while ((taken_ < posted_) && is_taken(taken_)) {
            taken_early_.reset(taken_++ % max_requests);
        }
    };
    take_ended();
    if ((count == 0) && (taken_ < posted_) && has_failed()) {
        give_up_ports();
        error_ = (error_ != 0) ? error_ : -ESRCH;
        take_ended(); /* what ended before */
        while ((count < max) && (taken_ < posted_) && is_quiet()) {
            if (!is_taken(taken_)) {
                take(taken_, error_);
            }
            taken_early_.reset(taken_++ % max_requests);
        }
    }
    if (count > 0) {
        idle_polls_ = 0;
    } else if ((taken_ < posted_) && (++idle_polls_ % polls_before_bell == 0)) {
        link_->ring_bell(bell_reason::request);
    }
    return count;
}

/* Whether no port of the peer's card writes to memory here any more: what was
 * asked for before its process went may be under way. */
bool request_queue::is_quiet()
{
    if (quiet_at_ == clock::time_point{}) {
        quiet_at_ = clock::now() + base::card_ports::drain_time;
    }
    for (uint64_t next = taken_; next < writes_; ++next) {
        if (!is_answered(next)) {
            return clock::now() >= quiet_at_;
        }
    }
    return true;
}

bool request_queue::arm(base::wakeup_event &) const
{
    if (outstanding() == 0) {
        return true;
    }
    link_->control().client_sleeps.store(1);
    for (uint64_t next = taken_; next < posted_; ++next) {
        if (!is_taken(next)) {
            if (is_answered(next)) {
                return false;
            }
            if (taken_ >= writes_) { /* as poll looks */
                break;
            }
        }
    }
    return !has_failed();
}

/* What a peer that does not answer still copies goes to memory that nobody
 * reads any more. */
int request_queue::wait_all(uint64_t timeout_us)
{
    const auto deadline =
        clock::now() +
        std::chrono::microseconds(std::min(timeout_us, close_timeout_us));
    /* They end in any order: there are two directions. */
    for (uint64_t next = taken_; (next < posted_) && !has_failed();) {
        if (is_answered(next)) {
            ++next;
        } else if (clock::now() >= deadline) {
            error_ = -ETIMEDOUT;
        } else {
            util::nap();
        }
    }
    if ((taken_ < posted_) && has_failed()) {
        error_ = (error_ != 0) ? error_ : -ESRCH;
        give_up_ports();
        while (!is_quiet()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    return 0;
}

} // namespace gaudi::ipc
