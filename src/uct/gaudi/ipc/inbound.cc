/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/inbound.h"

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
extern "C" void AnnotateIgnoreReadsBegin(const char *file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char *file, int line);
extern "C" void AnnotateIgnoreWritesBegin(const char *file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char *file, int line);
#endif

namespace gaudi::ipc {

namespace {

/* What a peer puts to and gets from this process's memory the two programs
 * order, of which ThreadSanitizer sees one. */
struct ordered_elsewhere {
#ifdef __SANITIZE_THREAD__
    ordered_elsewhere()
    {
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
    ~ordered_elsewhere()
    {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    }
#endif
};

/* Connections of ports that a client may have: a few for each pair of cards. */
constexpr size_t most_ports    = 256;
constexpr unsigned most_writes = max_requests;

int to_errno(ucs_status_t status)
{
    switch (status) {
    case UCS_OK:
        return 0;
    case UCS_ERR_NO_DEVICE:
        return -ENODEV;
    case UCS_ERR_INVALID_ADDR:
        return -EFAULT;
    case UCS_ERR_TIMED_OUT:
        return -ETIMEDOUT;
    case UCS_ERR_NO_MEMORY:
        return -ENOMEM;
    case UCS_ERR_CONNECTION_RESET:
        return -EKEYREVOKED;
    default:
        return -EIO;
    }
}

request_body read_body(const request_body &shared)
{
    return {.word    = read_once(shared.word),
            .address = read_once(shared.address),
            .length  = read_once(shared.length),
            .offset  = read_once(shared.offset),
            .kind    = read_once(shared.kind),
            .number  = read_once(shared.number)};
}

} // namespace

void inbound::unmap_chunks()
{
    if (base::host_region *mapped = std::exchange(chunks_, nullptr)) {
        mapped->put();
    }
}

int inbound::greet(const hello_message &hello, const util::unique_fd &file)
{
    const uint64_t length = segment_bytes(hello.chunk_bytes, hello.chunks);
    if ((bytes_of_chunks(hello.chunk_bytes, hello.chunks) > max_chunk_bytes) ||
        (util::lasting_length(file.get()) != length)) {
        return -EINVAL;
    }
    util::file_mapping mapping;
    if (!mapping.map(file.get(), 0, length) ||
        (madvise(mapping.start(), length, MADV_DONTFORK) != 0)) {
        return -errno;
    }
    segment_     = std::move(mapping);
    chunk_bytes_ = bytes_of_chunks(hello.chunk_bytes, hello.chunks);
    interface_   = hello.interface;
    pid_         = hello.pid;
    messages_    = ring_reader(&control().ring, segment_.start() + ring_offset,
                               ring_bytes);
    return 0;
}

void inbound::hang_up()
{
    ended_.store(true);
    const std::lock_guard<std::mutex> guard(lock_);
    (void)shutdown(socket_.get(), SHUT_RDWR);
}

void inbound::close()
{
    end_ports();
    const std::lock_guard<std::mutex> guard(lock_);
    socket_in_children_ = {};
    socket_.reset();
}

int inbound::send(const void *message, size_t length)
{
    const std::lock_guard<std::mutex> guard(lock_);
    return send_message(socket_.get(), message, length);
}

/* --- requests -------------------------------------------------------------*/

bool inbound::may_start(request_kind kind, unsigned share) const
{
    return (kind == request_kind::write) ? (writes_ < most_writes)
                                         : (running_ - writes_ < share);
}

bool inbound::may_start(unsigned share) const
{
    return has_posted() && may_start(read_once(request(started_).kind), share);
}

void inbound::finish(const served_copy &copy, int result)
{
    link_request &ended = request(copy.number);
    __atomic_store_n(&ended.result, result, __ATOMIC_RELAXED);
    ended.ended.store(copy.number + 1);
    if ((control().client_sleeps.load() != 0) &&
        (control().client_sleeps.exchange(0) != 0)) {
        const bell_message bell{.reason = bell_reason::request};
        (void)send(&bell, sizeof(bell));
    }
}

void inbound::on_end(uct_completion_t *self)
{
    auto &copy      = *static_cast<served_copy *>(self);
    copy.is_running = false;
    --copy.of->running_;
    copy.of->writes_ -= copy.is_write ? 1 : 0;
    copy.memory->end_use();
    copy.of->finish(copy, to_errno(self->status));
}

bool bounce_buffer::make()
{
    if (mapping_.start() != nullptr) {
        return true;
    }
    util::unique_fd file =
        (util::longest_file() < size)
            ? util::unique_fd()
            : util::make_lasting_file("ucx-gaudi-bounce", size);
    util::file_mapping mapping;
    if (!file || !mapping.map(file.get(), 0, size) ||
        (madvise(mapping.start(), size, MADV_DONTFORK) != 0)) {
        return false;
    }
    file_             = std::move(file);
    file_in_children_ = util::closed_in_children(file_.get());
    mapping_          = std::move(mapping);
    return true;
}

ucs_status_t bounce_buffer::copy(bool to_memory, uint64_t memory, char *chunk,
                                 size_t length)
{
    if (!make()) {
        return UCS_ERR_NO_MEMORY;
    }
    [[maybe_unused]] const ordered_elsewhere here;
    while (length > 0) {
        auto *there       = reinterpret_cast<char *>(memory);
        const size_t part = std::min(length, size);
        if (to_memory) {
            std::memcpy(mapping_.start(), chunk, part);
        }
        size_t done = 0;
        while (done < part) {
            const auto at = static_cast<off_t>(done);
            const ssize_t moved =
                to_memory ? pread(file_.get(), there + done, part - done, at)
                          : pwrite(file_.get(), there + done, part - done, at);
            if ((moved < 0) && (errno == EINTR)) {
                continue;
            }
            if (moved <= 0) {
                return (errno == EFAULT) ? UCS_ERR_INVALID_ADDR
                                         : UCS_ERR_IO_ERROR;
            }
            done += static_cast<size_t>(moved);
        }
        if (!to_memory) {
            std::memcpy(chunk, mapping_.start(), part);
        }
        memory += part;
        chunk += part;
        length -= part;
        copied_ += part;
    }
    return UCS_OK;
}

ucs_status_t inbound::copy_device(const request_body &asked,
                                  base::transfer_engine &engine,
                                  base::flush_domain &domain, served_copy &copy)
{
    copy.count  = 1;
    copy.func   = on_end;
    copy.status = UCS_OK;
    if (asked.kind == request_kind::write) {
        const auto found = ports_.find(asked.number);
        /* Of ports that have been disconnected here the peer hears so. */
        return (found == ports_.end()) ? UCS_ERR_IO_ERROR
               : (asked.length == 0)
                   ? UCS_ERR_INVALID_ADDR
                   : engine.start_over_ports(domain, *found->second,
                                             asked.offset, asked.address,
                                             asked.length, &copy);
    }
    char *const start = segment_.start() + chunk_offset;
    if (chunks_ == nullptr) {
        chunks_ = new base::host_region(start, chunk_bytes_,
                                        base::host_region::kind::staging);
    }
    const base::side here(asked.address);
    base::side chunk(start + asked.offset);
    chunk.registration = chunks_;
    const bool is_put  = (asked.kind == request_kind::put);
    return engine.start(domain, is_put ? here : chunk, is_put ? chunk : here,
                        asked.length, &copy);
}

/* Start what needs a key. */
ucs_status_t inbound::start(const request_body &asked,
                            base::transfer_engine &engine,
                            base::flush_domain &domain, served_copy &copy,
                            bounce_buffer &bounce)
{
    const bool is_copy =
        (asked.kind == request_kind::get) || (asked.kind == request_kind::put);
    if (asked.kind == request_kind::check) {
        return exported_memory::is_valid_key(asked.word)
                   ? UCS_OK
                   : UCS_ERR_CONNECTION_RESET;
    }
    if (is_copy ? !is_in_chunks(asked.offset, asked.length)
                : (asked.kind != request_kind::write)) {
        return UCS_ERR_INVALID_ADDR;
    }
    copy.memory =
        exported_memory::begin_use(asked.word, asked.address, asked.length);
    if (copy.memory == nullptr) {
        return UCS_ERR_CONNECTION_RESET;
    }
    ucs_status_t status = UCS_ERR_NO_MEMORY;
    try {
        status =
            base::memory_map::is_device(asked.address)
                ? copy_device(asked, engine, domain, copy)
            : is_copy
                ? bounce.copy(asked.kind == request_kind::put, asked.address,
                              segment_.start() + chunk_offset + asked.offset,
                              asked.length)
                : UCS_ERR_INVALID_ADDR;
    } catch (...) {
        status = UCS_ERR_NO_MEMORY;
    }
    if (status != UCS_INPROGRESS) {
        copy.memory->end_use();
    }
    return status;
}

bool inbound::start_next(base::transfer_engine &engine,
                         base::flush_domain &domain, unsigned share,
                         bounce_buffer &bounce)
{
    if (!has_posted()) {
        return false;
    }
    const request_body asked = read_body(request(started_));
    if (!may_start(asked.kind, share)) {
        return false;
    }
    served_copy &copy = copies_[started_ % max_requests];
    if ((control().posted.load() - started_ > max_requests) ||
        copy.is_running) {
        ucs_diag("gaudi_ipc: process %u asks for copies in a way that makes no "
                 "sense: its link is closed",
                 pid_);
        hang_up();
        return false;
    }
    copy.of                   = this;
    copy.number               = started_;
    const ucs_status_t status = start(asked, engine, domain, copy, bounce);
    if (status == UCS_ERR_NO_RESOURCE) {
        return false;
    }
    ++started_;
    if (status == UCS_INPROGRESS) {
        copy.is_running = true;
        copy.is_write   = (asked.kind == request_kind::write);
        ++running_;
        writes_ += copy.is_write ? 1 : 0;
    } else {
        finish(copy, to_errno(status));
    }
    return true;
}

void inbound::connect_ports(base::transfer_engine &engine, ports_message &asked)
{
    base::port_lane *made = nullptr;
    asked.error =
        !base::may_go_over(shim::wire::ports) ? -EOPNOTSUPP
        : ((ports_.size() >= most_ports) && !ports_.contains(asked.number))
            ? -EMFILE
            : engine.connect_ports(base::pci_address(asked.card), asked.offer,
                                   made);
    if (asked.error != 0) {
        return;
    }
    engine_                  = &engine;
    base::port_lane *&before = ports_[asked.number];
    if (before != nullptr) {
        engine.end_ports(*before, false);
    }
    before = made;
    has_ports_.store(true);
}

void inbound::end_ports()
{
    for (const auto &[_, ports] : ports_) {
        engine_->end_ports(*ports, true);
    }
    ports_.clear();
    has_ports_.store(false);
}

/* --- receiver -------------------------------------------------------------*/

void receiver::add(std::shared_ptr<inbound> from)
{
    bool has_message;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        if (closed_) {
            from->messages().close();
            from->hang_up();
            return;
        }
        /* The interface may sleep. */
        has_message = !from->messages().sleep();
        fresh_.push_back(std::move(from));
        note_change();
    }
    if (has_message) {
        wake();
    }
}

/* Take new senders, and forget those that have ended and are read. */
void receiver::update()
{
    changed_.store(false);
    {
        const std::lock_guard<std::mutex> guard(lock_);
        for (auto &each : fresh_) {
            rings_.push_back(std::move(each));
        }
        fresh_.clear();
    }
    std::erase_if(rings_, [this](const auto &each) {
        ring_reader::message next;
        if (!each->has_ended()) {
            return false;
        }
        if (each->messages().peek(next) == ring_reader::result::message) {
            changed_.store(true); /* once more */
            return false;
        }
        return true;
    });
}

void receiver::refuse(inbound &sender)
{
    if (!sender.has_ended()) {
        ucs_warn("gaudi_ipc: messages of process %u make no sense: its link "
                 "is closed",
                 sender.pid());
        sender.messages().close();
        sender.hang_up();
    }
    changed_.store(true);
}

bool receiver::arm()
{
    if (changed_.load()) {
        update();
    }
    return std::all_of(rings_.begin(), rings_.end(), [](const auto &each) {
        return each->messages().sleep();
    });
}

void receiver::close()
{
    {
        const std::lock_guard<std::mutex> guard(lock_);
        closed_ = true;
    }
    update();
    for (const auto &each : rings_) {
        each->messages().close();
        each->hang_up();
    }
    rings_.clear();
}

} // namespace gaudi::ipc
