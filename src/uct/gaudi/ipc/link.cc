/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/link.h"

#include "uct/gaudi/ipc/folder.h"
#include "uct/gaudi/ipc/service_calls.h"
#include "uct/gaudi/ipc/socket.h"
#include "util/locks.h"

#include <cerrno>
#include <chrono>
#include <utility>

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

/* How long descriptors are waited for, which service threads that are behind
 * will close, here or at the peer. */
constexpr std::chrono::milliseconds patience{90};

/* As much as a segment can have of them. */
link_options limit(link_options options)
{
    const uint64_t most =
        max_chunk_bytes / std::max<size_t>(options.chunk_bytes, 1);
    options.chunks = static_cast<unsigned>(
        std::min({uint64_t{options.chunks}, most, uint64_t{max_requests}}));
    return options;
}

} // namespace

link::link(const interface_address &to, const link_options &options,
           std::shared_ptr<event> wakes)
    : address_(to), options_(limit(options)),
      name_("process " + std::to_string(to.pid)), wakes_(std::move(wakes))
{}

link::~link()
{
    if (has_ports_ && are_ports_quiet_) {
        const quiet_message message;
        (void)send_message(socket_.get(), &message, sizeof(message));
    }
    if (name_in_service != 0) {
        service_calls::instance().unfollow(*this);
    }
}

ucs_status_t link::open(const interface_address &to,
                        const link_options &options,
                        const std::shared_ptr<event> &wakes,
                        std::shared_ptr<link> &link_p)
{
    using clock         = std::chrono::steady_clock;
    const auto deadline = clock::now() + patience;
    for (;;) {
        std::shared_ptr<link> made(new link(to, options, wakes));
        ucs_status_t status = made->connect();
        if (status == UCS_OK) {
            status = service_calls::instance().follow(made);
        }
        if (status == UCS_OK) {
            link_p = std::move(made);
        }
        if ((status != UCS_ERR_NO_RESOURCE) || (clock::now() >= deadline)) {
            return status;
        }
        made.reset(); /* its descriptors */
        util::nap();
    }
}

ucs_status_t link::connect()
{
    const uint64_t length =
        segment_bytes(options_.chunk_bytes, options_.chunks);
    int error = 0;
    socket_   = connect_to(address_.process, error);
    if (error == 0) {
        not_in_children_ = util::closed_in_children(socket_.get());
        error            = (util::longest_file() < length) ? EFBIG : -greet();
    }
    if (error == 0) {
        return UCS_OK;
    }
    ucs_debug("gaudi_ipc: cannot connect to process %u: %s", address_.pid,
              std::strerror(error));
    switch (error) {
    case EMFILE:
    case ENFILE:
    case EAGAIN:
    case ENOBUFS:
    case ETOOMANYREFS:
        return UCS_ERR_NO_RESOURCE;
    case ENOMEM:
    case EFBIG:
        return UCS_ERR_NO_MEMORY;
    default:
        return UCS_ERR_UNREACHABLE;
    }
}

/* Make the segment, and give it to the server. Children do not have it: a card
 * may copy to it. */
int link::greet()
{
    const uint64_t length =
        segment_bytes(options_.chunk_bytes, options_.chunks);
    const util::unique_fd file =
        util::make_lasting_file("ucx-gaudi-link", length);
    if (!file || !segment_.map(file.get(), 0, length) ||
        (madvise(segment_.start(), length, MADV_DONTFORK) != 0)) {
        return -errno;
    }
    writer_ = ring_writer(&control().ring, segment_.start() + ring_offset,
                          ring_bytes);
    const hello_message hello{.version   = wire_version,
                              .process   = address_.process,
                              .interface = address_.number,
                              .pid       = static_cast<uint32_t>(getpid()),
                              .chunk_bytes =
                                  static_cast<uint32_t>(options_.chunk_bytes),
                              .chunks = options_.chunks};
    return send_message(socket_.get(), &hello, sizeof(hello), file.get());
}

bool link::has_hung_up() const
{
    pollfd looked{socket_.get(), 0, 0};
    return is_closed() || ((::poll(&looked, 1, 0) > 0) &&
                           ((looked.revents & (POLLHUP | POLLERR)) != 0));
}

/* A full socket has bells in it that were not heard yet. */
void link::ring_bell(bell_reason why) const
{
    const bell_message bell{.reason = why};
    (void)send_message(socket_.get(), &bell, sizeof(bell));
}

/* After a message was published that its reader may not look for. */
ucs_status_t link::wake_reader()
{
    uint32_t asleep = ring_asleep;
    if (control().ring.state.compare_exchange_strong(asleep, ring_polled)) {
        ring_bell(bell_reason::message);
    }
    if (!is_closed()) {
        return UCS_OK;
    }
    /* One that was read before its reader went is not lost. */
    std::atomic_thread_fence(std::memory_order_acquire);
    return writer_.is_read(writer_.position()) ? UCS_OK
                                               : UCS_ERR_ENDPOINT_TIMEOUT;
}

