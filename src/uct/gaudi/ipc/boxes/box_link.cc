/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/boxes/box_link.h"

#include "util/epoll.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

namespace gaudi::ipc {

namespace {

/* A box that has lost its power says nothing: its kernel is asked, as UCX's tcp
 * does (UCX_TCP_KEEPIDLE and its like), so often. */
constexpr int idle_s  = 10;
constexpr int retry_s = 2;
constexpr int retries = 3;

bool may_come()
{
    return (errno == EAGAIN) || (errno == EINTR);
}

} // namespace

box_link::box_link(base::card &home, int events, uint64_t secret,
                   size_t longest)
    : home_(home), cards_(home.hold()), events_(events), secret_(secret),
      slot_bytes_((longest + sizeof(slot_head) + 63) / 64 * 64)
{}

box_link::~box_link()
{
    if (is_inherited()) {
        /* What is the parent's is not mapped here, and closed already. */
        (void)memory_.release();
        (void)socket_.release();
        return;
    }
    end();
    if (memory_ != nullptr) {
        home_.ports().give_back(std::move(memory_));
    }
}

void box_link::end()
{
    is_over_ = true;
    if (ports_ != nullptr) {
        ports_->ports().share_with(nullptr);
        engine_->end_ports(*std::exchange(ports_, nullptr), true);
    }
}

void box_link::hang_up()
{
    closed_in_children_ = {};
    socket_.reset();
}

int box_link::take_memory()
{
    if (memory_ == nullptr) { /* a letter may have been in vain */
        memory_ = home_.ports().take(
            home_.device(), answer_offset(0) + slots * sizeof(uint64_t));
    }
    return (memory_ != nullptr) ? 0 : -ENOMEM;
}

/* --- letters ---------------------------------------------------------------*/

int box_link::take_socket(util::unique_fd socket)
{
    const auto set = [&](int level, int option, int value) {
        return setsockopt(socket.get(), level, option, &value, sizeof(value)) ==
               0;
    };
    if (!set(SOL_SOCKET, SO_KEEPALIVE, 1) ||
        !set(IPPROTO_TCP, TCP_KEEPIDLE, idle_s) ||
        !set(IPPROTO_TCP, TCP_KEEPINTVL, retry_s) ||
        !set(IPPROTO_TCP, TCP_KEEPCNT, retries) ||
        !util::add_event(events_, socket.get())) {
        return -errno;
    }
    closed_in_children_ = util::closed_in_children(socket.get());
    socket_             = std::move(socket);
    heard_              = 0;
    to_say_.clear();
    peer_left_ = is_silent_ = is_let_go_ = was_rung_ = waits_for_room_ = false;
    return 0;
}

void box_link::write(box_letter letter)
{
    letter.secret = secret_;
    letter.memory = memory_->on_card.address();
    letter.slot   = static_cast<uint32_t>(slot_bytes_);
    to_say_.append(reinterpret_cast<const char *>(&letter), sizeof(letter));
    speak();
}

/* What was said, and closed over unread, comes back as a reset. */
void box_link::leave(int error)
{
    peer_left_ = true;
    is_let_go_ = !has_heard_ &&
                 ((error == 0) || (error == ECONNRESET) || (error == EPIPE));
}

void box_link::ring()
{
    box_letter bell;
    bell.kind = box_letter::bell;
    write(bell);
}

void box_link::speak()
{
    while (!to_say_.empty()) {
        const ssize_t said = send(socket_.get(), to_say_.data(), to_say_.size(),
                                  MSG_NOSIGNAL | MSG_DONTWAIT);
        if (said < 0) {
            if (!may_come()) {
                leave(errno);
            }
            return;
        }
        to_say_.erase(0, static_cast<size_t>(said));
    }
}

/* With a letter that nobody has taken: only whether there is an end. */
void box_link::listen()
{
    char more;
    const ssize_t got =
        has_letter()
            ? recv(socket_.get(), &more, 1, MSG_DONTWAIT | MSG_PEEK)
            : recv(socket_.get(), reinterpret_cast<char *>(&letter_) + heard_,
                   sizeof(letter_) - heard_, MSG_DONTWAIT);
    if (got <= 0) {
        is_silent_ = (got == 0) || !may_come();
        if (is_silent_) {
            leave((got == 0) ? 0 : errno);
        }
        return;
    }
    heard_ += has_letter() ? 0 : static_cast<size_t>(got);
    if (!has_letter()) {
        return;
    }
    if (!std::exchange(has_heard_, true)) { /* until then it may be busy */
        constexpr int longest_ms = (idle_s + retry_s * retries) * 1000;
        (void)setsockopt(socket_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT,
                         &longest_ms, sizeof(longest_ms));
    }
    if ((letter_.version != box_letter::current_version) ||
        (letter_.secret != secret_) || (letter_.slot != slot_bytes_)) {
        ucs_debug("%s: somebody in another box does not know what to say",
                  home_.name().c_str());
        peer_left_ = true;
    } else if (letter_.kind == box_letter::goodbye) {
        peer_left_ = has_goodbye_ = true;
    }
    was_rung_ |= (letter_.kind == box_letter::bell);
    if (peer_left_ || (letter_.kind == box_letter::bell)) {
        heard_ = 0;
    }
}

/* While it connects, both come to nothing. */
void box_link::look()
{
    if (is_over_ || peer_left_ || is_inherited()) {
        return;
    }
    listen();
    if (!peer_left_) {
        speak();
    }
}

void box_link::watch()
{
    const bool waits = !to_say_.empty();
    if (waits != std::exchange(waits_for_room_, waits)) {
        (void)util::change_event(events_, socket_.get(),
                                 waits ? uint32_t{EPOLLOUT} : 0);
    }
}

bool box_link::take_letter(box_letter &letter_p)
{
    if (!has_letter() || !to_say_.empty()) {
        return false;
    }
    heard_   = 0;
    letter_p = letter_;
    return true;
}

void box_link::ask_for_goodbye()
{
    (void)shutdown(socket_.get(), SHUT_WR);
}

bool box_link::hears_goodbye()
{
    if (has_letter()) {
        heard_ = 0;
    }
    if (!is_silent_) {
        listen();
    }
    return has_goodbye_;
}

void box_link::wait_for_goodbye(std::chrono::nanoseconds longest) const
{
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(longest);
    pollfd from{is_silent_ ? -1 : socket_.get(), POLLIN, 0};
    (void)poll(&from, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
}

/* --- writes ----------------------------------------------------------------*/

void box_link::use(base::transfer_engine &engine, base::channel &ports,
                   uint64_t memory_there)
{
    engine_       = &engine;
    ports_        = &ports;
    memory_there_ = memory_there;
    ports.ports().share_with(this);
}

bool box_link::post(unsigned number, size_t offset, size_t bytes)
{
    return ports_->ports().post(memory_there_ + offset,
                                memory_->on_card.address() + offset, bytes,
                                number) == 0;
}

void box_link::post_word(uint64_t value)
{
    if (tells_ || (value == told_)) {
        return;
    }
    word(own_word).store(value, std::memory_order_release);
    if (ports_->ports().post(memory_there_,
                             memory_->on_card.address() + own_word,
                             sizeof(value), slots) == 0) {
        telling_ = value;
        tells_   = true;
    }
}

/* The engine is at its queues: what ends the link is seen in progress. */
void box_link::note_end(unsigned number, int status)
{
    if (status != 0) {
        peer_left_ = true;
    } else if (number == slots) {
        told_  = telling_;
        tells_ = false;
    } else {
        written_ |= uint64_t{1} << number;
    }
}

} // namespace gaudi::ipc
