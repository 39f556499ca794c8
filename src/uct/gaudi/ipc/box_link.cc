/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/box_link.h"

#include "uct/gaudi/base/cards/routes.h"

#include <array>
#include <cerrno>

#include <poll.h>
#include <sys/socket.h>

namespace gaudi::ipc {

namespace {

/* Calls of progress from one look at the socket to the next. */
constexpr unsigned polls_per_peek = 256;

/* Cookies of writes: a slot, or the word. */
void *cookie_of(uint64_t number)
{
    return reinterpret_cast<void *>(number);
}

bool may_come()
{
    return (errno == EAGAIN) || (errno == EINTR);
}

} // namespace

box_link::box_link(base::card &by, util::unique_fd socket, uint64_t secret,
                   bool is_sender, size_t longest)
    : card_(by), socket_(std::move(socket)), closed_in_children_(socket_.get()),
      is_sender_(is_sender),
      slot_bytes_((longest + sizeof(slot_head) + 63) / 64 * 64), written_(slots)
{
    mine_.secret = secret;
    mine_.slot   = slot_bytes_;
}

int box_link::open(base::card &by, const sockaddr_in &to, uint64_t secret,
                   size_t longest, std::unique_ptr<box_link> &link_p)
{
    util::unique_fd made(
        socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!made ||
        ((::connect(made.get(), reinterpret_cast<const sockaddr *>(&to),
                    sizeof(to)) != 0) &&
         (errno != EINPROGRESS))) {
        return -errno;
    }
    link_p.reset(new box_link(by, std::move(made), secret, true, longest));
    return link_p->prepare();
}

std::unique_ptr<box_link> box_link::accept(base::card &by, util::unique_fd peer,
                                           uint64_t secret, size_t longest)
{
    std::unique_ptr<box_link> made(
        new box_link(by, std::move(peer), secret, false, longest));
    made->step_ = step::hearing;
    return made;
}

box_link::~box_link()
{
    if (made_in_.is_parent()) {
        (void)memory_.release(); /* it is the parent's, and not mapped here */
    }
    over_.reset(); /* nothing comes by its queue pairs but what drains */
    if (memory_ != nullptr) {
        card_.ports().give_back(std::move(memory_));
    }
}

/* Queue pairs and memory: a receiver has them once the secret was presented. */
int box_link::prepare()
{
    std::string why;
    shim::port_device *const ports = base::ports_of(card_, why);
    if (ports != nullptr) {
        why = shim::connection::open(*ports, shim::port_offer::outside, {},
                                     over_);
    }
    if (over_ == nullptr) {
        ucs_debug("%s: no connection out of the box: %s", card_.name().c_str(),
                  why.c_str());
        return -ENOTCONN;
    }
    memory_ =
        card_.ports().take(card_.device(), head_bytes + slots * slot_bytes_);
    if (memory_ == nullptr) {
        return -ENOMEM;
    }
    mine_.memory = memory_->on_card.address();
    mine_.offer  = over_->offer();
    return 0;
}

/* --- how they meet ---------------------------------------------------------*/

int box_link::meet()
{
    pollfd wanted{socket_.get(), POLLOUT, 0};
    if (poll(&wanted, 1, 0) != 1) {
        return 0;
    }
    int error        = 0;
    socklen_t length = sizeof(error);
    if ((getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length) !=
         0) ||
        (error != 0)) {
        return -ECONNREFUSED;
    }
    step_ = step::saying;
    return 1;
}

int box_link::say()
{
    const ssize_t sent =
        send(socket_.get(), reinterpret_cast<const char *>(&mine_) + said_,
             sizeof(mine_) - said_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
        return may_come() ? 0 : -errno;
    }
    said_ += static_cast<size_t>(sent);
    if (said_ == sizeof(mine_)) {
        step_ = is_sender_ ? step::hearing : step::ready;
    }
    return 1;
}

