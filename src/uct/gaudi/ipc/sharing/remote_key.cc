/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/sharing/remote_key.h"

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/base/ucx/ucp_settings.h"
#include "uct/gaudi/ipc/process/shared_folder.h"
#include "uct/gaudi/ipc/process/shared_page.h"
#include "util/process.h"

#include <cstring>
#include <utility>

namespace gaudi::ipc {

remote_key::remote_key(const wire_key &key) : key_(key)
{}

remote_key::~remote_key()
{
    hazard_entry *hazard = hazard_.load();
    if (hazard != nullptr) {
        own_page::instance()->give_hazard(hazard);
    }
}

ucs_status_t remote_key::find_device(const wire_key &key,
                                     std::shared_ptr<foreign_page> &of_p)
{
    const base::held_cards cards = base::card_table::instance().cards();
    const base::route_list ways =
        base::find_routes(cards.first(), base::pci_address{key.card},
                          key.module)
            .all;
    if (ways.begin() == ways.end()) {
        ucs_debug("gaudi_ipc: no card of this process reaches device memory of "
                  "process %u",
                  key.process.pid);
        return UCS_ERR_UNSUPPORTED;
    }
    return foreign_pages::instance().find(key.process, key.page, of_p);
}

ucs_status_t remote_key::find_host(const wire_key &key,
                                   std::shared_ptr<foreign_page> &of_p)
{
    ucs_status_t status =
        foreign_pages::instance().find(key.process, key.page, of_p);
    if ((status == UCS_OK) && !of_p->has_memory() &&
        !(of_p->copies_host() && base::may_go_over(shim::wire::host))) {
        status = UCS_ERR_UNREACHABLE;
    }
    /* A CPU can do what UCP has it do instead, unless there is device memory at
     * this end. */
    return ((status == UCS_ERR_UNREACHABLE) &&
            base::card_table::instance().cards().empty())
               ? UCS_ERR_UNSUPPORTED
               : status;
}

/* Find the process of a key.
 * @return UCS_ERR_UNSUPPORTED: it is by nature out of reach;
 * UCS_ERR_UNREACHABLE: it should not be. UCS_ERR_CONNECTION_RESET: nobody can
 * use the key any more.
 */
ucs_status_t remote_key::find(const wire_key &key,
                              std::shared_ptr<foreign_page> &of_p)
{
    const ucs_status_t status = (key.kind == key_kind::host)
                                    ? find_host(key, of_p)
                                    : find_device(key, of_p);
    if ((status == UCS_OK) && (of_p->cell(key.cell) != key.stamp)) {
        ucs_debug("gaudi_ipc: process %u has ended the registration of a "
                  "remote key",
                  key.process.pid);
        return UCS_ERR_CONNECTION_RESET;
    }
    return status;
}

/* What operations with a key are to say that could not be opened; UCS_OK: there
 * is to be no key, and UCP goes other ways. With its old protocols only
 * messages have any. */
ucs_status_t remote_key::failure_of(const wire_key &key, ucs_status_t status)
{
    if (status == UCS_ERR_CONNECTION_RESET) {
        return status;
    }
    if ((status != UCS_ERR_NO_RESOURCE) &&
        process_has_ended(key.process.word_for(own_process().pid_namespace))) {
        return UCS_ERR_ENDPOINT_TIMEOUT;
    }
    if (base::has_new_protocols()) {
        return UCS_OK;
    }
    if (status == UCS_ERR_NO_RESOURCE) {
        return UCS_ERR_IO_ERROR;
    }
    const bool by_nature = (status == UCS_ERR_UNSUPPORTED);
    if ((key.of_message != 0) || (by_nature && (key.kind == key_kind::host))) {
        return UCS_OK;
    }
    ucs_error("gaudi_ipc: memory of process %u cannot be reached from here: "
              "put and get by this remote key will fail; UCX_PROTO_ENABLE=y "
              "stages them",
              key.process.pid);
    return UCS_ERR_IO_ERROR;
}

ucs_status_t remote_key::unpack(const void *buffer, remote_key *&key_p)
{
    wire_key key;
    ucs_status_t status = read_key(buffer, key);
    if (status != UCS_OK) {
        return status;
    }
    std::shared_ptr<foreign_page> of;
    ucs_status_t failure = UCS_OK;
    if (key.process == own_process()) {
        const own_page *page = own_page::instance();
        if ((page == nullptr) ||
            !page->is_current({key.cell, key.stamp}, key.address, key.length)) {
            ucs_debug("gaudi_ipc: a remote key of this process is not valid "
                      "(any more)");
            failure = UCS_ERR_CONNECTION_RESET;
        }
    } else {
        status  = find(key, of);
        failure = (status == UCS_OK) ? UCS_OK : failure_of(key, status);
        if ((failure == UCS_OK) && (status != UCS_OK)) {
            return UCS_ERR_UNREACHABLE;
        }
    }
    key_p           = new remote_key(key);
    key_p->failure_ = failure;
    if (failure == UCS_OK) {
        key_p->of_ = std::move(of);
    }
    return UCS_OK;
}

ucs_status_t remote_key::open(const wire_key &wire, remote_key *&key_p)
{
    std::shared_ptr<foreign_page> of;
    const ucs_status_t status = find(wire, of);
    if (status == UCS_OK) {
        key_p      = new remote_key(wire);
        key_p->of_ = std::move(of);
    }
    return status;
}

std::strong_ordering remote_key::compare(const remote_key &other) const
{
    const int order = memcmp(&key_, &other.key_, sizeof(key_));
    return (order != 0) ? (order <=> 0) : (failure_ <=> other.failure_);
}

void remote_key::drop()
{
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        delete this;
    }
}

