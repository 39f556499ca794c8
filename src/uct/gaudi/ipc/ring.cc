#include "uct/gaudi/ipc/ring.h"

namespace gaudi::ipc {

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
