/**
 * The memory of a mailbox: the file that senders map, and what its owner has
 * mapped of it.
 *
 * One thread at a time. What the memory means is mailbox_layout.h's.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/messages/mailbox_layout.h"
#include "util/file_mapping.h"
#include "util/unique_fd.h"

#include <vector>

namespace gaudi::ipc {

class mailbox_file {
public:
    explicit mailbox_file(const mailbox_layout &layout) : layout_(layout) {}

    /** Make it, full of zeros, and map the header. Once.
     *  @return UCS_ERR_NO_MEMORY; logged. */
    [[nodiscard]] ucs_status_t create();

    [[nodiscard]] bool is_open() const { return header_.start() != nullptr; }
    [[nodiscard]] int fd() const { return file_.get(); }
    [[nodiscard]] const mailbox_layout &layout() const { return layout_; }
    [[nodiscard]] mailbox_header &header() const
    {
        return *reinterpret_cast<mailbox_header *>(header_.start());
    }

    /** Have a ring mapped from now on.
     *  @return UCS_ERR_NO_MEMORY; said at debug level. */
    [[nodiscard]] ucs_status_t map_ring(unsigned index);

    /** Where a mapped ring starts. */
    [[nodiscard]] char *ring(unsigned index) const
    {
        return mappings_[index / rings_per_mapping].start() +
               (index % rings_per_mapping) * layout_.ring_length();
    }

    /** Make a mapped ring zeros, and give its memory back. */
    void clear_ring(unsigned index);

private:
    /* Rings that are mapped at once. */
    static constexpr unsigned rings_per_mapping = 64;

    const mailbox_layout layout_;
    util::unique_fd file_;
    util::file_mapping header_;
    std::vector<util::file_mapping> mappings_; /* of rings; empty: not yet */
};

} // namespace gaudi::ipc
