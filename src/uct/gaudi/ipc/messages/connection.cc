/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/messages/connection.h"

#include <atomic>
#include <bit>

#include <poll.h>

namespace gaudi::ipc {

namespace {

ucs_status_t map_part(int fd, size_t offset, size_t length,
                      util::file_mapping &mapping)
{
    if (!mapping.map(fd, offset, length)) {
        ucs_debug("gaudi_ipc: cannot map %zu bytes of a mailbox: %m", length);
        return UCS_ERR_NO_MEMORY;
    }
    return UCS_OK;
}

} // namespace

connection::connection(std::shared_ptr<remote_process> process,
                       const mailbox_address &address)
    : process_(std::move(process)), address_(address)
{}

ucs_status_t connection::open(const mailbox_address &address,
                              std::unique_ptr<connection> &connection_p)
{
    std::shared_ptr<remote_process> process;
    ucs_status_t status = remote_process::open(address.process, process);
    if (status != UCS_OK) {
        return status;
    }
    std::unique_ptr<connection> fresh(
        new connection(std::move(process), address));
    status = fresh->attach();
    if (status == UCS_OK) {
        connection_p = std::move(fresh);
    }
    return status;
}

ucs_status_t connection::attach()
{
    const mailbox_address &address = address_;
    file_pair files;
    ucs_status_t status = process_->get_files(address.file, files);
    if (status != UCS_OK) {
        return status;
    }
    const util::unique_fd &file = files[0];
    signal_                     = std::move(files[1]);
    const mailbox_layout least{ring_min_size, 1};
    const size_t length = util::lasting_length(file.get());
    if (length < least.length()) {
        ucs_debug("gaudi_ipc: process %u names a file as its mailbox that is "
                  "none",
                  address.process.pid);
        return UCS_ERR_INVALID_ADDR;
    }
    status = map_part(file.get(), 0, least.header_length(), header_);
    if (status != UCS_OK) {
        return status;
    }

    /* Read once: it may change any time. */
    const auto ring_size = std::atomic_ref<uint64_t>(header().ring_size).load();
    const auto ring_count =
        std::atomic_ref<uint32_t>(header().ring_count).load();
    if (!signal_ || (header().magic != mailbox_header::right_magic) ||
        (header().version != wire_version) ||
        (header().nonce != address.process.nonce) ||
        (ring_size < ring_min_size) || (ring_size > mailbox::largest_fifo) ||
        !std::has_single_bit(ring_size) || (ring_count == 0) ||
        (ring_count > mailbox::most_senders) ||
        (length != mailbox_layout{ring_size, ring_count}.length())) {
        ucs_debug("gaudi_ipc: the mailbox of process %u is not as it should be",
                  address.process.pid);
        return UCS_ERR_INVALID_ADDR;
    }
    if (header().closed.load() != 0) {
        ucs_debug("gaudi_ipc: process %u has closed its mailbox",
                  address.process.pid);
        return UCS_ERR_UNREACHABLE;
    }
    return take_ring(file.get(), mailbox_layout{ring_size, ring_count});
}

/* The first that nobody has, or that its owner has left. */
ucs_status_t connection::take_ring(int file, const mailbox_layout &layout)
{
    for (uint32_t index = 0; index < layout.ring_count; ++index) {
        /* Any sender may have written any number there. */
        uint32_t used = header().used.load();
        while ((used <= index) &&
               !header().used.compare_exchange_weak(used, index + 1)) {}
        const ucs_status_t status = try_ring(file, layout, index);
        if (status != UCS_ERR_BUSY) {
            return status;
        }
    }
    ucs_debug("gaudi_ipc: all %u rings of process %u are taken",
              layout.ring_count, process_->id().pid);
    return UCS_ERR_NO_RESOURCE;
}

/* @return UCS_ERR_BUSY: it is taken, or of no use now. */
ucs_status_t connection::try_ring(int file, const mailbox_layout &layout,
                                  unsigned index)
{
    const uint64_t own = own_process().word_for(process_->id().pid_namespace);
    std::atomic<uint64_t> &word = header().owners[index];
    uint64_t owner              = word.load(std::memory_order_relaxed);
    const bool is_left          = has_left(owner);
    if (((owner != 0) && !is_left) ||
        !word.compare_exchange_strong(owner, own)) {
        return UCS_ERR_BUSY;
    }

    util::file_mapping ring;
    ucs_status_t status =
        map_part(file, layout.ring_offset(index), layout.ring_length(), ring);
    if (status == UCS_OK) {
        auto *control = reinterpret_cast<ring_control *>(ring.start());
        ring_writer writer(control, ring.start() + layout.data_offset(),
                           layout.ring_size);
        if (is_left && !writer.resume()) {
            status = UCS_ERR_BUSY;
        } else if (!writer.has_room()) {
            word.store(owner); /* it has to be read first */
            header().mark(index);
            return UCS_ERR_BUSY;
        } else {
            index_   = index;
            control_ = control;
            writer_  = writer;
            ring_    = std::move(ring);
        }
    }
    if (status != UCS_OK) {
        word.store(nobody);
    }
    header().mark(index);
    return status;
}

connection::~connection()
{
    if (control_ == nullptr) {
        return;
    }
    writer_.leave();
    header().owners[index_].fetch_or(owner_left);
    header().mark(index_);
}

/* Wake the receiver if it sleeps: it has been told what for. */
void connection::ring_the_bell()
{
    std::atomic_thread_fence(std::memory_order_seq_cst);
    uint64_t sleep = header().asleep.load();
    if ((sleep != 0) && signal_mailbox(signal_.get())) {
        (void)header().asleep.compare_exchange_strong(sleep, 0);
    }
}

/* After a message was published that the reader does not look for. */
ucs_status_t connection::tell_reader(ring_state state)
{
    if (state == ring_idle) {
        header().mark(index_);
        ring_the_bell();
    }
    if (!is_closed()) {
        return UCS_OK;
    }
    /* One that was read before its reader went is not lost. */
    std::atomic_thread_fence(std::memory_order_acquire);
    return writer_.is_read(writer_.position()) ? UCS_OK
                                               : UCS_ERR_ENDPOINT_TIMEOUT;
}

ucs_status_t connection::full()
{
    if (!is_closed() && (++tries_ % tries_per_look == 0)) {
        gone_ = !peer_alive();
    }
    return is_closed() ? UCS_ERR_ENDPOINT_TIMEOUT : UCS_ERR_NO_RESOURCE;
}

bool connection::is_closed() const
{
    return gone_ || writer_.is_corrupted() ||
           (header().closed.load(std::memory_order_relaxed) != 0) ||
           (control_->state.load(std::memory_order_relaxed) == ring_closed);
}

bool connection::peer_alive() const
{
    if (is_closed()) {
        return false;
    }
    /* The other end of the socket is closed when the process has executed
     * another program, too. */
    pollfd ended[] = {{process_->life(), POLLIN, 0}, {signal_.get(), 0, 0}};
    return ::poll(ended, 2, 0) <= 0;
}

bool connection::peer_lost() const
{
    return (header().closed.load() == 0) && !process_->is_alive();
}

ucs_status_t share_connection(connection_table &known,
                              const mailbox_address &address,
                              std::shared_ptr<connection> &connection_p)
{
    connection_p = known[address].lock();
    if ((connection_p != nullptr) && connection_p->peer_alive()) {
        return UCS_OK;
    }
    connection_p.reset();
    std::erase_if(known,
                  [](const auto &entry) { return entry.second.expired(); });
    std::unique_ptr<connection> fresh;
    const ucs_status_t status = connection::open(address, fresh);
    if (status == UCS_OK) {
        connection_p   = std::move(fresh);
        known[address] = connection_p;
    }
    return status;
}

} // namespace gaudi::ipc