int box_link::hear()
{
    const ssize_t got =
        recv(socket_.get(), reinterpret_cast<char *>(&peers_) + heard_,
             sizeof(peers_) - heard_, MSG_DONTWAIT);
    if (got <= 0) {
        return ((got < 0) && may_come()) ? 0 : -ECONNRESET;
    }
    heard_ += static_cast<size_t>(got);
    if (heard_ < sizeof(peers_)) {
        return 1;
    }
    if ((peers_.version != box_greeting::current_version) ||
        (peers_.secret != mine_.secret) || (peers_.slot != slot_bytes_)) {
        ucs_debug("%s: somebody connects who does not know what to say",
                  card_.name().c_str());
        return -EPROTO;
    }
    const int ret = is_sender_ ? 0 : prepare();
    return (ret == 0) ? connect() : ret;
}

int box_link::connect()
{
    const std::string why = over_->connect(peers_.offer);
    if (!why.empty()) {
        ucs_debug("%s: no connection out of the box: %s", card_.name().c_str(),
                  why.c_str());
        return -ENOTCONN;
    }
    step_ = is_sender_ ? step::ready : step::saying;
    return 1;
}

/* The peer has ended, or closed its end. */
bool box_link::has_ended()
{
    char none;
    const ssize_t got =
        recv(socket_.get(), &none, sizeof(none), MSG_DONTWAIT | MSG_PEEK);
    return (got == 0) || ((got < 0) && !may_come());
}

/* --- messages --------------------------------------------------------------*/

void *box_link::reserve()
{
    if ((step_ != step::ready) ||
        (filled_ - theirs().load(std::memory_order_acquire) >= slots)) {
        return nullptr;
    }
    return slot(filled_) + sizeof(slot_head);
}

void box_link::publish(uint8_t id, size_t length)
{
    const slot_head head{static_cast<uint32_t>(length), id};
    std::memcpy(slot(filled_), &head, sizeof(head));
    ++filled_;
    write_slots();
}

void box_link::write_slots()
{
    while (posted_ != filled_) {
        slot_head head;
        std::memcpy(&head, slot(posted_), sizeof(head));
        const size_t offset = offset_of(posted_);
        if (over_->post(
                peers_.memory + offset, memory_->on_card.address() + offset,
                sizeof(head) + head.length, cookie_of(posted_ % slots)) != 0) {
            return; /* in a later turn, or the connection is over */
        }
        ++posted_;
    }
}

void box_link::write_word(uint64_t value)
{
    if (tells_ || (value == told_)) {
        return;
    }
    own().store(value, std::memory_order_release);
    if (over_->post(peers_.memory, memory_->on_card.address() + own_word,
                    sizeof(value), cookie_of(slots)) == 0) {
        telling_ = value;
        tells_   = true;
    }
}

int box_link::collect()
{
    std::array<shim::dma_completion, 16> ended;
    const unsigned count = over_->poll(ended.data(), ended.size());
    for (unsigned i = 0; i < count; ++i) {
        const auto number = reinterpret_cast<uintptr_t>(ended[i].cookie);
        if (ended[i].status != 0) {
            return ended[i].status;
        }
        if (number == slots) {
            told_  = telling_;
            tells_ = false;
        } else {
            written_[number] = true;
        }
    }
    for (; (arrived_ != posted_) && written_[arrived_ % slots]; ++arrived_) {
        written_[arrived_ % slots] = false;
    }
    return static_cast<int>(count);
}

int box_link::work()
{
    const int count = collect();
    if (count < 0) {
        return count;
    }
    if (is_sender_) {
        write_slots();
        write_word(arrived_);
    } else if ((filled_ - told_ >= slots / 4) ||
               (filled_ == theirs().load(std::memory_order_acquire))) {
        write_word(filled_);
    }
    peer_left_ =
        peer_left_ || ((++polls_ % polls_per_peek == 0) && has_ended());
    if (over_->usable_ports() == 0) {
        return -ENETDOWN;
    }
    /* What it has told of before is there. */
    return (peer_left_ &&
            (is_sender_ ||
             (filled_ == theirs().load(std::memory_order_acquire))))
               ? -ECONNRESET
               : count;
}

int box_link::progress()
{
    int count = -ECONNRESET;
    switch (step_) {
    case step::connecting:
        count = meet();
        break;
    case step::saying:
        count = say();
        break;
    case step::hearing:
        count = hear();
        break;
    case step::ready:
        count = work();
        break;
    case step::over:
        break;
    }
    if (count < 0) {
        step_ = step::over;
    }
    return count;
}

} // namespace gaudi::ipc
