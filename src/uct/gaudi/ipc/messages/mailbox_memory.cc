/* SPDX-License-Identifier: BSD-3-Clause */
/* The file of a mailbox, and what its owner has mapped of it. */
#include "uct/gaudi/ipc/messages/mailbox.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gaudi::ipc {

bool signal_mailbox(int socket)
{
    constexpr char byte = 0;
    ssize_t sent;
    do {
        sent = ::send(socket, &byte, sizeof(byte), MSG_DONTWAIT | MSG_NOSIGNAL);
    } while ((sent < 0) && (errno == EINTR));
    /* No room means that there are bytes to wake it. It takes them before it
     * goes to sleep again. */
    return (sent == sizeof(byte)) || (errno == EAGAIN);
}

ucs_status_t mailbox::make_file()
{
    file_ = util::make_lasting_file("ucx-gaudi-mailbox", layout_.length());
    if (!file_) {
        ucs_error("gaudi_ipc: cannot make a mailbox of %zu bytes: %m",
                  layout_.length());
        return UCS_ERR_NO_MEMORY;
    }
    if (!header_.map(file_.get(), 0, layout_.header_length())) {
        ucs_error("gaudi_ipc: cannot map a mailbox: %m");
        return UCS_ERR_NO_MEMORY;
    }
    return UCS_OK;
}

ucs_status_t mailbox::map_ring(unsigned index)
{
    const unsigned which = index / rings_per_mapping;
    if (which >= mappings_.size()) {
        mappings_.resize(which + 1);
    }
    /* What is beyond the end of the file is never touched. */
    if ((mappings_[which].start() == nullptr) &&
        !mappings_[which].map(file_.get(),
                              layout_.ring_offset(which * rings_per_mapping),
                              rings_per_mapping * layout_.ring_length())) {
        ucs_debug("gaudi_ipc: cannot map rings of senders: %m");
        return UCS_ERR_NO_MEMORY;
    }
    return UCS_OK;
}

char *mailbox::ring(unsigned index) const
{
    return mappings_[index / rings_per_mapping].start() +
           (index % rings_per_mapping) * layout_.ring_length();
}

void mailbox::clear_ring(unsigned index)
{
    if (fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(layout_.ring_offset(index)),
                  static_cast<off_t>(layout_.ring_length())) != 0) {
        ucs_debug("gaudi_ipc: memory of a ring cannot be given back: %m");
        std::memset(ring(index), 0, layout_.ring_length());
    }
}

} // namespace gaudi::ipc
