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
    case UCS_ERR_REJECTED:
        return -EKEYREVOKED;
    default:
        return -EIO;
    }
}

served_ports::~served_ports()
{
    end();
    all_mapped -= mapped_.size();
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

bool served_ports::forget_mapped()
{
    bool any_later = false;
    all_mapped -= std::erase_if(mapped_, [&](const auto &entry) {
        const auto &[name, host] = entry;
        own_page &page           = *own_page::instance();
        if (page.is_current({host.cell, name.first})) {
            return false;
        }
        const bool is_used = page.find_user(name.first).has_value();
        any_later |= is_used;
        return !is_used;
    });
    return any_later;
}

std::vector<base::held_registration> served_ports::take_used()
{
    std::vector<base::held_registration> used;
    for (auto &[name, host] : mapped_) {
        if (own_page::instance()->find_user(name.first).has_value()) {
            used.push_back(std::move(host.memory));
        }
    }
    return used;
}

uint64_t served_ports::map(const request_body &asked)
{
    using mapping              = base::remote_memory::mapping;
    constexpr uint64_t refused = mapping::not_to_be;
    base::channel *const ports = find(asked.link);
    own_page *const page       = own_page::instance();
    if ((ports == nullptr) || (page == nullptr)) {
        return refused;
    }
    const mapped_name name{asked.stamp, &ports->owner()};
    const auto known = mapped_.find(name);
    if (known != mapped_.end()) {
        return known->second.added;
    }
    if ((asked.length == 0) || base::memory_map::is_device(asked.address) ||
        !page->begin_use({asked.cell, asked.stamp}, asked.address,
                         asked.length)) {
        return refused;
    }
    uint64_t va = 0;
    auto memory =
        engine_->map_host(*ports, base::side(asked.address), asked.length, va);
    const uint64_t added = (memory != nullptr) ? va - asked.address : refused;
    if ((added == refused) || (added == mapping::not_known)) {
        memory.reset(); /* no answer says so */
    }
    if (memory != nullptr) {
        mapped_[name] = {asked.cell, std::move(memory), added};
        ++all_mapped;
    }
    page->end_use(asked.stamp);
    return (added != mapping::not_known) ? added : refused;
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
        return UCS_ERR_REJECTED;
    }
    ucs_status_t status = UCS_ERR_INVALID_ADDR;
    uint64_t source     = asked.address;
    base::held_registration memory;
    bool is_there   = base::memory_map::is_device(source);
    const auto host = mapped_.find({asked.stamp, &ports->owner()});
    if (!is_there && (host != mapped_.end()) &&
        (source >= host->second.memory->start) &&
        (source + asked.length <= host->second.memory->end)) {
        memory.reset(host->second.memory.get());
        memory->get();
        source += host->second.added;
        is_there = true;
    }
    if (is_there) {
        /* Who has the card table may wait for uses of this key. */
        const base::reporting_scope asks_no_card_table;
        status = engine.start_over_ports(domain, *ports, asked.offset, source,
                                         std::move(memory), asked.length,
                                         completion);
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
