/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/boxes/box_receiver.h"

#include "uct/gaudi/ipc/process/remote_process.h"
#include "uct/gaudi/ipc/process/shared_page.h"

#include <bit>
#include <cerrno>

namespace gaudi::ipc {

/* A queue pair sends nothing once it is destroyed (hbl_cn_qp_do_release of the
 * driver's hbl_cn.c), and what others had to write has ended. */
box_receiver::~box_receiver()
{
    if (!is_inherited()) {
        end();
        if (has_memory()) {
            box_letter last;
            last.kind = box_letter::goodbye;
            write(last);
        }
    }
}

/* By the first connection messages come. */
void box_receiver::meet()
{
    const std::lock_guard<util::brief_lock> guard(server_.lock);
    if (!is_in_use() || (++polls_ % polls_per_look == 0)) {
        look();
    }
    if (is_stranger() && !has_letter() &&
        (clock::now() - since_ >
         std::chrono::milliseconds(remote_process::timeout_ms()))) {
        end_locked();
    }
    box_letter letter;
    if (take_letter(letter)) {
        letter.result =
            (!is_in_use() && (take_memory() != 0)) ? -ENOMEM
            : ((letter.offer.peer != shim::port_offer::outside) ||
               (!is_in_use() &&
                (base::pci_address{letter.card} != home_.address())))
                ? -EINVAL
                : ports_.connect(*server_.engine, letter.name,
                                 base::pci_address(letter.card), letter.offer);
        if ((letter.result == 0) && !is_in_use()) {
            base::channel *const ports = ports_.find(letter.name);
            ++ports->users;
            use(*server_.engine, *ports, letter.memory);
        }
        if (letter.result == -ENOMEM) {
            end_locked();
        } else {
            write(letter);
        }
    }
    peer_left_ |= !is_over() && is_in_use() && !works();
    /* What it has told of before is there. */
    if (peer_left_ && (!is_in_use() ||
                       (filled_ == theirs().load(std::memory_order_acquire)))) {
        end_locked();
    }
}

/* Whether there is a message. */
bool box_receiver::next(slot_head &head_p)
{
    const uint64_t available = theirs().load(std::memory_order_acquire);
    if (available == filled_) {
        return false;
    }
    std::memcpy(&head_p, at(offset_of(filled_)), sizeof(head_p));
    if ((available - filled_ > slots) ||
        (head_p.length > slot_bytes() - sizeof(head_p))) {
        ucs_diag("%s: another box writes messages that make no sense: it is "
                 "not heard any more",
                 home_.name().c_str());
        end();
        return false;
    }
    return true;
}

/* @return false: there is no room now. */
bool box_receiver::serve(const void *data, size_t length)
{
    const std::lock_guard<util::brief_lock> guard(server_.lock);
    request_body asked;
    if (length != sizeof(asked)) {
        return true;
    }
    std::memcpy(&asked, data, sizeof(asked));
    served_write &write = writes_[asked.reserved % slots];
    if (write.is_running) {
        return true; /* it asks for what it has asked for */
    }
    write            = {{}, this, asked.reserved, asked.stamp, true};
    write.done.count = 1;
    write.done.func  = on_end;
    ++running_;
    const ucs_status_t status =
        ports_.start_write(*server_.engine, server_.domain, asked, &write.done);
    if (status == UCS_ERR_NO_RESOURCE) {
        write.is_running = false;
        --running_;
        return false;
    }
    if (status != UCS_INPROGRESS) {
        finish(write, to_errno(status));
    }
    return true;
}

void box_receiver::on_end(uct_completion_t *self)
{
    auto &write = *ucs_container_of(self, served_write, done);
    own_page::instance()->end_use(write.stamp);
    write.of->finish(write, to_errno(self->status));
}

void box_receiver::finish(served_write &write, int result)
{
    write.is_running = false;
    --running_;
    if (!is_over()) {
        const uint32_t number = write.number;
        answer(number).store((uint64_t{number + 1} << 32) |
                                 static_cast<uint32_t>(result),
                             std::memory_order_release);
        answers_ |= uint64_t{1} << (number % slots);
    }
}

/* Of room, when there is much or nothing more is there. */
void box_receiver::tell()
{
    const std::lock_guard<util::brief_lock> guard(server_.lock);
    while (!is_over() && (answers_ != 0)) {
        const auto number = static_cast<unsigned>(std::countr_zero(answers_));
        if (!post(number, answer_offset(number), sizeof(uint64_t))) {
            break;
        }
        answers_ &= answers_ - 1;
    }
    const uint64_t unknown = filled_ - (told_ & ~is_asleep);
    if (!is_over() && (unknown > 0) &&
        ((unknown >= slots / 4) ||
         (filled_ == theirs().load(std::memory_order_acquire)))) {
        post_word(filled_);
    }
}

bool box_receiver::arm()
{
    const std::lock_guard<util::brief_lock> guard(server_.lock);
    look();
    watch();
    if (is_over() || peer_left_ || has_letter() || (running_ > 0) ||
        (answers_ != 0)) {
        return false;
    }
    if (!is_in_use() || !was_rung()) {
        return true; /* which tells that this end may write */
    }
    post_word(filled_ | is_asleep);
    return has_told(filled_ | is_asleep) &&
           (filled_ == theirs().load(std::memory_order_acquire));
}

void box_receiver::end()
{
    const std::lock_guard<util::brief_lock> guard(server_.lock);
    end_locked();
}

void box_receiver::end_locked()
{
    ports_.end();
    box_link::end();
}

} // namespace gaudi::ipc
