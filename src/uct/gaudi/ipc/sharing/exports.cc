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
    std::atomic<uint64_t> buffers{0};
    std::atomic<uint64_t> made{0};
};

export_side &exported()
{
    return util::of_this_process<export_side>();
}

/* Whether memory can never be exported. Then UCP is to go other ways; after
 * any other failure these would fail, too, or touch device memory with the CPU.
 */
bool is_final(int error)
{
    return error == -EOPNOTSUPP;
}

/* Wait for what is copied for others by a key that has ended; without the lock:
 * other keys are used meanwhile. */
void await_copies(uint64_t ended)
{
    if (ended != 0) {
        own_page::instance()->await_own_uses(ended);
        copy_server::instance().key_ended();
    }
}

/* The dma-bufs of what the driver mapped in one piece. None is kept: who wants
 * a part gets one, and keeps what it imports. */
class buffer_export final : public base::backing_export {
public:
    explicit buffer_export(const base::device_backing &backing)
        : backing_(backing)
    {}

    ~buffer_export() override
    {
        if (mark_.stamp == 0) {
            return;
        }
        own_page &page = *own_page::instance();
        page.end_cell(mark_);
        file_service::remove(file_);
        --exported().buffers;
        /* The driver does not unmap what others have mapped. They look at cells
         * when they make progress; who does not is told. */
        page.tell_withdrawal();
    }

    /* @return 0 when others can get dma-bufs, or -errno. */
    int make(own_page &page)
    {
        if ((mark_.stamp != 0) || (refused_ != 0)) {
            return refused_;
        }
        util::unique_fd tried;
        const int error = export_part(first_part(), tried);
        if (error != 0) {
            ucs_debug("%s: %lu bytes at %#lx cannot be exported: %s",
                      backing_.owner.name().c_str(), backing_.size, backing_.va,
                      std::strerror(-error));
            refused_ = is_final(error) ? error : 0;
            return error;
        }
        file_offer offer;
        offer.open = [this](const file_part &part, util::unique_fd &fd_p) {
            return open(part, fd_p);
        };
        if (file_service::add(std::move(offer), file_) != UCS_OK) {
            return -ENOMEM;
        }
        mark_ = page.take_cell(own_page::cell_user::buffer, backing_.va,
                               backing_.size);
        if (mark_.stamp == 0) {
            file_service::remove(file_);
            return -ENOMEM;
        }
        ++exported().buffers;
        return 0;
    }

    void describe(wire_key &key) const
    {
        key.buffer = {mark_.stamp, backing_.va, backing_.size,
                      file_,       mark_.cell,  backing_.exports_parts()};
    }

private:
    [[nodiscard]] file_part first_part() const
    {
        return {0, backing_.exports_parts()
                       ? std::min(backing_.size, base::window_grain)
                       : backing_.size};
    }

    [[nodiscard]] int export_part(const file_part &part,
                                  util::unique_fd &fd_p) const
    {
        if (backing_.owner.is_lost()) {
            return -ENODEV;
        }
        int fd          = -1;
        const int error = backing_.owner.device().export_dmabuf(
            backing_.va, part.offset, part.size, fd);
        if (error == 0) {
            fd_p.reset(fd);
            ++exported().made;
        }
        return error;
    }

    /* For another process, which may say anything. */
    ucs_status_t open(const file_part &part, util::unique_fd &fd_p) const
    {
        const uint64_t unit =
            backing_.exports_parts() ? shim::dmabuf_page() : backing_.size;
        if ((part.size == 0) || (part.size > backing_.size) ||
            (part.offset > backing_.size - part.size) ||
            (part.offset % unit != 0) || (part.size % unit != 0)) {
            ucs_debug("gaudi_ipc: another process asks for %lu bytes at offset "
                      "%lu of %lu bytes of device memory",
                      part.size, part.offset, backing_.size);
            return UCS_ERR_INVALID_PARAM;
        }
        const int error = export_part(part, fd_p);
        return util::may_pass(-error) ? UCS_ERR_NO_RESOURCE
               : (error == 0)         ? UCS_OK
                                      : UCS_ERR_NO_ELEM;
    }

