/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/serving/copy_client.h"

#include "uct/gaudi/base/cards/ports.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/process/remote_process.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

/* @param of  Who was asked: one that has ended gives no answer. */
int why_not(ucs_status_t status, const foreign_page &of)
{
    switch (status) {
    case UCS_OK:
        return 0;
    case UCS_ERR_NO_RESOURCE:
        return -EMFILE;
    case UCS_ERR_TIMED_OUT:
        return -ETIMEDOUT;
    case UCS_ERR_NO_MEMORY:
        return -ENOMEM;
    case UCS_ERR_UNREACHABLE: /* it has answered before, and is about to end */
        return -ESRCH;
    default:
        return of.has_left() ? -ESRCH : -EOPNOTSUPP;
    }
}

/* Between two looks at a process whose answer is waited for: its end rings
 * nobody. */
constexpr uint64_t look_us = 1000;

void wait_for(int event, uint64_t timeout_us)
{
    pollfd wanted{event, POLLIN, 0};
    const timespec longest{static_cast<time_t>(timeout_us / 1'000'000),
                           static_cast<long>(timeout_us % 1'000'000 * 1000)};
    eventfd_t rung;
    if (ppoll(&wanted, 1, &longest, nullptr) > 0) {
        (void)eventfd_read(event, &rung);
    }
}

} // namespace

copy_client::copy_client(std::shared_ptr<foreign_page> of,
                         const base::owner_queue_options &wished)
    : of_(std::move(of)),
      name_("process " + std::to_string(of_->process().id().pid)),
      data_bytes_(
          util::round_up(wished.chunk_bytes * wished.chunks, copy_ring::page)),
      wake_fd_(wished.wake_fd), cookies_(wished.chunks)
{}

int copy_client::connect(std::shared_ptr<foreign_page> of,
                         const base::owner_queue_options &wished,
                         std::unique_ptr<base::owner_queue> &queue_p)
{
    const file_ref service = of->copy_service();
    if ((service == file_ref{}) || (wished.chunks > copy_ring::max_slots)) {
        return -EOPNOTSUPP;
    }
    std::unique_ptr<copy_client> made(new copy_client(std::move(of), wished));
    util::unique_fd file;
    int error = made->make_ring(file);
    if (error == 0) {
        file_pair bell;
        error       = why_not(made->of_->process().get_files(
                                  service, bell, {file.get(), wished.wake_fd}),
                              *made->of_);
        made->bell_ = std::move(bell[0]);
    }
    if ((error == 0) && !is_event(made->bell_.get())) {
        error = -EBADF;
    }
    if (error != 0) {
        ucs_debug("gaudi_ipc: process %u does not copy for this one: %s",
                  made->of_->process().id().pid, std::strerror(-error));
        return error;
    }
    queue_p = std::move(made);
    return 0;
}

/* Its pages are there when it is first used, and not in children: see
 * pinned_buffer. */
int copy_client::make_ring(util::unique_fd &ring_p)
{
    const auto slots   = static_cast<uint32_t>(cookies_.size());
    const size_t total = copy_ring::file_size(slots, data_bytes_);
    if (util::longest_file() < total) {
        return -EFBIG;
    }
    util::unique_fd file = util::make_lasting_file("gaudi_ipc_copies", total);
    if (!file || !mapping_.map(file.get(), 0, total) ||
        (madvise(mapping_.start(), total, MADV_DONTFORK) != 0)) {
        return -errno;
    }
    std::memset(mapping_.start(), 0, total);
    copy_ring &made = ring();
    made.magic      = copy_ring::right_magic;
    made.version    = wire_version;
    made.slots      = slots;
    made.data_bytes = data_bytes_;
    made.client     = own_process();
    ring_p          = std::move(file);
    return 0;
}

copy_client::~copy_client()
{
    if (mapping_.start() != nullptr) {
        ring().client_gone.store(1);
        (void)eventfd_write(bell_.get(), 1);
    }
}

std::span<char> copy_client::memory() const
{
    return {mapping_.start() +
                copy_ring::data_offset(static_cast<uint32_t>(cookies_.size())),
            data_bytes_};
}

bool copy_client::is_over()
{
    if (over_ == 0) {
        over_ = of_->is_dead()                     ? -ESRCH
                : (ring().server_gone.load() != 0) ? -EKEYREVOKED
                                                   : 0;
    }
    return over_ != 0;
}

int copy_client::ask(base::remote_memory &of, bool is_put, uint64_t address,
                     uint64_t offset, uint64_t length, void *cookie)
{
    const own_page::mark key = static_cast<served_memory &>(of).mark();
    return post({.address = address,
                 .offset  = offset,
                 .length  = length,
                 .stamp   = key.stamp,
                 .cell    = key.cell,
                 .kind    = is_put ? request_put : request_get},
                cookie);
}

int copy_client::ask_for_ports(base::remote_memory &of, uint64_t offset,
                               uint32_t link)
{
    if (asked_ports_ != none) {
        return -EAGAIN;
    }
    const int error =
        post({.address = static_cast<uint64_t>(of.place().address),
              .offset  = offset,
              .length  = sizeof(shim::port_offer),
              .kind    = request_ports,
              .link    = link},
             this);
    if (error == 0) {
        asked_ports_  = posted_ - 1;
        ports_answer_ = -EINPROGRESS;
    }
    return error;
}

