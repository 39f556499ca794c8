/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/ipc_md.h"

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/ucx/memory_type.h"
#include "uct/gaudi/base/ucx/ucp_settings.h"
#include "uct/gaudi/ipc/service.h"

namespace gaudi::ipc {

ucs_config_field_t memory_domain::config_table[] = {
    {"", "", nullptr, offsetof(config, super),
     UCS_CONFIG_TYPE_TABLE(uct_md_config_table)},

    {"HOST", "auto",
     "Whether messages between host memory of two processes may go by\n"
     "gaudi_ipc. The CPU copies them there, as with UCX's own transports.\n"
     " y     - yes\n"
     " n     - no, those of UCX take them. In UCX 1.16 to 1.18 device memory\n"
     "         is put to host memory of another process by way of them, too.\n"
     "         Without effect before UCX 1.16\n"
     " auto  - n if UCX_TLS of the environment or a file allows a transport\n"
     "         of UCX that reaches other processes on the machine, beside tcp",
     offsetof(config, host), UCS_CONFIG_TYPE_TERNARY_AUTO},

    {nullptr, nullptr, nullptr, 0, {}}};

bool memory_domain::is_available()
{
    return base::card_table::instance().any_card() &&
           base::has_usable_protocols();
}

ucs_status_t memory_domain::open(const config &config,
                                 std::unique_ptr<memory_domain> &domain_p)
{
    auto domain               = std::make_unique<memory_domain>();
    auto &cards               = base::card_table::instance();
    const ucs_status_t status = cards.open(domain->cards_);
    if ((status != UCS_OK) && (status != UCS_ERR_BUSY) &&
        (status != UCS_ERR_NO_DEVICE)) {
        return status;
    }
    if (status != UCS_OK) {
        ucs_debug("gaudi_ipc: this process has no card of its own");
        domain->cards_ = {};
    }
    exported_memory::end_registrations_on_free();
    domain->moves_host_ = base::is_to_move_host(config.host);
    domain->has_card_   = (status == UCS_OK);
    service::instance().open();
    domain_p = std::move(domain);
    return UCS_OK;
}

void memory_domain::close()
{
    service::instance().close();
    if (registrations_ > 0) {
        ucs_warn("gaudi_ipc: %lu registrations were not released",
                 registrations_.load());
    }
}

void memory_domain::query(base::md_properties &properties) const
{
    const uint64_t host  = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    const uint64_t gaudi = UCS_BIT(base::memory_type());
    const bool all       = base::is_to_register_host(moves_host_);

    properties.needs_key        = true;
    properties.registered_types = all ? (host | gaudi) : gaudi;
    /* For all accessed types UCP wants copies within the process, which are
     * gaudi_copy's, which is not there without a card. */
    properties.accessed_types   = (all || has_card_) ? (host | gaudi) : host;
    properties.packed_key_bytes = sizeof(wire_key);
    /* An allocation and a look-up, whatever the length. */
    properties.reg_cost = 200e-9;
    base::find_local_cpus(nullptr, properties.local_cpus);
}

ucs_status_t memory_domain::register_memory(void *address, size_t length,
                                            bool quiet, uct_mem_h &memh_p)
{
    exported_memory *memory = nullptr;
    const ucs_status_t status =
        exported_memory::create(address, length, quiet, memory);
    if (status == UCS_OK) {
        ++registrations_;
        memh_p = memory;
    }
    return status;
}

ucs_status_t memory_domain::deregister(uct_mem_h memh,
                                       uct_completion_t *invalidated)
{
    auto *memory = to_handle<exported_memory>(memh, "mem_dereg");
    if (memory == nullptr) {
        return UCS_ERR_INVALID_PARAM;
    }
    const ucs_status_t ended = memory->end_key(invalidated != nullptr);
    delete memory;
    --registrations_;
    if (invalidated != nullptr) {
        uct_invoke_completion(invalidated, ended);
    }
    return UCS_OK;
}

ucs_status_t memory_domain::pack_key(uct_mem_h memh, void *buffer)
{
    auto *memory = to_handle<exported_memory>(memh, "mkey_pack");
    if (memory == nullptr) {
        return UCS_ERR_INVALID_PARAM;
    }
    return memory->pack(buffer);
}

ucs_status_t memory_domain::unpack_key(const void *buffer, uct_rkey_t &key_p)
{
    remote_key *key           = nullptr;
    const ucs_status_t status = remote_key::unpack(buffer, key);
    key_p                     = reinterpret_cast<uct_rkey_t>(key);
    return status;
}

void memory_domain::release_key(uct_rkey_t key)
{
    remote_key *unpacked = to_remote_key(key);
    if (unpacked != nullptr) {
        unpacked->drop();
    }
}

std::strong_ordering memory_domain::compare_keys(uct_rkey_t first,
                                                 uct_rkey_t second)
{
    const remote_key *one   = to_remote_key(first);
    const remote_key *other = to_remote_key(second);
    return ((one == nullptr) || (other == nullptr)) ? (one <=> other)
                                                    : one->compare(*other);
}

namespace {

uint64_t count_links()
{
    return service::instance().count_links();
}

} // namespace

void memory_domain::add_files(void *object)
{
    const base::vfs_number numbers[] = {{"keys", exported_memory::count_keys},
                                        {"links", count_links}};
    base::add_vfs_numbers(object, "memory", numbers);
}

} // namespace gaudi::ipc
