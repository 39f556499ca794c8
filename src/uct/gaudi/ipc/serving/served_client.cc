#include "uct/gaudi/ipc/serving/served_client.h"

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/process/shared_page.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

int to_errno(ucs_status_t status)
{
    switch (status) {
    case UCS_OK:
        return 0;
    case UCS_ERR_NO_DEVICE:
        return -ENODEV;
    case UCS_ERR_INVALID_ADDR:
        return -EFAULT;
    case UCS_ERR_TIMED_OUT:
        return -ETIMEDOUT;
    case UCS_ERR_NO_MEMORY:
        return -ENOMEM;
    case UCS_ERR_REJECTED:
        return -EKEYREVOKED;
    default:
        return -EIO;
    }
}

template <typename Number>
Number read_once(const Number &shared)
{
    return __atomic_load_n(&shared, __ATOMIC_RELAXED);
}

/* The flag is its process's, too, and can be cleared any time. */
bool is_nonblocking(int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    return (flags >= 0) && ((flags & O_NONBLOCK) != 0);
}

void on_end(uct_completion_t *self)
{
    auto &copy = *ucs_container_of(self, served_copy, done);
    own_page::instance()->end_use(copy.stamp);
    copy.of->finish(copy, to_errno(self->status));
}

/* By the kernel: the program may have unmapped it. */
ucs_status_t copy_host(bool is_put, uint64_t address, char *chunk,
                       size_t length)
{
    const util::process_memory own(getpid(), -1);
    const int error = is_put ? own.write(address, chunk, length)
                             : own.read(chunk, address, length);
    return (error == 0)         ? UCS_OK
           : (error == -EFAULT) ? UCS_ERR_INVALID_ADDR
                                : UCS_ERR_IO_ERROR;
}

} // namespace

void served_client::wake()
{
    ring().client_sleeps.store(0);
    if (is_nonblocking(wake_.get())) {
        (void)eventfd_write(wake_.get(), 1);
    }
}

void served_client::finish(served_copy &copy, int result)
{
    copy_request &ended = request(copy.number);
    ended.result        = result;
    ended.ended.store(copy.number + 1);
    copy.is_running = false;
    --running_;
    if (ring().client_sleeps.load() != 0) {
        wake();
    }
}

ucs_status_t served_client::map(int fd)
{
    const size_t length = util::lasting_length(fd);
    if (length < copy_ring::page) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (!mapping_.map(fd, 0, length)) {
        return UCS_ERR_NO_MEMORY;
    }
    const copy_ring &head = ring();
    const uint32_t slots  = read_once(head.slots);
    data_bytes_           = read_once(head.data_bytes);
    if ((head.magic != copy_ring::right_magic) ||
        (head.version != wire_version) || (slots == 0) ||
        (slots > copy_ring::max_slots) || (data_bytes_ == 0) ||
        (data_bytes_ > copy_ring::max_data_bytes) ||
        (length != copy_ring::file_size(slots, data_bytes_)) ||
        (madvise(mapping_.start(), length, MADV_DONTFORK) != 0)) {
        return UCS_ERR_INVALID_PARAM;
    }
    data_ = mapping_.start() + copy_ring::data_offset(slots);
    copies_.resize(slots);
    memory_ =
        base::memory_map::instance().register_host(data_, data_bytes_, true);
    return UCS_OK;
}

bool served_client::start_next(base::transfer_engine &engine,
                               base::flush_domain &domain)
{
    const uint64_t posted = ring().posted.load();
    served_copy &copy     = copies_[started_ % copies_.size()];
    if (gone_ || (posted == started_)) {
        return false;
    }
    if ((posted - started_ > copies_.size()) || copy.is_running) {
        ucs_diag("gaudi_ipc: process %u asks for copies in a way that makes no "
                 "sense: it gets no more",
                 of_->process().id().pid);
        end();
        return false;
    }
    const copy_request &asked = request(started_);
    const uint32_t kind       = read_once(asked.kind);
    if (kind == request_flush) {
        copy = {{}, this, started_++, 0, true};
        ++running_;
        finish(copy, engine.flush_card(static_cast<base::pci_address>(
                         read_once(asked.address))));
        return true;
    }
    const uint64_t address = read_once(asked.address);
    const uint64_t offset  = read_once(asked.offset);
    const uint64_t length  = read_once(asked.length);
    const bool is_put      = (kind == request_put);
    const own_page::mark key{read_once(asked.cell), read_once(asked.stamp)};
    const bool fits = (length != 0) && (offset <= data_bytes_) &&
                      (length <= data_bytes_ - offset);
    own_page &page      = *own_page::instance();
    ucs_status_t status = !fits ? UCS_ERR_INVALID_ADDR
                          : page.begin_use(key, address, length)
                              ? UCS_OK
                              : UCS_ERR_REJECTED;
    copy                = {{}, this, started_, key.stamp, true};
    if ((status == UCS_OK) && !base::memory_map::is_device(address)) {
        status = copy_host(is_put, address, data_ + offset, length);
        page.end_use(key.stamp);
    } else if (status == UCS_OK) {
        const base::side here(address);
        const base::side chunk(data_ + offset);
        copy.done.count = 1;
        copy.done.func  = on_end;
        /* Who has the card table may wait for uses of this key. */
        const base::reporting_scope asks_no_card_table;
        status = engine.start(domain, is_put ? here : chunk,
                              is_put ? chunk : here, length, &copy.done);
        if (status != UCS_INPROGRESS) {
            page.end_use(key.stamp);
        }
        if (status == UCS_ERR_NO_RESOURCE) {
            copy.is_running = false;
            return false;
        }
    }
    ++started_;
    ++running_;
    if (status != UCS_INPROGRESS) {
        finish(copy, to_errno(status));
    }
    return true;
}

} // namespace gaudi::ipc