/* Its slot is used again when it was polled. */
int copy_client::ports_answer(uint64_t timeout_us)
{
    const uint64_t longest = uint64_t{1000} * remote_process::timeout_ms();
    const auto deadline =
        clock::now() + std::chrono::microseconds(std::min(timeout_us, longest));
    while ((ports_answer_ == -EINPROGRESS) && !is_over()) {
        ring().client_sleeps.store(1);
        if (has_ended(asked_ports_)) {
            ports_answer_ = to_answer(request(asked_ports_).result);
        } else if (clock::now() >= deadline) {
            return (timeout_us > 0) ? -ETIMEDOUT : -EINPROGRESS;
        } else {
            wait_for(wake_fd_, look_us);
        }
    }
    asked_ports_ = none;
    return (ports_answer_ != -EINPROGRESS) ? ports_answer_ : over_;
}

int copy_client::ask_over_ports(base::remote_memory &of, uint32_t link,
                                uint64_t target, uint64_t src, uint64_t length,
                                void *cookie)
{
    const own_page::mark key = static_cast<served_memory &>(of).mark();
    const int error          = post({.address = src,
                                     .offset  = target,
                                     .length  = length,
                                     .stamp   = key.stamp,
                                     .cell    = key.cell,
                                     .kind    = request_write,
                                     .link    = link},
                                    cookie);
    writes_                  = (error == 0) ? posted_ : writes_;
    return error;
}

int copy_client::post(const request_body &asked, void *cookie)
{
    if (ucs_unlikely(over_ != 0)) {
        return over_;
    }
    if (outstanding() == cookies_.size()) {
        return -EAGAIN;
    }
    static_cast<request_body &>(request(posted_)) = asked;
    cookies_[posted_ % cookies_.size()]           = cookie;
    ring().client_core.store(own_core(), std::memory_order_relaxed);
    ring().posted.store(++posted_);
    if ((ring().server_sleeps.load() != 0) &&
        (ring().server_sleeps.exchange(0) != 0)) {
        (void)eventfd_write(bell_.get(), 1);
    }
    return 0;
}

unsigned copy_client::poll(shim::dma_completion *completions, unsigned max)
{
    unsigned count  = 0;
    const auto take = [&](int status) {
        void *const cookie = cookies_[taken_ % cookies_.size()];
        if (cookie != this) {
            completions[count++] = {cookie, status};
        } else if (taken_ == asked_ports_) {
            ports_answer_ = to_answer(status);
        }
        ++taken_;
    };
    const auto take_ended = [&] {
        while ((count < max) && (taken_ < posted_) && has_ended(taken_)) {
            take(static_cast<int>(request(taken_).result));
        }
    };
    take_ended();
    if ((count == 0) && (taken_ < posted_) && is_over()) {
        give_up();
        take_ended(); /* before it went */
        while (is_quiet() && (count < max) && (taken_ < posted_)) {
            take(over_);
        }
    }
    if (count > 0) {
        idle_polls_ = 0;
    } else if (taken_ < posted_) {
        note_idle_poll();
    }
    return count;
}

/* Whether no port writes any more for what has not ended: it may have been told
 * to before its process went. */
bool copy_client::is_quiet()
{
    if (quiet_at_ == clock::time_point{}) {
        quiet_at_ = clock::now() + base::card_ports::drain_time;
    }
    for (uint64_t next = taken_; next < writes_; ++next) {
        if (!has_ended(next)) {
            return clock::now() >= quiet_at_;
        }
    }
    return true;
}

/* Whoever makes progress there may wait for this core, or compute. */
void copy_client::note_idle_poll()
{
    ++idle_polls_;
    if ((idle_polls_ == looks_before_yield) &&
        (ring().server_core.load() == own_core())) {
        std::this_thread::yield();
    } else if (idle_polls_ == polls_before_bell) {
        ring().server_core.store(0);
        (void)eventfd_write(bell_.get(), 1);
    }
}

bool copy_client::arm()
{
    ring().client_sleeps.store(1);
    return !has_ended(taken_) && !is_over();
}

void copy_client::wait_for_oldest(uint64_t timeout_us)
{
    if ((taken_ < posted_) && arm()) {
        wait_for(wake_fd_, timeout_us);
    }
}

/* Whoever does not answer is not waited for: its requests end, and what it
 * still copies goes to memory that nobody reads any more. */
int copy_client::wait_all(uint64_t timeout_us)
{
    const auto deadline = clock::now() + std::chrono::microseconds(
                                             std::min(timeout_us, patience_us));
    /* They end in any order: there are two directions. */
    for (uint64_t next = taken_; (next < posted_) && !is_over();) {
        ring().client_sleeps.store(1);
        if (has_ended(next)) {
            ++next;
        } else if (clock::now() >= deadline) {
            over_ = -ETIMEDOUT;
        } else {
            wait_for(wake_fd_, look_us);
        }
    }
    if (over_ != 0) {
        give_up();
        while (!is_quiet()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    return 0;
}

} // namespace gaudi::ipc
