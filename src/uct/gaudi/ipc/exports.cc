/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/exports.h"

#include "uct/gaudi/base/cards/routes.h"
#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/service_calls.h"
#include "util/process.h"

#include <array>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <sys/random.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

/* What this process shows others. */
struct export_table {
    std::mutex lock;
    std::condition_variable unused; /* a key that has ended is */
    std::unordered_map<uint64_t, exported_memory *> by_word;
    std::unordered_multimap<const base::device_memory *, exported_memory *>
        by_memory;
    const uint32_t pid = static_cast<uint32_t>(getpid());

    /* The kernel is asked for many at a time: messages need a key each.
     * @return 0: it gives none. */
    [[nodiscard]] uint64_t random_word();

private:
    /* As many bytes as getrandom gives at once. */
    std::array<uint64_t, 256 / sizeof(uint64_t)> words_;
    size_t unused_words_ = 0;
};

uint64_t export_table::random_word()
{
    uint64_t word = 0;
    while (word == 0) {
        if (unused_words_ == 0) {
            if (getrandom(words_.data(), sizeof(words_), 0) != sizeof(words_)) {
                break;
            }
            unused_words_ = words_.size();
        }
        word = std::exchange(words_[--unused_words_], 0);
    }
    return word;
}

export_table &table()
{
    return util::of_this_process<export_table>();
}

using table_lock = std::unique_lock<std::mutex>;

} // namespace

ucs_status_t exported_memory::create(void *address, size_t length, bool quiet,
                                     exported_memory *&memory_p)
{
    using base::memory_map;
    std::unique_ptr<exported_memory> memory(new exported_memory);
    wire_key &key  = memory->key_;
    key.address    = reinterpret_cast<uintptr_t>(address);
    key.length     = length;
    key.of_message = quiet ? 1 : 0;
    if (!memory_map::is_plausible(address, length)) {
        ucs_log(base::failure_level(quiet),
                "gaudi_ipc: cannot register %zu bytes at %p: they are not in "
                "one address space",
                length, address);
        return UCS_ERR_INVALID_ADDR;
    }
    /* Here, since UCP ends the process when a key cannot be packed. */
    const ucs_status_t started = service_calls::instance().start();
    if (started != UCS_OK) {
        return started;
    }
    if (memory_map::is_device(address)) {
        auto &map       = memory_map::instance();
        memory->cards_  = base::card_table::instance().cards();
        memory->device_ = map.register_device(address, length);
        if (memory->device_ == nullptr) {
            const base::refusal why = map.why_not(address, length);
            ucs_log(base::failure_level(quiet),
                    "gaudi_ipc: cannot register %zu bytes at %p: they %s",
                    length, address, why.text);
            return why.status;
        }
        export_table &all = table();
        const table_lock locked(all.lock);
        all.by_memory.emplace(memory->device_, memory.get());
    }
    memory_p = memory.release();
    return UCS_OK;
}

void exported_memory::end_registrations_on_free()
{
    base::memory_map::on_end(end_registrations);
}

/* Where a peer's ports may still write to it, the addresses are not given out
 * again before the driver has had the whole block back. */
void exported_memory::end_registrations(base::device_memory &freed)
{
    export_table &all = table();
    for (;;) {
        uint64_t word = 0;
        {
            table_lock locked(all.lock);
            const auto entry = all.by_memory.find(&freed);
            if (entry == all.by_memory.end()) {
                return;
            }
            exported_memory &memory = *entry->second;
            if (memory.ending_) { /* its key, by another thread */
                all.unused.wait(locked);
                continue;
            }
            all.by_memory.erase(entry);
            base::memory_map::instance().deregister_device(
                std::exchange(memory.device_, nullptr));
            memory.freed_ = true;
            if (memory.remove_key()) {
                word           = memory.key_.word;
                memory.ending_ = true;
                all.unused.wait(locked, [&] { return memory.uses_ == 0; });
                memory.ending_ = false;
                all.unused.notify_all();
            }
        }
        if ((word != 0) &&
            !service_calls::instance().revoke_at_peers(word, false)) {
            freed.exported = true;
        }
    }
}

