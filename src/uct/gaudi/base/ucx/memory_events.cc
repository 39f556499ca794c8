/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/memory_events.h"

#include "uct/gaudi/base/ucx/memory_type.h"
#include "uct/gaudi/base/ucx/status.h"

#include <atomic>

namespace gaudi::base {

namespace {

collect_allocations collect = nullptr;

std::atomic<bool> has_memory{false}; /* some was announced */
std::atomic<void (*)()> waiting{nullptr};

void call_waiting()
{
    if (const auto call = waiting.exchange(nullptr)) {
        call();
    }
}

template <typename Event = ucm_event_t>
Event make_event(void *address, size_t length, ucs_memory_type_t type)
{
    Event event{};
    event.mem_type.address  = address;
    event.mem_type.size     = length;
    event.mem_type.mem_type = type;
    if constexpr (requires { event.mem_type.sys_dev; }) { /* from 1.22 on */
        event.mem_type.sys_dev = UCS_SYS_DEVICE_ID_UNKNOWN;
    }
    return event;
}

/* From 1.22 on UCX keeps flags with the type. Device memory can be registered,
 * as host memory can, whose flags these are. */
template <typename Info = ucs_memory_info_t, typename... Flags>
void update_cache(void (*update)(const void *, size_t, ucs_memory_type_t,
                                 ucs_sys_device_t, Flags...),
                  const void *address, size_t length, ucs_sys_device_t device)
{
    if constexpr (sizeof...(Flags) == 0) {
        update(address, length, memory_type(), device);
    } else {
        Info host;
        ucs_memory_info_set_host(&host);
        update(address, length, memory_type(), device, host.mem_flags);
    }
}

/* The type is "unknown" on purpose: UCX then asks mem_query once, which knows
 * the rest, too. */
ucm_event_t make_allocation(void *address, size_t length)
{
    return make_event(address, length, UCS_MEMORY_TYPE_UNKNOWN);
}

void dispatch(ucm_event_type_t type, ucm_event_t event)
{
    ucm_event_enter();
    ucm_event_dispatch(type, &event);
    ucm_event_leave();
}

ucs_status_t install(int) noexcept
{
    return UCS_OK; /* every allocation is announced, there is no hook to set */
}

void report_existing(ucm_event_handler_t *handler) noexcept
{
    /* Collected first: the handler may allocate, and so call into UCM. */
    std::vector<std::pair<void *, size_t>> allocations;
    ucs_status_t status = guarded([&] {
        collect(allocations);
        return UCS_OK;
    });
    if (status != UCS_OK) {
        return;
    }
    for (const auto &[address, length] : allocations) {
        ucm_event_t event = make_allocation(address, length);
        handler->cb(UCM_EVENT_MEM_TYPE_ALLOC, &event, handler->arg);
    }
}

ucm_event_installer_t installer = {install, report_existing, {}};

} // namespace

void init_memory_events(collect_allocations collecting)
{
    collect = collecting;
    ucs_list_add_head(&ucm_event_installer_list, &installer.list);
}

void announce_allocation(void *address, size_t length)
{
    dispatch(UCM_EVENT_MEM_TYPE_ALLOC, make_allocation(address, length));
    has_memory = true;
    call_waiting();
}

bool when_there_is_memory(void (*call)())
{
    waiting = call;
    if (!has_memory) {
        return false;
    }
    call_waiting();
    return true;
}

void announce_free(void *address, size_t length)
{
    dispatch(UCM_EVENT_MEM_TYPE_FREE,
             make_event(address, length, memory_type()));
}

void remember_device_memory(void *address, size_t length,
                            ucs_sys_device_t device)
{
    update_cache(ucs_memtype_cache_update, address, length, device);
}

} // namespace gaudi::base
