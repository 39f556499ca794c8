#include "uct/gaudi/ipc/messages/ring.h"

namespace gaudi::ipc {

bool ring_writer::resume()
{
    const uint64_t written = control_->written.load(std::memory_order_acquire);
    const uint64_t consumed =
        control_->consumed.load(std::memory_order_acquire);
    if ((control_->state.load() == ring_closed) ||
        ((written % ring_line) != 0) || ((consumed % ring_line) != 0) ||
        (written - consumed > size_)) {
        return false;
    }
    head_   = written;
    tail_   = consumed;
    zeroed_ = written + ring_line;
    return true;
}

bool ring_writer::update_free(size_t length)
{
    const uint64_t consumed =
        control_->consumed.load(std::memory_order_acquire);
    if ((consumed < tail_) || (consumed > head_) ||
        ((consumed % ring_line) != 0)) {
        corrupted_ = true;
    }
    if (corrupted_) {
        return false;
    }
    tail_ = consumed;
    return head_ + length - tail_ <= size_;
}

} // namespace gaudi::ipc