int link::ask_for_ports(uint32_t number, uint32_t card,
                        const shim::port_offer &offer)
{
    {
        const std::lock_guard<std::mutex> guard(lock_);
        ports_answers_[number] = {
            .number = number, .card = card, .error = -EINPROGRESS, .offer = {}};
    }
    has_ports_ = true;
    const ports_message asked{
        .number = number, .card = card, .error = 0, .offer = offer};
    return send_message(socket_.get(), &asked, sizeof(asked));
}

int link::take_ports_answer(uint32_t number, shim::port_offer &offer_p)
{
    const std::lock_guard<std::mutex> guard(lock_);
    const auto found = ports_answers_.find(number);
    if ((found == ports_answers_.end()) ||
        (found->second.error == -EINPROGRESS)) {
        return is_over() ? -ESRCH : -EINPROGRESS;
    }
    const int error = found->second.error;
    offer_p         = found->second.offer;
    ports_answers_.erase(found);
    return error;
}

void link::answer_revocation(uint64_t word) const
{
    const revoke_message answer{.word = word};
    (void)send_message(socket_.get(), &answer, sizeof(answer));
}

bool link::take(const char *message, size_t length)
{
    const auto is = [&](message_type wanted, size_t size) {
        message_type type;
        std::memcpy(&type, message, sizeof(type));
        return (type == wanted) && (length == size);
    };
    if (length < sizeof(message_type)) {
        return false;
    }
    if (is(message_type::bell, sizeof(bell_message))) {
        wakes_->signal();
    } else if (is(message_type::welcome, sizeof(welcome_message))) {
        welcome_message welcome;
        std::memcpy(&welcome, message, sizeof(welcome));
        is_welcome_.store(welcome.error == 0);
        if (welcome.error != 0) {
            ucs_debug("gaudi_ipc: process %u refuses a connection: %s",
                      address_.pid, std::strerror(-welcome.error));
        }
    } else if (is(message_type::ports, sizeof(ports_message))) {
        ports_message answer;
        std::memcpy(&answer, message, sizeof(answer));
        {
            const std::lock_guard<std::mutex> guard(lock_);
            const auto asked = ports_answers_.find(answer.number);
            if (asked != ports_answers_.end()) {
                /* Whatever it says, it is a final answer. */
                answer.error =
                    ((answer.error <= 0) && (answer.error != -EINPROGRESS))
                        ? answer.error
                        : -EIO;
                asked->second = answer;
            }
        }
        wakes_->signal();
    } else if (is(message_type::revoke, sizeof(revoke_message))) {
        revoke_message revoked;
        std::memcpy(&revoked, message, sizeof(revoked));
        revocations_.fetch_add(1); /* before keys are looked for */
        service_calls::instance().revoke(shared_from_this(), revoked.word);
    } else {
        ucs_diag("gaudi_ipc: process %u sent nonsense: the link is closed",
                 address_.pid);
        return false;
    }
    return true;
}

bool link::receive()
{
    constexpr unsigned most = 16;
    for (unsigned i = 0; i < most; ++i) {
        char message[max_message];
        const ssize_t length =
            receive_message(socket_.get(), message, sizeof(message));
        if (length == -EAGAIN) {
            return true;
        }
        if ((length <= 0) || !take(message, static_cast<size_t>(length))) {
            /* Transient: ENOMEM, ENOBUFS. */
            if ((length < 0) && (length != -ECONNRESET)) {
                return true;
            }
            ended_.store(true, std::memory_order_release);
            wakes_->signal_link_end();
            return false;
        }
    }
    return true;
}

ucs_status_t link_table::find(const interface_address &to,
                              const link_options &options,
                              const std::shared_ptr<event> &wakes,
                              std::shared_ptr<link> &link_p)
{
    auto known = links_.find(to);
    if ((known == links_.end()) || known->second.way->is_closed()) {
        std::shared_ptr<link> made;
        const ucs_status_t status = link::open(to, options, wakes, made);
        if (status != UCS_OK) {
            return status;
        }
        if (known != links_.end()) {
            ended_.push_back(known->second.way);
            links_.erase(known);
        }
        known = links_.emplace(to, entry{std::move(made)}).first;
    }
    ++known->second.endpoints;
    link_p = known->second.way;
    return UCS_OK;
}

void link_table::put(const link &which)
{
    const auto found = links_.find(which.address());
    if ((found != links_.end()) && (found->second.way.get() == &which)) {
        --found->second.endpoints;
    }
}

link_table::links link_table::take_unused()
{
    links taken = std::exchange(ended_, {});
    std::erase_if(links_, [&](const auto &each) {
        link &way = *each.second.way;
        const bool is_ended =
            way.is_closed() ||
            ((each.second.endpoints == 0) && way.is_delivered(way.sent()));
        if (is_ended) {
            taken.push_back(each.second.way);
        }
        return is_ended;
    });
    return taken;
}

} // namespace gaudi::ipc