    const base::device_backing &backing_;
    int refused_ = 0;
    own_page::mark mark_;
    file_ref file_ = {};
};

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
        const int error = quiet ? memory->describe_buffer(*page) : 0;
        if ((error != 0) && !base::may_go_over(shim::wire::host)) {
            ucs_diag("gaudi_ipc: cannot register %zu bytes at %p: they cannot "
                     "be exported now: %s",
                     length, address, std::strerror(-error));
            return UCS_ERR_NO_RESOURCE;
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

/* Where others may still be using it, the addresses are not given out again
 * before the driver has had the whole block back, which it takes when nobody
 * has it imported. */
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
        mark_ = page->take_cell(own_page::cell_user::key, address_, length_);
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
        const int error = describe_buffer(*page);
        if (error != 0) {
            const bool by_us = base::may_go_over(shim::wire::host);
            ucs_log(by_us ? UCS_LOG_LEVEL_DIAG : UCS_LOG_LEVEL_ERROR,
                    "gaudi_ipc: %lu bytes at %#lx cannot be exported now: %s; "
                    "others %s with this key",
                    length_, address_, std::strerror(-error),
                    by_us ? "reach them through host memory alone"
                          : "cannot use them");
        }
        key_.kind = (error == 0) ? key_kind::device : key_kind::unexported;
        const shim::card &owner = device_->owner->device();
        key_.module             = device_->imported
                                      ? no_module
                                      : static_cast<uint16_t>(owner.module_id());
        key_.card        = static_cast<uint32_t>(device_->owner->address());
        key_.wants_flush = owner.capabilities().answers_early ? 1 : 0;
        if (base::may_go_over(shim::wire::host) ||
            base::may_go_over(shim::wire::ports) || (key_.wants_flush != 0)) {
            copy_server::instance().offer();
        }
    } else {
        name_mapping_card();
        if ((key_.card != 0) || ((key_.machine.folder != 0) &&
                                 base::may_go_over(shim::wire::host))) {
            copy_server::instance().offer(); /* to whom the kernel does not */
        }
    }
    seal_key(key_);
    std::memcpy(buffer, &key_, sizeof(key_));
    return UCS_OK;
}

/* Host memory: our first card maps it for those that its ports lead to. */
void exported_memory::name_mapping_card()
{
    const base::held_cards cards = base::card_table::instance().cards();
    const base::card *first      = cards.first();
    if ((first != nullptr) && base::may_go_over(shim::wire::ports)) {
        key_.module = static_cast<uint16_t>(first->device().module_id());
        key_.card   = static_cast<uint32_t>(first->address());
    }
}

/* The dma-buf can have gone since the last time, though not the registration:
 * the application asked the driver to unmap what others still had.
 * @return 0, also of what can never be exported; or -errno. */
int exported_memory::describe_buffer(const own_page &page)
{
    if (page.is_current({key_.buffer.cell, key_.buffer.stamp}) ||
        (device_->backing == nullptr) || !base::may_go_over(shim::wire::pcie)) {
        return 0;
    }
    int error   = 0;
    key_.buffer = {};
    device_->backing->with_export(
        [](const base::device_backing &backing) {
            return std::make_unique<buffer_export>(backing);
        },
        [&](base::backing_export &kept) {
            auto &made = static_cast<buffer_export &>(kept);
            error      = made.make(*own_page::instance());
            if (error != 0) {
                return;
            }
            made.describe(key_);
            /* UCP rounds registrations up beyond what was allocated. */
            const uint64_t end = key_.buffer.address + key_.buffer.size;
            key_.length        = std::min(length_, end - address_);
        });
    return is_final(error) ? 0 : error;
}

export_statistics statistics_of_exports()
{
    const own_page *page   = own_page::instance();
    const uint64_t buffers = exported().buffers;
    const uint64_t cells   = (page == nullptr) ? 0 : page->cells();
    return {cells - buffers, buffers, exported().made};
}

} // namespace gaudi::ipc
