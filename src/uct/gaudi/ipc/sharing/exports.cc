/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/sharing/exports.h"

#include "uct/gaudi/base/cards/routes.h"
#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/process/file_service.h"
#include "uct/gaudi/ipc/serving/copy_server.h"
#include "uct/gaudi/ipc/sharing/invalidation.h"
#include "util/errors.h"
#include "util/process.h"
#include "util/unique_fd.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace gaudi::ipc {

namespace {

/* What this process shows others. */
struct export_side {
    std::mutex lock; /* of registrations and their keys */
    /* Registrations of device memory, which let go of it when it is freed. */
    std::unordered_multimap<const base::device_memory *, exported_memory *>
        by_memory;
};

export_side &exported()
{
    return util::of_this_process<export_side>();
}

/* Wait for what is copied for others by a key that has ended; without the lock:
 * other keys are used meanwhile. */
void await_copies(uint64_t ended)
{
    if (ended != 0) {
        own_page::instance()->await_own_uses(ended);
    }
}

} // namespace

ucs_status_t exported_memory::create(void *address, size_t length, bool quiet,
                                     exported_memory *&memory_p)
{
    using base::memory_map;
    auto &map = memory_map::instance();

    std::unique_ptr<exported_memory> memory(new exported_memory);
    memory->address_        = reinterpret_cast<uintptr_t>(address);
    memory->length_         = length;
    memory->key_.address    = memory->address_;
    memory->key_.length     = length;
    memory->key_.of_message = quiet ? 1 : 0;
    if (!memory_map::is_plausible(address, length)) {
        ucs_log(base::failure_level(quiet),
                "gaudi_ipc: cannot register %zu bytes at %p: they are not in "
                "one address space",
                length, address);
        return UCS_ERR_INVALID_ADDR;
    }
    const own_page *page = own_page::instance();
    if (page == nullptr) {
        return UCS_ERR_NO_RESOURCE;
    }
    if (memory_map::is_device(address)) {
        memory->cards_  = base::card_table::instance().cards();
        memory->device_ = map.register_device(address, length);
        if (memory->device_ == nullptr) {
            const base::refusal why = map.why_not(address, length);
            ucs_log(base::failure_level(quiet),
                    "gaudi_ipc: cannot register %zu bytes at %p: they %s",
                    length, address, why.text);
            return why.status;
        }
    }
    if (memory->device_ != nullptr) {
        export_side &all = exported();
        std::lock_guard<std::mutex> guard(all.lock);
        all.by_memory.emplace(memory->device_, memory.get());
    }
    memory_p = memory.release();
    return UCS_OK;
}

void exported_memory::let_go_of_freed_memory()
{
    base::memory_map::on_end(let_go_of);
}

/* Where ports of others may still write to it, the addresses are not given out
 * again before the driver has had the whole block back. */
void exported_memory::let_go_of(base::device_memory &freed)
{
    export_side &all = exported();
    for (;;) {
        uint64_t ended;
        {
            std::lock_guard<std::mutex> guard(all.lock);
            const auto entry = all.by_memory.find(&freed);
            if (entry == all.by_memory.end()) {
                return;
            }
            exported_memory &memory = *entry->second;
            all.by_memory.erase(entry);
            base::memory_map::instance().deregister_device(
                std::exchange(memory.device_, nullptr));
            memory.freed_ = true;
            ended         = memory.end_key_locked();
        }
        await_copies(ended);
        if (has_users(ended)) {
            freed.exported = true;
        }
    }
}

exported_memory::~exported_memory()
{
    *const_cast<volatile uint64_t *>(&tag_) = 0;
    {
        export_side &all = exported();
        std::lock_guard<std::mutex> guard(all.lock);
        (void)end_key_locked();
        const auto [first, last] = all.by_memory.equal_range(device_);
        const auto own = std::find_if(first, last, [&](const auto &entry) {
            return entry.second == this;
        });
        if (own != last) {
            all.by_memory.erase(own);
        }
    }
    await_copies(ended_);
    if (device_ != nullptr) {
        base::memory_map::instance().deregister_device(device_);
    }
}

bool exported_memory::is_freed() const
{
    const std::lock_guard<std::mutex> guard(exported().lock);
    return freed_;
}

uint64_t exported_memory::end_key()
{
    uint64_t ended;
    {
        std::lock_guard<std::mutex> guard(exported().lock);
        ended = end_key_locked();
    }
    await_copies(ended);
    return ended;
}

uint64_t exported_memory::end_key_locked()
{
    if (mark_.stamp != 0) {
        own_page::instance()->end_cell(mark_);
        ended_ = mark_.stamp;
        mark_  = {};
    }
    return ended_;
}

ucs_status_t exported_memory::pack(void *buffer)
{
    own_page *page = own_page::instance(); /* there since create() */
    std::lock_guard<std::mutex> guard(exported().lock);
    if (freed_) {
        ucs_error("gaudi_ipc: there is no key of %lu bytes at %#lx: they were "
                  "freed",
                  length_, address_);
        return UCS_ERR_INVALID_ADDR;
    }
    if (mark_.stamp == 0) {
        mark_ = page->take_cell(address_, length_);
        if (mark_.stamp == 0) {
            ucs_error("gaudi_ipc: %zu keys are in use, which are all there are "
                      "(release some: ucp_rkey_buffer_release, ucp_mem_unmap)",
                      page->cells());
            return UCS_ERR_NO_RESOURCE;
        }
        key_.machine = own_machine();
        key_.process = own_process();
        key_.page    = page->file();
        key_.stamp   = mark_.stamp;
        key_.cell    = mark_.cell;
        key_.kind    = key_kind::host;
    }
    if (device_ != nullptr) {
        const base::card &owner = *device_->owner;
        key_.kind               = key_kind::device;
        key_.card               = static_cast<uint32_t>(owner.address());
        key_.module             = device_->imported
                                      ? no_module
                                      : static_cast<uint16_t>(owner.device().module_id());
        copy_server::instance().offer();
    } else if ((key_.machine.folder != 0) &&
               base::may_go_over(shim::wire::host)) {
        copy_server::instance().offer(); /* to whom the kernel does not */
    }
    seal_key(key_);
    std::memcpy(buffer, &key_, sizeof(key_));
    return UCS_OK;
}

uint64_t count_keys()
{
    const own_page *page = own_page::instance();
    return (page == nullptr) ? 0 : page->cells();
}

} // namespace gaudi::ipc
