/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/copy/copy_md.h"

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/memory/device_pool.h"
#include "uct/gaudi/base/memory/dmabuf.h"
#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/ucx/memory_events.h"
#include "uct/gaudi/base/ucx/memory_type.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/base/ucx/ucp_settings.h"

namespace gaudi::copy {

namespace {

using base::memory_handle;

base::card_table &cards()
{
    return base::card_table::instance();
}

base::registration_cache &registrations()
{
    return base::registration_cache::instance();
}

} // namespace

ucs_config_field_t memory_domain::config_table[] = {
    {"", "", nullptr, offsetof(config, super),
     UCS_CONFIG_TYPE_TABLE(uct_md_config_table)},

    {"RCACHE", "try",
     "Keep registrations for the next one of the same memory. It needs UCX's\n"
     "memory events (UCX_MEM_EVENTS).\n"
     " y     - the memory domain cannot be opened without\n"
     " try   - go without where it cannot be done\n"
     " n     - each registration is one of its own",
     offsetof(config, registrations.use), UCS_CONFIG_TYPE_TERNARY},

    {"", base::rcache_config_defaults, nullptr,
     offsetof(config, registrations.rcache),
     UCS_CONFIG_TYPE_TABLE(base::rcache_config_table)},

    {"REG_WHOLE_ALLOC", "auto",
     "Whether registering a part of an allocation of device memory registers\n"
     "the whole, so that all parts share one registration.\n"
     " auto  - if the allocation is at most a tenth of its card's memory\n"
     " on    - always\n"
     " off   - never",
     offsetof(config, registrations.whole), UCS_CONFIG_TYPE_ON_OFF_AUTO},

    {nullptr, nullptr, nullptr, 0, {}}};

bool memory_domain::is_available()
{
    return cards().any_card() && base::has_usable_protocols();
}

ucs_status_t memory_domain::open(const config &config,
                                 std::unique_ptr<memory_domain> &domain_p)
{
    auto domain         = std::make_unique<memory_domain>();
    ucs_status_t status = cards().open(domain->cards_);
    if ((status == UCS_OK) || (status == UCS_ERR_BUSY) ||
        (status == UCS_ERR_NO_DEVICE)) {
        status = registrations().open(config.registrations, domain->cards_);
    }
    if (status == UCS_OK) {
        domain_p = std::move(domain);
    }
    return status;
}

void memory_domain::close()
{
    if (registrations().close() && (allocations_ > 0)) {
        ucs_warn("gaudi: %lu allocations were not released",
                 allocations_.load());
    }
}

/* No keys: UCP would register and pack around every eager message, and pointers
 * alone tell cards and addresses here. That host memory can be registered makes
 * UCP's default RMA take this transport for host keys. */
void memory_domain::query(base::md_properties &properties) const
{
    const uint64_t gaudi        = UCS_BIT(base::memory_type());
    properties.allocates        = true;
    properties.registered_types = UCS_BIT(UCS_MEMORY_TYPE_HOST) | gaudi;
    properties.accessed_types   = UCS_BIT(UCS_MEMORY_TYPE_HOST) | gaudi;
    properties.allocated_types  = gaudi;
    properties.detected_types   = gaudi;
    properties.exported_types   = gaudi;
    /* A look-up; without a cache pinning and mapping, measured on the emulator:
     * a card was not at hand. */
    if (registrations().caches_host()) {
        properties.reg_cost = registrations().overhead();
    } else {
        properties.reg_cost          = 16e-6;
        properties.reg_cost_per_byte = 0.06e-9;
    }
    base::find_local_cpus(cards_.empty() ? nullptr : cards_.all().front(),
                          properties.local_cpus);
}

ucs_status_t memory_domain::allocate(size_t &length, void *&address,
                                     ucs_memory_type_t type,
                                     ucs_sys_device_t device, bool quiet,
                                     uct_mem_h &memh_p)
{
    if (type != base::memory_type()) {
        return UCS_ERR_UNSUPPORTED;
    }
    if (cards_.empty()) { /* one may be free by now */
        base::held_cards opened;
        const ucs_status_t status = cards().open(opened);
        if (status != UCS_OK) {
            if (!quiet) {
                cards().explain_missing_card();
            }
            return status;
        }
    }
    base::card *owner = (device == UCS_SYS_DEVICE_ID_UNKNOWN)
                            ? &base::card_for_hint(cards_, address)
                            : cards_.find_open([&](const base::card &card) {
                                  return card.sys_device() == device;
                              });
    if (owner == nullptr) {
        ucs_log(
            base::failure_level(quiet),
            "gaudi_copy: cannot allocate on system device %s: it is no card "
            "that this process has opened",
            ucs_topo_sys_device_get_name(device));
        return UCS_ERR_NO_DEVICE;
    }
    base::device_memory *memory;
    const ucs_status_t status = base::allocate(*owner, length, quiet, memory);
    if (status == UCS_OK) {
        ++allocations_;
        address = reinterpret_cast<void *>(memory->start);
        memh_p  = &memory->allocation;
    }
    return status;
}

ucs_status_t memory_domain::free(uct_mem_h memh)
{
    auto *handle = to_handle<memory_handle>(memh, "mem_free");
    if (handle == nullptr) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (handle->what != memory_handle::kind::allocated) {
        ucs_error("gaudi_copy: registered memory is deregistered, not freed");
        return UCS_ERR_INVALID_PARAM;
    }
    base::memory_map::instance().free(*handle->device);
    --allocations_;
    return UCS_OK;
}

ucs_status_t memory_domain::advise(uct_mem_h memh, void *address, size_t length,
                                   unsigned advice)
{
    const auto *handle = to_handle<memory_handle>(memh, "mem_advise");
    if (handle == nullptr) {
        return UCS_ERR_INVALID_PARAM;
    }
    const bool is_host = (handle->what == memory_handle::kind::host);
    const auto &range =
        is_host ? static_cast<const util::interval_node &>(*handle->host)
                : static_cast<const util::interval_node &>(*handle->device);
    const auto start = reinterpret_cast<uintptr_t>(address);
    if ((start < range.start) || (start > range.end) ||
        (length > range.end - start) ||
        ((advice != UCT_MADV_NORMAL) && (advice != UCT_MADV_WILLNEED))) {
        return UCS_ERR_INVALID_PARAM;
    }
    /* Device memory is always there. What a card cannot map, it stages. */
    if (is_host && (advice == UCT_MADV_WILLNEED)) {
        for (const base::card *card : cards_.all()) {
            uint64_t va;
            (void)handle->host->va_on(*card, va);
        }
    }
    return UCS_OK;
}

ucs_status_t memory_domain::register_memory(void *address, size_t length,
                                            bool quiet, uct_mem_h &memh_p)
{
    memory_handle *handle;
    const ucs_status_t status =
        registrations_.get(address, length, quiet, handle);
    if (status == UCS_OK) {
        memh_p = handle;
    }
    return status;
}

ucs_status_t memory_domain::deregister(uct_mem_h memh, uct_completion_t *)
{
    auto *handle = to_handle<memory_handle>(memh, "mem_dereg");
    if (handle == nullptr) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (handle->what == memory_handle::kind::allocated) {
        ucs_error("gaudi_copy: allocated memory is freed, not deregistered");
        return UCS_ERR_INVALID_PARAM;
    }
    const ucs_status_t status = base::registration_cache::put(*handle);
    if (status != UCS_OK) {
        ucs_error("gaudi_copy: mem_dereg: %p is not registered any more", memh);
    }
    return status;
}

ucs_status_t memory_domain::describe(const void *address, size_t length,
                                     base::memory_description &memory_p)
{
    if (!base::memory_map::is_device(address)) {
        return UCS_ERR_INVALID_ADDR;
    }

    /* A device address that is in no allocation of ours is Gaudi memory all the
     * same: anything else would make UCX touch it with the CPU. */
    const auto start = reinterpret_cast<uintptr_t>(address);
    memory_p         = {base::memory_type(), UCS_SYS_DEVICE_ID_UNKNOWN, start,
                        start + length};
    auto known = base::memory_map::instance().find_device(address, length);
    if (!known.has_value()) {
        cards().note_acquired_cards(base::card_table::patience::none);
        known = base::memory_map::instance().find_device(address, length);
    }
    if (!known.has_value() && cards().has_card_of_ucx()) {
        return UCS_ERR_INVALID_ADDR;
    }
    if (known.has_value()) {
        memory_p.device = known->owner->sys_device();
        if (known->exact) { /* UCP registers the range that it is told */
            registrations().choose_range(*known, memory_p.start, memory_p.end);
        } else { /* other cards may have memory around it */
            known->start = memory_p.start;
            known->end   = memory_p.end;
        }
        base::remember_device_memory(reinterpret_cast<void *>(known->start),
                                     known->end - known->start,
                                     memory_p.device);
    }
    return UCS_OK;
}

ucs_status_t memory_domain::export_dmabuf(const void *address, size_t length,
                                          int &fd_p, size_t &offset_p)
{
    return base::export_dmabuf(address, length, true, fd_p, offset_p);
}

ucs_status_t memory_domain::detect(const void *address,
                                   ucs_memory_type_t &type_p)
{
    if (!base::memory_map::is_device(address)) {
        return UCS_ERR_INVALID_ADDR;
    }
    type_p = base::memory_type();
    return UCS_OK;
}

namespace {

template <std::atomic<uint64_t> base::registration_cache::statistics::*number>
uint64_t statistic()
{
    return registrations().numbers().*number;
}

} // namespace

void memory_domain::add_files(void *object)
{
    using numbers                  = base::registration_cache::statistics;
    const base::vfs_number files[] = {
        {"hits", statistic<&numbers::hits>},
        {"misses", statistic<&numbers::misses>},
        {"evictions", statistic<&numbers::evictions>},
        {"invalidations", statistic<&numbers::invalidations>},
        {"regions", [] { return registrations().regions(); }},
        {"bytes", [] { return registrations().bytes(); }},
    };
    base::add_vfs_numbers(object, "registrations/host", files);
}

} // namespace gaudi::copy
