/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/serving/served_ports.h"

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/ipc/process/shared_page.h"

#include <cerrno>
#include <utility>

namespace gaudi::ipc {

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
    case UCS_ERR_CONNECTION_RESET:
        return -EKEYREVOKED;
    default:
        return -EIO;
    }
}

int served_ports::connect(base::transfer_engine &engine, uint32_t name,
                          base::pci_address card, shim::port_offer &letter)
{
    if ((all_.size() >= most) && !all_.contains(name)) {
        return -EOPNOTSUPP;
    }
    base::channel *made;
    const int error = engine.connect_ports(card, letter, made);
    if (error == 0) {
        engine_ = &engine;
        if (base::channel *&known = all_[name]; known != nullptr) {
            engine.end_ports(*std::exchange(known, made), false);
        } else {
            known = made;
        }
    }
    return error;
}

ucs_status_t served_ports::start_write(base::transfer_engine &engine,
                                       base::flush_domain &domain,
                                       const request_body &asked,
                                       uct_completion_t *completion) const
{
    base::channel *const ports = find(asked.link);
    own_page *const page       = own_page::instance();
    if ((ports == nullptr) || (asked.length == 0)) {
        return UCS_ERR_INVALID_ADDR;
    }
    if ((page == nullptr) || !page->begin_use({asked.cell, asked.stamp},
                                              asked.address, asked.length)) {
        return UCS_ERR_CONNECTION_RESET;
    }
    ucs_status_t status = UCS_ERR_INVALID_ADDR;
    if (base::memory_map::is_device(asked.address)) {
        /* A thread that has the card table may wait for uses of this key. */
        const base::reporting_scope asks_no_card_table;
        status =
            engine.start_over_ports(domain, *ports, asked.offset, asked.address,
                                    asked.length, completion);
    }
    if (status != UCS_INPROGRESS) {
        page->end_use(asked.stamp);
    }
    return status;
}

void served_ports::end()
{
    for (const auto &[_, ports] : all_) {
        engine_->end_ports(*ports, true);
    }
    all_.clear();
}

} // namespace gaudi::ipc
