/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/boxes/box_sender.h"

#include "uct/gaudi/ipc/process/remote_process.h"

#include <atomic>
#include <cstring>
#include <utility>

#include <arpa/inet.h>
#include <sys/socket.h>

namespace gaudi::ipc {

namespace {

constexpr unsigned queries_per_look = 64; /* who asks polls 1024 times */

uint64_t next_identity()
{
    static std::atomic<uint64_t> last{0};
    return ++last;
}

std::string name_of(const box_address &to)
{
    char text[INET_ADDRSTRLEN];
    const in_addr address{to.ipv4};
    return std::string("box at ") +
           inet_ntop(AF_INET, &address, text, sizeof(text));
}

} // namespace

box_sender::box_sender(base::card &by, int events, const box_address &to,
                       size_t longest)
    : box_link(by, events, to.secret, longest), max_payload(longest), to_(to),
      identity_(next_identity())
{}

int box_sender::open(base::card &by, int events, const box_address &to,
                     size_t longest, std::shared_ptr<box_sender> &sender_p)
{
    std::shared_ptr<box_sender> sender(new box_sender(by, events, to, longest));
    int error = sender->reach();
    if (error == 0) {
        error = sender->take_memory();
    }
    if (error == 0) {
        sender_p = std::move(sender);
    }
    return error;
}

int box_sender::reach()
{
    sockaddr_in at{};
    at.sin_family      = AF_INET;
    at.sin_addr.s_addr = to_.ipv4;
    at.sin_port        = to_.port;
    util::unique_fd made(
        socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!made ||
        ((::connect(made.get(), reinterpret_cast<const sockaddr *>(&at),
                    sizeof(at)) != 0) &&
         (errno != EINPROGRESS))) {
        return -errno;
    }
    return take_socket(std::move(made));
}

/* A peer lets go of who has said nothing for long, and may be reached again,
 * also with what has crossed that; who does so at once again is another program
 * that has its port. */
void box_sender::look()
{
    box_link::look();
    if (ucs_likely(!is_let_go()) || is_over()) {
        return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= may_reach_) {
        may_reach_ =
            now + std::chrono::milliseconds(remote_process::timeout_ms());
        if ((reach() == 0) && asked_.has_value()) {
            write(*asked_);
        }
    }
}

int box_sender::connect(const base::owner_queue_options &wished,
                        std::unique_ptr<base::owner_queue> &queue_p)
{
    if (is_over()) {
        return -ESRCH;
    }
    queue_p =
        std::make_unique<box_queue>(shared_from_this(), wished.chunk_bytes);
    return 0;
}

bool box_sender::progress(base::transfer_engine &engine)
{
    if (!is_in_use() || (++polls_ % polls_per_look == 0)) {
        look();
    }
    bool works = !is_over() && !peer_left_;
    if (works && is_in_use()) {
        write_slots();
        for (uint64_t bit;
             (arrived_ != posted_) &&
             ((written_ & (bit = uint64_t{1} << (arrived_ % slots))) != 0);
             ++arrived_) {
            written_ &= ~bit;
        }
        post_word(arrived_);
        const uint64_t last = heard();
        if (ucs_unlikely(has_to_ring(last))) {
            rung_ = last;
            ring();
        }
        works = box_link::works();
    } else if (works) {
        base::channel *ports;
        const int error = engine.get_ports(home_, *this, ports);
        if (error == 0) {
            use(engine, *ports, memory_);
            ring(); /* it can be written to now */
        }
        works = (error == 0) || (error == -EINPROGRESS);
    }
    if (!works) {
        end();
    }
    return works;
}

bool box_sender::arm()
{
    look();
    watch();
    return is_over() ||
           (!peer_left_ &&
            (is_in_use() ? has_told(filled_) && !has_to_ring(heard())
                         : asked_.has_value() && !has_letter()));
}

void box_sender::end()
{
    box_link::end();
    if (gets_ > 0) {
        ask_for_goodbye();
    } else {
        hang_up();
    }
}

/* --- messages --------------------------------------------------------------*/

ucs_status_t box_sender::reserve(size_t, void *&room_p)
{
    if (is_inherited() || is_over()) {
        return UCS_ERR_ENDPOINT_TIMEOUT;
    }
    if (!is_in_use() || is_full()) {
        return UCS_ERR_NO_RESOURCE;
    }
    room_p = at(offset_of(filled_) + sizeof(slot_head));
    last_  = room_p;
    return UCS_OK;
}

void box_sender::fill(uint32_t id, size_t length)
{
    const slot_head head{static_cast<uint32_t>(length), id};
    std::memcpy(at(offset_of(filled_)), &head, sizeof(head));
    ++filled_;
    write_slots();
}

void box_sender::write_slots()
{
    for (; posted_ != filled_; ++posted_) {
        slot_head head;
        std::memcpy(&head, at(offset_of(posted_)), sizeof(head));
        if (!post(posted_ % slots, offset_of(posted_),
                  sizeof(head) + head.length)) {
            return; /* in a later turn, or the connection is over */
        }
    }
}

/* --- what it has the receiver write ----------------------------------------*/

box_queue::box_queue(std::shared_ptr<box_sender> to, size_t chunk_bytes)
    : to_(std::move(to)), name_(name_of(to_->address())), letter_(chunk_bytes)
{}

bool box_queue::is_over()
{
    if (++looks_ % queries_per_look == 0) {
        to_->look();
    }
    return gave_up_ || to_->is_over() || to_->peer_left_;
}

void box_queue::wait_for_oldest(uint64_t)
{
    util::nap();
}

int box_queue::ask_for_ports(base::remote_memory &of, uint64_t offset,
                             uint32_t link)
{
    if (is_over()) {
        return -ESRCH;
    }
    to_->look(); /* it may have been let go meanwhile */
    box_letter letter;
    letter.card = static_cast<uint32_t>(of.place().address);
    letter.name = link;
    letter_at_  = offset;
    std::memcpy(&letter.offer, letter_.data() + offset, sizeof(letter.offer));
    to_->write(letter);
    to_->asked_ = letter;
    return 0;
}

int box_queue::ports_answer(uint64_t)
{
    to_->look();
    box_letter letter;
    if (!to_->take_letter(letter)) {
        return is_over() ? -ESRCH : -EINPROGRESS;
    }
    to_->asked_.reset();
    to_->memory_ = letter.memory;
    std::memcpy(letter_.data() + letter_at_, &letter.offer,
                sizeof(letter.offer));
    return to_answer(letter.result);
}

int box_queue::ask_over_ports(base::remote_memory &of, uint32_t link,
                              uint64_t target, uint64_t src, uint64_t length,
                              void *cookie)
{
    void *room;
    if (gave_up_) {
        return -ESRCH;
    }
    const ucs_status_t status = (outstanding() < cookies_.size())
                                    ? to_->reserve(sizeof(request_body), room)
                                    : UCS_ERR_NO_RESOURCE;
    if (status != UCS_OK) {
        return (status == UCS_ERR_NO_RESOURCE) ? -EAGAIN : -ESRCH;
    }
    const own_page::mark key = static_cast<served_memory &>(of).mark();
    const request_body asked{.address  = src,
                             .offset   = target,
                             .length   = length,
                             .stamp    = key.stamp,
                             .cell     = key.cell,
                             .kind     = request_write,
                             .link     = link,
                             .reserved = posted_};
    std::memcpy(room, &asked, sizeof(asked));
    to_->fill(box_sender::asks_for_write, sizeof(asked));
    cookies_[posted_++ % cookies_.size()] = cookie;
    ++to_->gets_;
    return 0;
}

/* Until its own queue pairs have drained, the receiver's writes arrive, unless
 * that says that there are none. */
void box_queue::stop()
{
    if (!std::exchange(gave_up_, true)) {
        give_up();
        drained_at_ = clock::now() + base::card_ports::drain_time();
    }
}

/* An answer is the number and one, and a result. What it gave up ends when
 * nothing is written for it any more. */
unsigned box_queue::poll(shim::dma_completion *completions, unsigned max)
{
    unsigned count  = 0;
    const auto take = [&](int status) {
        completions[count++] = {cookies_[taken_++ % cookies_.size()], status};
        --to_->gets_;
    };
    while ((count < max) && (taken_ != posted_) && !gave_up_) {
        const uint64_t answer =
            to_->answer(taken_).load(std::memory_order_acquire);
        if (static_cast<uint32_t>(answer >> 32) != taken_ + 1) {
            break;
        }
        take(static_cast<int>(static_cast<uint32_t>(answer)));
    }
    if ((count == 0) && (taken_ != posted_) && is_over()) {
        stop();
    }
    const bool is_rest = (taken_ != posted_) && is_drained();
    while (is_rest && (count < max) && (taken_ != posted_)) {
        take(-ESRCH);
    }
    if (to_->is_over() && (to_->gets_ == 0)) {
        to_->hang_up();
    }
    return count;
}

int box_queue::wait_all(uint64_t)
{
    if (outstanding() > 0) {
        stop();
        while (!is_drained()) {
            to_->wait_for_goodbye(drained_at_ - clock::now());
        }
    }
    return 0;
}

} // namespace gaudi::ipc
