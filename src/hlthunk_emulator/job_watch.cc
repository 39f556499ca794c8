/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_emulator/job_watch.h"

#include "hlthunk_emulator/file_lock.h"
#include "hlthunk_emulator/settings.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gaudi::emu {

namespace {

using clock = job_watch::clock;

constexpr std::string_view head =
    "time_ns pid card queue job direction bytes duration_ns outcome\n";

/* How long another process may be writing the head. */
constexpr std::chrono::seconds longest_turn{5};

clock::duration duration_of(double microseconds)
{
    return std::chrono::duration_cast<clock::duration>(
        std::chrono::duration<double, std::micro>(microseconds));
}

const char *text_of(uint32_t status)
{
    switch (status) {
    case shim::cs_completed:
        return "completed";
    case shim::cs_timed_out:
        return "timed-out";
    default:
        return "aborted";
    }
}

const char *direction_of(const engine_copy &copy)
{
    const bool to_host = (copy.to.kind == memory_kind::host);
    return (copy.from.kind == memory_kind::host) ? (to_host ? "h2h" : "h2d")
                                                 : (to_host ? "d2h" : "d2d");
}

/* Returns 0 or -errno. */
int write_line(int fd, std::string_view line)
{
    const ssize_t written = ::write(fd, line.data(), line.size());
    if (written < 0) {
        return -errno;
    }
    return (static_cast<size_t>(written) == line.size()) ? 0 : -ENOSPC;
}

/* Processes that begin a file at the same time write one head. */
int begin_log(int fd)
{
    int ret = wait_while_busy(longest_turn,
                              [fd] { return set_lock(fd, F_WRLCK, 0); });
    if (ret != 0) {
        return ret;
    }
    struct stat info {};
    ret = (fstat(fd, &info) == 0) ? 0 : -errno;
    if ((ret == 0) && (info.st_size == 0)) {
        ret = write_line(fd, head);
    }
    (void)set_lock(fd, F_UNLCK, 0);
    return ret;
}

void complain(unsigned card, int error)
{
    std::fprintf(stderr,
                 "hlthunk-emu: HLTHUNK_EMU_LOG_JOBS='%s': %s; jobs of accel%u "
                 "are not logged (name a file that can be written)\n",
                 get_settings().job_log.c_str(), std::strerror(error), card);
}

/* @return None when jobs are not logged. */
util::unique_fd open_log(unsigned card)
{
    const char *const path = get_settings().job_log.c_str();
    if (*path == '\0') {
        return {};
    }
    util::unique_fd fd(::open(
        path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666));
    const int ret = fd ? begin_log(fd.get()) : -errno;
    if (ret != 0) {
        complain(card, -ret);
        fd.reset();
    }
    return fd;
}

} // namespace

std::unique_ptr<job_watch> job_watch::create(unsigned card)
{
    box_traffic *const model = box_traffic::instance();
    util::unique_fd log      = open_log(card);
    if ((model == nullptr) && !log) {
        return nullptr;
    }
    return std::unique_ptr<job_watch>(
        new job_watch(model, std::move(log), card));
}

std::optional<clock::time_point> job_watch::begin(uint64_t seq,
                                                  const engine_copy &copy)
{
    job &owner                  = of(seq);
    const char *const direction = direction_of(copy);
    const bool is_same          = (owner.direction == nullptr) ||
                         (std::strcmp(owner.direction, direction) == 0);
    owner.direction = is_same ? direction : "mixed";
    owner.bytes += copy.bytes;
    if (model_ == nullptr) {
        return std::nullopt;
    }
    model_->add({.job   = seq,
                 .start = model_time_of(owner.submitted +
                                        duration_of(model_->speed().doorbell)),
                 .end   = 0,
                 .left  = static_cast<double>(copy.bytes),
                 .owner = 0,
                 .card  = static_cast<uint16_t>(card_),
                 .queue = static_cast<uint16_t>(copy.queue),
                 .needs = route_of(model_->speed(), card_, copy)});
    return end_of(seq);
}

clock::time_point job_watch::end_of(uint64_t seq) const
{
    return (model_ == nullptr) ? clock::time_point{}
                               : clock::time_point(std::chrono::nanoseconds(
                                     model_->earliest_end(card_, seq)));
}

clock::time_point job_watch::awake_after(clock::time_point end) const
{
    return ((model_ == nullptr) || (end == clock::time_point::max()))
               ? clock::time_point{}
               : end + duration_of(model_->speed().wakeup);
}

void job_watch::leave_model(uint64_t seq)
{
    if (model_ != nullptr) {
        of(seq).ended = model_time_of(end_of(seq));
        model_->forget(card_, seq);
    }
}

void job_watch::end_job(uint64_t seq, uint32_t status)
{
    if (log_) {
        write(seq, text_of(status));
    }
}

void job_watch::abandon_job(uint64_t seq, uint32_t status)
{
    if (log_) {
        write(seq, (status == shim::cs_completed) ? "closed" : text_of(status));
    }
}

void job_watch::write(uint64_t seq, const char *outcome)
{
    const job &what          = of(seq);
    const model_time present = model_time_of(clock::now());
    const model_time start   = model_time_of(what.submitted);
    /* An aborted job ends before the model has it end. */
    const model_time end =
        (what.ended != 0) ? std::min(what.ended, present) : present;
    char line[256];
    const int length = std::snprintf(
        line, sizeof(line), "%ld %d %u %u %lu %s %lu %ld %s\n", start, getpid(),
        card_, what.queue, seq,
        (what.direction != nullptr) ? what.direction : "-", what.bytes,
        std::max<model_time>(0, end - start), outcome);
    const int ret = write_line(log_.get(), {line, static_cast<size_t>(length)});
    if (ret != 0) {
        complain(card_, -ret);
        log_.reset();
    }
}

} // namespace gaudi::emu
