/* SPDX-License-Identifier: BSD-3-Clause */
#include "program/program_ipc.h"

#include "hlthunk_shim/card.h"
#include "program/program_memory.h"
#include "program/ucx_gaudi.h"
#include "uct/gaudi/ipc/link.h"
#include "util/addresses.h"

#include <cstring>
#include <iterator>

namespace gaudi {

namespace {

/* Of what is opened. A page before each range keeps it apart. */
constexpr uint64_t address_bytes = uint64_t{1} << 48;
constexpr uint64_t page          = 4096;

/* How long a process may take to say that its memory can be used, seconds. */
constexpr double open_timeout_s = 10;

/* Of a link of an engine. */
constexpr ipc::link_options link_sizes{65536, 32};

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

ucs_status_t opened_memory::find_peer(base::transfer_engine &engine,
                                      base::remote_peer *&peer_p) const
{
    std::erase_if(engine.peers, [&](const auto &each) {
        const bool is_over = each.second->is_over();
        if (is_over) {
            engine.release(*each.second);
        }
        return is_over;
    });
    auto known = engine.peers.find(key->process());
    if (known == engine.peers.end()) {
        auto wakes = std::make_shared<ipc::event>();
        std::shared_ptr<ipc::link> made;
        const ucs_status_t status =
            (wakes->fd() < 0) ? UCS_ERR_NO_RESOURCE
                              : ipc::link::open({key->process(), 0, key->pid()},
                                                link_sizes, wakes, made);
        if (status != UCS_OK) {
            const bool is_gone = (status == UCS_ERR_UNREACHABLE);
            ucs_error("gaudi: memory of process %u cannot be reached: %s",
                      key->pid(),
                      is_gone ? "it has ended" : ucs_status_string(status));
            return is_gone ? UCS_ERR_ENDPOINT_TIMEOUT : status;
        }
        known = engine.peers.emplace(key->process(), std::move(made)).first;
    }
    peer_p = known->second.get();
    return UCS_OK;
}

ucs_status_t program_ipc::export_memory(void *address, size_t length,
                                        ipc::wire_key &handle_p)
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
        return (result == UCS_OK) ? entry.memory->pack(&handle_p) : result;
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
    return ended.mapped().memory->end_key(true);
}

ucs_status_t program_ipc::open(std::shared_ptr<opened_memory> opened)
{
    ipc::remote_key &key = *opened->key;
    const auto no_space  = [&] {
        ucs_error("gaudi: %lu bytes of process %u cannot be opened: there are "
                    "no addresses left",
                   key.length(), key.pid());
        return UCS_ERR_NO_MEMORY;
    };
    if (key.length() > address_bytes - 2 * page) {
        return no_space();
    }
    bool was_asked            = false;
    const ucs_status_t status = program_memory::call_with_engine(
        false, [&](base::transfer_engine &engine) {
            base::remote_peer *peer;
            const ucs_status_t found = opened->find_peer(engine, peer);
            was_asked                = (found == UCS_OK);
            return was_asked ? engine.check_at(key, *peer, open_timeout_s)
                             : found;
        });
    if (!was_asked) {
        return status;
    }
    if (status != UCS_OK) {
        ucs_error("gaudi: %lu bytes cannot be opened: process %u %s",
                  key.length(), key.pid(),
                  (status == UCS_ERR_CONNECTION_RESET)
                      ? "does not share the memory any more"
                  : (status == UCS_ERR_TIMED_OUT)        ? "does not answer"
                  : (status == UCS_ERR_ENDPOINT_TIMEOUT) ? "has ended"
                                                         : "is out of reach");
        return status;
    }
    const std::lock_guard<std::mutex> guard(lock_);
    opened->here = addresses_.allocate(occupied(key.length()));
    if (opened->here == 0) {
        return no_space();
    }
    try {
        opened_.emplace(opened->here, opened);
    } catch (...) {
        addresses_.release(opened->here, occupied(key.length()));
        throw;
    }
    program_memory::instance().count(program_memory::use::import, 1);
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
    addresses_.release(address, occupied(closed.mapped()->key->length()));
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
    const size_t all  = found->key->length();
    return ((start - found->here <= all) &&
            (length <= all - (start - found->here)))
               ? found
               : nullptr;
}

} // namespace gaudi

namespace {

using gaudi::opened_ptr;
using gaudi::program_ipc;
using gaudi::program_memory;

static_assert(sizeof(ucx_gaudi_ipc_handle_t) == sizeof(gaudi::ipc::wire_key));

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
        gaudi::ipc::wire_key handle;
        const ucs_status_t status =
            program_ipc::instance().export_memory(address, length, handle);
        if (status == UCS_OK) {
            std::memcpy(handle_p, &handle, sizeof(handle));
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
    std::shared_ptr<gaudi::opened_memory> opened;
    const auto unpack = [&] {
        gaudi::ipc::wire_key wire;
        std::memcpy(&wire, handle, sizeof(wire));
        if (!gaudi::ipc::is_sealed(wire)) {
            ucs_error("gaudi: an IPC handle cannot be opened: it is none, or "
                      "was changed on its way");
            return UCS_ERR_INVALID_PARAM;
        }
        gaudi::ipc::remote_key *key = nullptr;
        const ucs_status_t status = gaudi::ipc::remote_key::unpack(&wire, key);
        if (status == UCS_ERR_UNREACHABLE) {
            ucs_error("gaudi: an IPC handle cannot be opened: process %u is of "
                      "another machine, box, namespace or user, or no way "
                      "leads to its memory",
                      wire.pid);
        }
        if (status != UCS_OK) {
            return status;
        }
        opened = std::make_shared<gaudi::opened_memory>(*key);
        if (key->is_own()) {
            ucs_error("gaudi: an IPC handle cannot be opened: this process "
                      "has the memory itself");
            return UCS_ERR_INVALID_PARAM;
        }
        return UCS_OK;
    };
    return program_memory::call_with_ipc(unpack, [&] {
        const ucs_status_t status = program_ipc::instance().open(opened);
        if (status == UCS_OK) {
            *address_p = reinterpret_cast<void *>(opened->here);
            if (length_p != nullptr) {
                *length_p = opened->key->length();
            }
            ucs_info("gaudi: opened %zu bytes of process %u, at %p",
                     opened->key->length(), opened->key->pid(), *address_p);
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