/* Why it cannot be used. */
ucs_status_t remote_key::state() const
{
    if (failure_ != UCS_OK) {
        return failure_;
    }
    if (of_ == nullptr) { /* of this process */
        return own_page::instance()->is_current({key_.cell, key_.stamp})
                   ? UCS_OK
                   : UCS_ERR_CONNECTION_RESET;
    }
    if (of_->is_dead()) {
        return UCS_ERR_ENDPOINT_TIMEOUT;
    }
    return is_over() ? UCS_ERR_CONNECTION_RESET : UCS_OK;
}

ucs_status_t remote_key::check(uint64_t address, size_t length)
{
    if (ucs_unlikely(!is_inside(address, length))) {
        ucs_error("gaudi_ipc: %zu bytes at %#lx of process %u are not in the "
                  "%lu bytes at %#lx that the remote key is for",
                  length, address, key_.process.pid, key_.length, key_.address);
        return UCS_ERR_INVALID_ADDR;
    }
    const ucs_status_t status = state();
    if (ucs_unlikely(status != UCS_OK)) {
        ucs_diag("gaudi_ipc: memory of process %u cannot be used any more: %s",
                 key_.process.pid, ucs_status_string(status));
    }
    return status;
}

hazard_entry *remote_key::make_hazard()
{
    hazard_entry *known = nullptr;
    hazard_entry *fresh =
        own_page::instance()->take_hazard(key_.process.nonce, key_.stamp);
    if (fresh == nullptr) {
        return hazard_.load();
    }
    if (!hazard_.compare_exchange_strong(known, fresh)) {
        own_page::instance()->give_hazard(fresh);
        return known;
    }
    return fresh;
}

ucs_status_t remote_key::hold()
{
    hazard_entry *hazard = hazard_.load(std::memory_order_acquire);
    if (ucs_unlikely(hazard == nullptr)) {
        (void)base::guarded([&] {
            hazard = make_hazard();
            return UCS_OK;
        });
        if (hazard == nullptr) {
            /* Nothing that comes by waiting, as NO_RESOURCE would say. */
            return UCS_ERR_NO_MEMORY;
        }
    }
    references_.fetch_add(1, std::memory_order_relaxed);
    /* Before the cells are looked at: their owner changes them, and looks at
     * this then. */
    hazard->uses.fetch_add(1, std::memory_order_seq_cst);
    const ucs_status_t status = state();
    if (ucs_unlikely(status != UCS_OK)) {
        release();
    }
    return status;
}

void remote_key::release()
{
    hazard_.load(std::memory_order_relaxed)
        ->uses.fetch_sub(1, std::memory_order_release);
    drop();
}

const util::process_memory *remote_key::host()
{
    return (is_host() && of_->has_memory()) ? &of_->process().memory()
                                            : nullptr;
}

const base::route_list &remote_key::routes(const base::card *from)
{
    static constexpr base::route_list by_owner(shim::wire::host);
    if (is_host() && !of_->has_memory()) {
        return by_owner;
    }
    const base::pair_routes *known = routes_.load(std::memory_order_acquire);
    const base::pci_address own =
        (from != nullptr) ? from->address() : base::pci_address::unknown;
    if ((known == nullptr) || (known->from != own)) {
        known =
            &base::find_routes(from, base::pci_address{key_.card}, key_.module);
        routes_.store(known, std::memory_order_release);
    }
    return known->all;
}

int remote_key::connect(const base::owner_queue_options &wished,
                        std::unique_ptr<base::owner_queue> &queue_p)
{
    return copy_client::connect(of_, wished, queue_p);
}

} // namespace gaudi::ipc
