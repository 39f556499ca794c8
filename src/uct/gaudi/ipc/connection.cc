#include "uct/gaudi/ipc/connection.h"

#include <atomic>
#include <bit>
#include <cerrno>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

namespace gaudi::ipc {

connection::mapping::~mapping()
{
    if (start_ != nullptr) {
        munmap(start_, length_);
    }
}

ucs_status_t connection::mapping::map(int fd, size_t offset, size_t length)
{
    void *start =
        mmap(nullptr, length, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_NORESERVE, fd, static_cast<off_t>(offset));
    if (start == MAP_FAILED) {
        ucs_debug("gaudi_ipc: cannot map %zu bytes of a mailbox: %m", length);
        return UCS_ERR_NO_MEMORY;
    }
    start_  = static_cast<char *>(start);
    length_ = length;
    return UCS_OK;
}

connection::connection(std::shared_ptr<remote_process> process)
    : process_(std::move(process)), generation_(base::process_generation())
{}

ucs_status_t connection::open(const mailbox_address &address,
                              std::unique_ptr<connection> &connection_p)
{
    std::shared_ptr<remote_process> process;
    ucs_status_t status = remote_process::open(address.process, process);
    if (status != UCS_OK) {
        return status;
    }
    std::unique_ptr<connection> fresh(new connection(std::move(process)));
    status = fresh->attach(address);
    if (status == UCS_OK) {
        connection_p = std::move(fresh);
    }
    return status;
}

ucs_status_t connection::attach(const mailbox_address &address)
{
    int fd              = -1;
    ucs_status_t status = process_->get_file(address.file, fd);
    if (status != UCS_OK) {
        return status;
    }
    const unique_fd file(fd);

    /* Memory that could be taken away behind a mapping would kill with SIGBUS
     * whoever touches it. */
    struct stat info;
    const mailbox_layout least(ring_min_size, 1);
    const int seals = fcntl(file.get(), F_GET_SEALS);
    if ((seals < 0) || ((seals & F_SEAL_SHRINK) == 0) ||
        (fstat(file.get(), &info) != 0) ||
        (info.st_size < static_cast<off_t>(least.length()))) {
        ucs_debug("gaudi_ipc: descriptor %u of process %u is no mailbox",
                  address.file.fd, address.process.pid);
        return UCS_ERR_INVALID_ADDR;
    }
    status = header_.map(file.get(), 0, least.header_length());
    if (status != UCS_OK) {
        return status;
    }

    /* Read once: it may change any time. */
    const auto ring_size = std::atomic_ref<uint64_t>(header().ring_size).load();
    const auto ring_count =
        std::atomic_ref<uint32_t>(header().ring_count).load();
    const file_ref signal = header().signal;
    if ((header().magic != mailbox_header::right_magic) ||
        (header().version != wire_version) ||
        (header().nonce != address.process.nonce) ||
        (ring_size < ring_min_size) || (ring_size > mailbox::largest_fifo) ||
        !std::has_single_bit(ring_size) || (ring_count == 0) ||
        (ring_count > mailbox::most_senders) ||
        (info.st_size !=
         static_cast<off_t>(mailbox_layout(ring_size, ring_count).length()))) {
        ucs_debug("gaudi_ipc: the mailbox of process %u is not as it should be",
                  address.process.pid);
        return UCS_ERR_INVALID_ADDR;
    }
    if (header().closed.load() != 0) {
        ucs_debug("gaudi_ipc: process %u has closed its mailbox",
                  address.process.pid);
        return UCS_ERR_UNREACHABLE;
    }

    status = process_->get_file(signal, fd);
    if (status != UCS_OK) {
        return status;
    }
    signal_.reset(fd);
    return take_ring(file.get(), mailbox_layout(ring_size, ring_count));
}

ucs_status_t connection::take_ring(int file, const mailbox_layout &layout)
{
    /* Senders start at different places. */
    static std::atomic<unsigned> turn{0};

    const process_id own = own_process();
    const uint64_t owner = owner_word(own);
    const unsigned count = layout.ring_count();
    const unsigned first = own.pid + turn.fetch_add(1);
    unsigned tried       = 0;
    uint64_t free        = 0;
    for (; tried < count; ++tried, free = 0) {
        index_ = (first + tried) % count;
        if ((header().owners[index_].load(std::memory_order_relaxed) == 0) &&
            header().owners[index_].compare_exchange_strong(free, owner)) {
            break;
        }
    }
    if (tried == count) {
        ucs_debug("gaudi_ipc: all %u rings of process %u are taken", count,
                  process_->id().pid);
        header().ring_wanted.store(1);
        ring_the_bell();
        return UCS_ERR_NO_RESOURCE;
    }

    const ucs_status_t status =
        ring_.map(file, layout.ring_offset(index_), layout.ring_length());
    if (status != UCS_OK) {
        header().owners[index_].store(nobody);
    } else {
        control_ = reinterpret_cast<ring_control *>(ring_.start());
        writer_  = ring_writer(control_, ring_.start() + layout.data_offset(),
                               layout.ring_size());
    }
    header().mark(index_);
    ring_the_bell();
    return status;
}

connection::~connection()
{
    if ((control_ == nullptr) || !is_ours()) {
        return;
    }
    control_->finished.store(1);
    header().mark(index_);
    ring_the_bell();
}

/* Wake the receiver if it sleeps: it has been told what for. */
void connection::ring_the_bell()
{
    constexpr char byte = 0;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const uint64_t sleep = header().asleep.load();
    if ((sleep == 0) || (sleep == rung_)) {
        return;
    }
    ssize_t sent;
    do {
        sent = ::send(signal_.get(), &byte, sizeof(byte),
                      MSG_DONTWAIT | MSG_NOSIGNAL);
    } while ((sent < 0) && (errno == EINTR));
    /* No room means that there are bytes to wake it. It takes them before it
     * goes to sleep again. */
    if ((sent == sizeof(byte)) || (errno == EAGAIN)) {
        rung_ = sleep;
    }
}

/* After a message was published that the reader does not look for. */
ucs_status_t connection::tell_reader(ring_state state)
{
    if (state == ring_idle) {
        header().mark(index_);
        ring_the_bell();
    }
    return is_closed() ? UCS_ERR_CONNECTION_RESET : UCS_OK;
}

ucs_status_t connection::full()
{
    if (!is_closed() && (++tries_ % tries_per_look == 0)) {
        gone_ = !peer_alive();
    }
    return is_closed() ? UCS_ERR_CONNECTION_RESET : UCS_ERR_NO_RESOURCE;
}

bool connection::is_closed() const
{
    return gone_ || !is_ours() || writer_.is_corrupted() ||
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
    pollfd ended[] = {{process_->pidfd(), POLLIN, 0}, {signal_.get(), 0, 0}};
    return ::poll(ended, 2, 0) <= 0;
}

bool connection::peer_lost() const
{
    return is_ours() && (header().closed.load() == 0) && !process_->is_alive();
}

} // namespace gaudi::ipc
