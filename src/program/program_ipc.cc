/* SPDX-License-Identifier: BSD-3-Clause */
#include "program/program_ipc.h"

#include "hlthunk_shim/card.h"
#include "program/program_memory.h"
#include "program/ucx_gaudi.h"
#include "uct/gaudi/ipc/sharing/invalidation.h"
#include "util/addresses.h"

#include <cstring>
#include <iterator>

namespace gaudi {

namespace {

/* Of what is opened. A page before each range keeps it apart. */
constexpr uint64_t address_bytes = uint64_t{1} << 48;
constexpr uint64_t page          = 4096;

uint64_t occupied(size_t length)
{
    return util::round_up(length, page) + page;
}

} // namespace

program_ipc::program_ipc()
{
    addresses_.add(shim::unreachable_memory + page, address_bytes - page);
}

void program_ipc::forget_freed_locked()
{
    const size_t freed = std::erase_if(exports_, [](const auto &each) {
        return each.second.memory->is_freed();
    });
    program_memory::instance().count(program_memory::use::ipc_export,
                                     -static_cast<int>(freed));
}

void program_ipc::forget_freed()
{
    const std::lock_guard<std::mutex> guard(lock_);
    forget_freed_locked();
}

ucs_status_t program_ipc::export_memory(void *address, size_t length,
                                        ipc::handle_image &handle_p)
{
    const std::lock_guard<std::mutex> guard(lock_);
    forget_freed_locked(); /* the addresses may be those of other memory now */
    const std::pair<uint64_t, size_t> name{reinterpret_cast<uintptr_t>(address),
                                           length};
    const auto known    = exports_.find(name);
    const bool is_fresh = (known == exports_.end());
    exported &entry     = is_fresh ? exports_[name] : known->second;
    ucs_status_t status = base::guarded([&] {
        ipc::exported_memory *created = nullptr;
        ucs_status_t result           = UCS_OK;
        if (is_fresh) {
            result =
                ipc::exported_memory::create(address, length, false, created);
            entry.memory.reset(created);
        }
        ipc::wire_key key;
        if (result == UCS_OK) {
            result = entry.memory->pack(&key);
        }
        /* The block around it may have got another dma-buf. */
        if ((result == UCS_OK) && (is_fresh || (key != entry.key.key()))) {
            result = entry.key.offer(key);
        }
        return result;
    });
    if (status != UCS_OK) {
        if (is_fresh) {
            exports_.erase(name);
        }
        return status;
    }
    if (is_fresh) {
        program_memory::instance().count(program_memory::use::ipc_export, 1);
    }
    ++entry.users;
    handle_p = entry.key.handle();
    return UCS_OK;
}

ucs_status_t program_ipc::withdraw(void *address, size_t length)
{
    decltype(exports_)::node_type ended; /* goes without the lock */
    {
        const std::lock_guard<std::mutex> guard(lock_);
        const auto known =
            exports_.find({reinterpret_cast<uintptr_t>(address), length});
        if (known == exports_.end()) {
            ucs_error("gaudi: %zu bytes at %p are not exported", length,
                      address);
            return UCS_ERR_INVALID_ADDR;
        }
        if (--known->second.users > 0) {
            return UCS_OK;
        }
        ended = exports_.extract(known);
        program_memory::instance().count(program_memory::use::ipc_export, -1);
    }
    const uint64_t stamp = ended.mapped().memory->end_key();
    return (stamp == 0) ? UCS_OK : ipc::await_users(stamp);
}

ucs_status_t program_ipc::open(const ipc::wire_key &wire, opened_ptr &opened_p)
{
    if (wire.length > address_bytes - 2 * page) {
        ucs_error(
            "gaudi: %lu bytes of process %u cannot be opened: there are no "
            "addresses left",
            wire.length, wire.process.pid);
        return UCS_ERR_NO_MEMORY;
    }
    ipc::remote_key *key;
    const ucs_status_t status = ipc::remote_key::open(wire, key);
    if (status != UCS_OK) {
        ucs_error("gaudi: %lu bytes of process %u cannot be opened: %s",
                  wire.length, wire.process.pid,
                  (status == UCS_ERR_UNSUPPORTED)
                      ? "no card of this process reaches them"
                      : ucs_status_string(status));
        return status;
    }
    auto opened =
        std::make_shared<opened_memory>(*key, wire.address, wire.length);
    const std::lock_guard<std::mutex> guard(lock_);
    opened->here = addresses_.allocate(occupied(wire.length));
    if (opened->here == 0) {
        ucs_error("gaudi: %lu bytes of process %u cannot be opened: there are "
                  "no addresses left",
                  wire.length, wire.process.pid);
        return UCS_ERR_NO_MEMORY;
    }
    try {
        opened_.emplace(opened->here, opened);
    } catch (...) {
        addresses_.release(opened->here, occupied(wire.length));
        throw;
    }
    program_memory::instance().count(program_memory::use::import, 1);
    opened_p = std::move(opened);
    return UCS_OK;
}

ucs_status_t program_ipc::close(uint64_t address)
{
    decltype(opened_)::node_type closed; /* goes without the lock */
    const std::lock_guard<std::mutex> guard(lock_);
    closed = opened_.extract(address);
    if (closed.empty()) {
        return UCS_ERR_INVALID_ADDR;
    }
    addresses_.release(address, occupied(closed.mapped()->length));
    program_memory::instance().count(program_memory::use::import, -1);
    return UCS_OK;
}

opened_ptr program_ipc::find(const void *address, size_t length)
{
    const auto start = reinterpret_cast<uintptr_t>(address);
    if (start - shim::unreachable_memory >= address_bytes) {
        return nullptr;
    }
    const std::lock_guard<std::mutex> guard(lock_);
    auto at = opened_.upper_bound(start);
    if (at == opened_.begin()) {
        return nullptr;
    }
    const auto &found = std::prev(at)->second;
    return ((start - found->here <= found->length) &&
            (length <= found->length - (start - found->here)))
               ? found
               : nullptr;
}

} // namespace gaudi

