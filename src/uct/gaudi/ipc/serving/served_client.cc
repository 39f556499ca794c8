/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/serving/served_client.h"

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/process/shared_page.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

template <typename Number>
Number read_once(const Number &shared)
{
    return __atomic_load_n(&shared, __ATOMIC_RELAXED);
}

/* Each field once: its process may write them any time. */
request_body read(const request_body &shared)
{
    return {.address  = read_once(shared.address),
            .offset   = read_once(shared.offset),
            .length   = read_once(shared.length),
            .stamp    = read_once(shared.stamp),
            .cell     = read_once(shared.cell),
            .kind     = read_once(shared.kind),
            .link     = read_once(shared.link),
            .reserved = 0};
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
    memory_ = new base::host_region(data_, data_bytes_,
                                    base::host_region::kind::staging);
    return UCS_OK;
}

int served_client::connect_ports(const request_body &asked,
                                 base::transfer_engine &engine)
{
    if (!is_in_chunks(asked.offset, asked.length) ||
        (asked.length != sizeof(shim::port_offer))) {
        return -EINVAL;
    }
    if (!base::may_go_over(shim::wire::ports)) {
        return -EOPNOTSUPP;
    }
    shim::port_offer letter;
    std::memcpy(&letter, data_ + asked.offset, sizeof(letter));
    const int error = ports_.connect(engine, asked.link,
                                     base::pci_address(asked.address), letter);
    if (error == 0) {
        std::memcpy(data_ + asked.offset, &letter, sizeof(letter));
    }
    return error;
}

/* Start what needs a key. */
ucs_status_t served_client::start(const request_body &asked,
                                  base::transfer_engine &engine,
                                  base::flush_domain &domain, served_copy &copy)
{
    const bool is_put = (asked.kind == request_put);
    copy.done.count   = 1;
    copy.done.func    = on_end;
    if (asked.kind == request_write) {
        return ports_.start_write(engine, domain, asked, &copy.done);
    }
    if ((asked.kind > request_write) ||
        !is_in_chunks(asked.offset, asked.length)) {
        return UCS_ERR_INVALID_ADDR;
    }
    own_page &page = *own_page::instance();
    if (!page.begin_use({asked.cell, asked.stamp}, asked.address,
                        asked.length)) {
        return UCS_ERR_CONNECTION_RESET;
    }
    ucs_status_t status;
    if (base::memory_map::is_device(asked.address)) {
        const base::side here(asked.address);
        base::side chunk(data_ + asked.offset);
        chunk.registration = memory_;
        status             = engine.start(domain, is_put ? here : chunk,
                              is_put ? chunk : here, asked.length, &copy.done);
    } else {
        status = copy_host(is_put, asked.address, data_ + asked.offset,
                           asked.length);
    }
    if (status != UCS_INPROGRESS) {
        page.end_use(asked.stamp);
    }
    return status;
}

bool served_client::start_next(base::transfer_engine &engine,
                               base::flush_domain &domain, unsigned share)
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
    const request_body asked = read(request(started_));
    if (!may_start(share, asked.kind)) {
        return false;
    }
    copy       = {{}, this, started_, asked.stamp, true};
    int result = 0;
    /* Who has the card table may wait for this. */
    const base::reporting_scope asks_no_card_table;
    if (asked.kind == request_ports) {
        of_->note_ports();
        result = connect_ports(asked, engine);
    } else {
        const ucs_status_t status = start(asked, engine, domain, copy);
        if (status == UCS_ERR_NO_RESOURCE) {
            copy.is_running = false;
            return false;
        }
        result = (status == UCS_INPROGRESS) ? -EINPROGRESS : to_errno(status);
    }
    ++started_;
    ++running_;
    if (result != -EINPROGRESS) {
        finish(copy, result);
    }
    return true;
}

} // namespace gaudi::ipc