exported_memory::~exported_memory()
{
    *const_cast<volatile uint64_t *>(&tag_) = 0;
    (void)end_key(false);
    base::device_memory *device;
    {
        export_table &all = table();
        const table_lock locked(all.lock);
        device         = std::exchange(device_, nullptr);
        auto [at, end] = all.by_memory.equal_range(device);
        while ((at != end) && (at->second != this)) {
            ++at;
        }
        if (at != end) {
            all.by_memory.erase(at);
        }
    }
    if (device != nullptr) {
        base::memory_map::instance().deregister_device(device);
    }
}

bool exported_memory::is_freed() const
{
    const table_lock locked(table().lock);
    return freed_;
}

bool exported_memory::remove_key()
{
    if (has_key_) {
        table().by_word.erase(key_.word);
    }
    return std::exchange(has_key_, false);
}

ucs_status_t exported_memory::end_key(bool invalidate)
{
    export_table &all = table();
    table_lock locked(all.lock);
    if (!remove_key()) { /* freeing the memory may be waiting for it */
        all.unused.wait(locked, [this] { return !ending_; });
        return UCS_OK;
    }
    ending_ = true;
    all.unused.wait(locked, [this] { return uses_ == 0; });
    locked.unlock();
    const bool is_over =
        service_calls::instance().revoke_at_peers(key_.word, invalidate);
    locked.lock();
    if (!is_over && (device_ != nullptr)) {
        device_->exported = true; /* as where freeing it ends the key */
    }
    ending_ = false;
    all.unused.notify_all();
    return is_over ? UCS_OK : UCS_ERR_TIMED_OUT;
}

ucs_status_t exported_memory::pack(void *buffer)
{
    export_table &all = table();
    const table_lock locked(all.lock);
    if (freed_) {
        ucs_error("gaudi_ipc: there is no key of %lu bytes at %#lx: they were "
                  "freed",
                  key_.length, key_.address);
        return UCS_ERR_INVALID_ADDR;
    }
    if (!has_key_) {
        key_.version = wire_version;
        key_.kind    = (device_ != nullptr) ? key_kind::device : key_kind::host;
        key_.module  = no_module;
        key_.pid     = all.pid;
        key_.place   = hashes_of(own_machine());
        key_.process = util::process_identity();
        key_.word    = all.random_word();
        if (key_.word == 0) {
            ucs_error("gaudi_ipc: the kernel has no random numbers: %m");
            return UCS_ERR_IO_ERROR;
        }
        if (device_ != nullptr) {
            const base::card &owner = *device_->owner;
            key_.card               = static_cast<uint32_t>(owner.address());
            if (!device_->imported) {
                key_.module = static_cast<uint16_t>(owner.device().module_id());
            }
        }
        all.by_word.emplace(key_.word, this);
        has_key_ = true;
        seal_key(key_);
    }
    std::memcpy(buffer, &key_, sizeof(key_));
    return UCS_OK;
}

exported_memory *exported_memory::begin_use(uint64_t word, uint64_t address,
                                            uint64_t length)
{
    export_table &all = table();
    const table_lock locked(all.lock);
    const auto found = all.by_word.find(word);
    if (found == all.by_word.end()) {
        return nullptr;
    }
    exported_memory &memory = *found->second;
    const wire_key &key     = memory.key_;
    if ((address < key.address) || (length > key.length) ||
        (address - key.address > key.length - length)) {
        return nullptr;
    }
    ++memory.uses_;
    return &memory;
}

void exported_memory::end_use()
{
    export_table &all = table();
    const table_lock locked(all.lock);
    if ((--uses_ == 0) && !has_key_) {
        all.unused.notify_all();
    }
}

bool exported_memory::is_valid_key(uint64_t word)
{
    export_table &all = table();
    const table_lock locked(all.lock);
    return all.by_word.contains(word);
}

uint64_t exported_memory::count_keys()
{
    export_table &all = table();
    const table_lock locked(all.lock);
    return all.by_word.size();
}

} // namespace gaudi::ipc