namespace {

using gaudi::opened_ptr;
using gaudi::program_ipc;
using gaudi::program_memory;

static_assert(sizeof(ucx_gaudi_ipc_handle_t) == gaudi::ipc::handle_bytes);

} // namespace

ucs_status_t ucx_gaudi_ipc_export(void *address, size_t length,
                                  ucx_gaudi_ipc_handle_t *handle_p)
{
    if ((address == nullptr) || (handle_p == nullptr)) {
        return gaudi::refuse_null(__func__);
    }
    if (length == 0) {
        ucs_error("gaudi: cannot export 0 bytes");
        return UCS_ERR_INVALID_PARAM;
    }
    const auto nothing = [] { return UCS_OK; };
    return program_memory::call_with_ipc(nothing, [&] {
        gaudi::ipc::handle_image handle;
        const ucs_status_t status =
            program_ipc::instance().export_memory(address, length, handle);
        if (status == UCS_OK) {
            std::memcpy(handle_p, handle.data(), handle.size());
            ucs_info("gaudi: exported %zu bytes at %p", length, address);
        }
        return status;
    });
}

ucs_status_t ucx_gaudi_ipc_withdraw(void *address, size_t length)
{
    if (address == nullptr) {
        return UCS_OK;
    }
    return program_memory::call([&](const auto &...) {
        const ucs_status_t status =
            program_ipc::instance().withdraw(address, length);
        if (status == UCS_OK) {
            ucs_info("gaudi: withdrew %zu bytes at %p", length, address);
        }
        return status;
    });
}

ucs_status_t ucx_gaudi_ipc_open(const ucx_gaudi_ipc_handle_t *handle,
                                void **address_p, size_t *length_p)
{
    if ((handle == nullptr) || (address_p == nullptr)) {
        return gaudi::refuse_null(__func__);
    }
    gaudi::ipc::handle_image image;
    std::memcpy(image.data(), handle, image.size());
    gaudi::ipc::wire_key key;
    const auto fetch = [&] { return gaudi::ipc::fetch_key(image, key); };
    return program_memory::call_with_ipc(fetch, [&] {
        opened_ptr opened;
        const ucs_status_t status = program_ipc::instance().open(key, opened);
        if (status == UCS_OK) {
            *address_p = reinterpret_cast<void *>(opened->here);
            if (length_p != nullptr) {
                *length_p = opened->length;
            }
            ucs_info("gaudi: opened %zu bytes of process %u, at %p",
                     opened->length, opened->key->process().pid, *address_p);
        }
        return status;
    });
}

ucs_status_t ucx_gaudi_ipc_close(void *address)
{
    if (address == nullptr) {
        return UCS_OK;
    }
    return program_memory::call([&](const auto &...) {
        const ucs_status_t status =
            program_ipc::instance().close(reinterpret_cast<uintptr_t>(address));
        if (status != UCS_OK) {
            ucs_error("gaudi: %p cannot be closed: ucx_gaudi_ipc_open of this "
                      "process did not give this address, or it is closed",
                      address);
        } else {
            ucs_info("gaudi: closed %p", address);
        }
        return status;
    });
}
