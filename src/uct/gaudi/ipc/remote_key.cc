/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/remote_key.h"

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/ucx/ucp_settings.h"
#include "uct/gaudi/ipc/exports.h"
#include "util/process.h"

#include <mutex>
#include <unordered_map>

namespace gaudi::ipc {

namespace {

/* Keys of memory that ports may write to, which owners revoke. */
struct revocable_keys {
    std::mutex lock;
    std::unordered_multimap<uint64_t, remote_key *> by_word;
};

revocable_keys &revocable()
{
    return util::of_this_process<revocable_keys>();
}

/* The ways from a process without a card, or to host memory. */
const base::route_list &ways_by_owner()
{
    static constexpr base::route_list host(shim::wire::host);
    static constexpr base::route_list none;
    return base::may_go_over(shim::wire::host) ? host : none;
}

} // namespace

remote_key::~remote_key()
{
    if (!is_listed_) {
        return;
    }
    revocable_keys &keys = revocable();
    const std::lock_guard<std::mutex> guard(keys.lock);
    auto [at, end] = keys.by_word.equal_range(key_.word);
    while ((at != end) && (at->second != this)) {
        ++at;
    }
    if (at != end) {
        keys.by_word.erase(at);
    }
}

ucs_status_t remote_key::unpack(const void *buffer, remote_key *&key_p)
{
    wire_key key;
    const ucs_status_t status = read_key(buffer, key);
    if (status != UCS_OK) {
        return status;
    }
    if (key.process == util::process_identity()) {
        key_p          = new remote_key(key);
        key_p->is_own_ = true;
        return UCS_OK;
    }
    const base::held_cards cards = base::card_table::instance().cards();
    std::unique_ptr<remote_key, void (*)(remote_key *)> made(
        new remote_key(key), [](remote_key *unused) { unused->drop(); });
    const base::route_list &ways = made->routes(cards.first());
    if (ways.begin() == ways.end()) {
        ucs_debug("gaudi_ipc: no way leads to memory of process %u", key.pid);
        /* With the old protocols UCP would touch device memory by its owner's
         * CPU. Messages have other ways. */
        if ((key.kind == key_kind::host) || (key.of_message != 0) ||
            base::has_new_protocols()) {
            return UCS_ERR_UNREACHABLE;
        }
        ucs_error("gaudi_ipc: memory of process %u cannot be reached from "
                  "here: put and get by this remote key will fail "
                  "(UCX_PROTO_ENABLE=y stages them)",
                  key.pid);
        made->failure_ = UCS_ERR_IO_ERROR;
    }
    if ((key.kind == key_kind::device) && (key.module != no_module)) {
        revocable_keys &keys = revocable();
        const std::lock_guard<std::mutex> guard(keys.lock);
        keys.by_word.emplace(key.word, made.get());
        made->is_listed_ = true;
    }
    key_p = made.release();
    return UCS_OK;
}

void remote_key::drop()
{
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        delete this;
    }
}

ucs_status_t remote_key::state() const
{
    if (is_own_) {
        return exported_memory::is_valid_key(key_.word)
                   ? UCS_OK
                   : UCS_ERR_CONNECTION_RESET;
    }
    return (failure_ != UCS_OK) ? failure_
           : revoked_.load()    ? UCS_ERR_CONNECTION_RESET
                                : UCS_OK;
}

ucs_status_t remote_key::check(uint64_t address, size_t length)
{
    if (ucs_unlikely((address < key_.address) || (length > key_.length) ||
                     (address - key_.address > key_.length - length))) {
        ucs_error("gaudi_ipc: %zu bytes at %#lx of process %u are not in the "
                  "%lu bytes at %#lx that the remote key is for",
                  length, address, key_.pid, key_.length, key_.address);
        return UCS_ERR_INVALID_ADDR;
    }
    return state();
}

ucs_status_t remote_key::hold()
{
    references_.fetch_add(1, std::memory_order_relaxed);
    /* Before the look: who revokes the key sets that, and looks at this then.
     */
    uses_.fetch_add(1);
    const ucs_status_t status = state();
    if (ucs_unlikely(status != UCS_OK)) {
        release();
    }
    return status;
}

void remote_key::release()
{
    uses_.fetch_sub(1, std::memory_order_release);
    drop();
}

bool remote_key::revoke(uint64_t process, uint64_t word)
{
    revocable_keys &keys = revocable();
    const std::lock_guard<std::mutex> guard(keys.lock);
    bool is_used         = false;
    const auto [at, end] = keys.by_word.equal_range(word);
    for (auto each = at; each != end; ++each) {
        remote_key &key = *each->second;
        if (key.key_.process == process) {
            key.revoked_.store(true);
            is_used |= (key.uses_.load() > 0);
        }
    }
    return is_used;
}

const base::route_list &remote_key::routes(const base::card *from)
{
    if (is_host()) {
        return ways_by_owner();
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

} // namespace gaudi::ipc
