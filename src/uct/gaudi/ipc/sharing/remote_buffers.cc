#include "uct/gaudi/ipc/sharing/remote_buffers.h"

#include "uct/gaudi/base/memory/device_table.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/process/file_service.h"
#include "util/per_process.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include <unistd.h>

extern "C" {
#include <ucs/time/time.h>
}

namespace gaudi::ipc {

namespace {

/* How long what the kernel said of a process is taken for true, seconds. */
constexpr double trust = 5e-3;

/* Time between two sweeps that nothing else makes necessary, seconds. */
constexpr double sweep_interval = 50e-3;

/* Whether a time has come that is due so long after another one; if so, the
 * other one is now. One thread at most is told. */
bool is_due(std::atomic<uint64_t> &last, double interval)
{
    const uint64_t now = ucs_get_time();
    uint64_t before    = last.load(std::memory_order_relaxed);
    return (now - before >= ucs_time_from_sec(interval)) &&
           last.compare_exchange_strong(before, now);
}

int to_errno(ucs_status_t status)
{
    switch (status) {
    case UCS_ERR_NO_RESOURCE:
        return -EMFILE;
    case UCS_ERR_TIMED_OUT:
        return -ETIMEDOUT;
    case UCS_ERR_NO_ELEM:
        return -ENOENT;
    default:
        return -ESRCH;
    }
}

/* Whether another try would get the same answer. */
bool is_final(int error)
{
    return (error == 0) || (error == -EOPNOTSUPP) || (error == -EINVAL) ||
           (error == -EPERM);
}

/* A card that tells whether cards of ours can reach a buffer. */
base::card *any_card()
{
    for (const auto &candidate : base::device_table::instance().cards()) {
        if (!candidate->is_lost()) {
            return candidate.get();
        }
    }
    return nullptr;
}

} // namespace

/* --- exporter ------------------------------------------------------------- */

bool exporter::is_dead()
{
    if (!dead_.load(std::memory_order_relaxed) && is_due(asked_at_, trust) &&
        (!process_->is_alive() || page_->is_left(process_->memory()))) {
        dead_.store(true, std::memory_order_relaxed);
    }
    return dead_.load(std::memory_order_relaxed);
}

bool exporter::has_memory()
{
    int known = memory_.load(std::memory_order_relaxed);
    if (known < 0) {
        const int error = process_->memory().probe();
        known           = (error == 0) ? 1 : 0;
        memory_.store(known, std::memory_order_relaxed);
        if (error != 0) {
            ucs_debug("gaudi_ipc: host memory of process %u is out of reach: "
                      "%s",
                      process_->id().pid, std::strerror(-error));
        }
    }
    return known == 1;
}

/* --- remote_buffer -------------------------------------------------------- */

remote_buffer::remote_buffer(std::shared_ptr<exporter> of, const wire_key &key)
    : of_(std::move(of)), key_(key), generation_(key.buffer_generation),
      slot_(key.buffer_slot)
{}

remote_buffer::~remote_buffer()
{
    remote_buffers &cache = remote_buffers::instance();
    std::lock_guard<std::mutex> guard(cache.lock_);
    cache.unlist(*this);
}

void remote_buffer::hold()
{
    if (ucs_unlikely(users_.fetch_add(1, std::memory_order_acquire) < 0)) {
        while (users_.load(std::memory_order_acquire) < 0) {
            std::this_thread::yield(); /* a few stores are left to be done */
        }
    }
    used_at_.store(ucs_get_time(), std::memory_order_relaxed);
}

const remote_buffer::import *remote_buffer::find(const base::card &user) const
{
    const import *entry = imports_.load(std::memory_order_acquire);
    while ((entry != nullptr) && (entry->user != &user)) {
        entry = entry->next.get();
    }
    return entry;
}

int remote_buffer::va_on(base::card &user, uint64_t address, uint64_t &va_p)
{
    if ((address < key_.buffer_address) ||
        (address - key_.buffer_address >= key_.buffer_size)) {
        return -EFAULT;
    }
    const import *entry = find(user);
    if (ucs_unlikely(entry == nullptr)) {
        int error = -ENOMEM;
        (void)base::guarded([&] {
            error = open_on(user, entry);
            return UCS_OK;
        });
        if (error != 0) {
            return error;
        }
    }
    va_p = entry->mapping.va() + (address - key_.buffer_address);
    return entry->refused;
}

int remote_buffer::open_on(base::card &user, const import *&import_p)
{
    std::lock_guard<std::mutex> guard(opening_);
    import_p = find(user);
    if (import_p != nullptr) {
        return 0;
    }
    auto fresh  = std::make_unique<import>();
    fresh->user = &user;
    int fd      = -1;
    int error   = to_errno(of_->process().get_file(key_.buffer_file, fd));
    if (fd >= 0) {
        error = shim::mapping::import_dmabuf(user.device(), fd,
                                             key_.buffer_size, fresh->mapping);
        close(fd); /* the import keeps what it needs */
    }
    if ((error == 0) && is_withdrawn()) {
        return -ENOENT;
    }
    if (error != 0) {
        ucs_debug("%s cannot reach %lu bytes at %#lx of process %u: %s",
                  user.name().c_str(), key_.buffer_size, key_.buffer_address,
                  of_->process().id().pid, std::strerror(-error));
        if (!is_final(error)) {
            return error;
        }
    }
    fresh->refused = error;
    fresh->next    = std::move(owned_);
    owned_         = std::move(fresh);
    import_p       = owned_.get();
    imports_.store(import_p, std::memory_order_release);
    remote_buffers::instance().opened(*this,
                                      (error == 0) ? key_.buffer_size : 0);
    return 0;
}

/* --- remote_buffers ------------------------------------------------------- */

remote_buffers &remote_buffers::instance()
{
    return util::of_this_process<remote_buffers>();
}

void remote_buffers::open(const limits &wished)
{
    std::lock_guard<std::mutex> guard(lock_);
    if (users_++ == 0) {
        file_service::on_withdrawal([] { instance().sweep(); });
        limits_ = wished;
        hits_ = misses_ = evictions_ = withdrawn_ = 0;
    }
}

void remote_buffers::close()
{
    base::card_hold cards; /* ends when all is unmapped, and no lock held */
    std::lock_guard<std::mutex> sweeping(sweeping_);
    leftovers rest;
    std::lock_guard<std::mutex> guard(lock_);
    if (--users_ > 0) {
        return;
    }
    while (!by_use_.empty()) {
        remote_buffer &buffer = *by_use_.begin()->second;
        if (!detach(buffer, rest)) {
            ucs_warn("gaudi_ipc: memory of process %u is still used when the "
                     "last memory domain closes",
                     buffer.of_->process().id().pid);
            unlist(buffer);
            cards_.abandon(); /* who uses it unmaps it from them */
        }
    }
    for (auto &[which, buffer] : buffers_) {
        rest.buffers.push_back(std::move(buffer));
    }
    buffers_.clear();
    for (auto &[nonce, process] : exporters_) {
        rest.exporters.push_back(std::move(process));
    }
    exporters_.clear();
    empty_ = true;
    cards.take(cards_);
}

ucs_status_t
remote_buffers::open_exporter(const wire_key &key,
                              std::shared_ptr<exporter> &exporter_p)
{
    own_page *self = own_page::instance();
    if (self == nullptr) {
        return UCS_ERR_NO_RESOURCE;
    }
    std::shared_ptr<remote_process> process;
    ucs_status_t status = remote_process::open(key.process, process);
    int fd              = -1;
    if (status == UCS_OK) {
        status = process->get_file(key.page, fd);
    }
    std::unique_ptr<foreign_page> page;
    if (status == UCS_OK) {
        status = foreign_page::map(fd, key.process, page);
        ::close(fd);
    }
    if ((status == UCS_ERR_NO_RESOURCE) || (status == UCS_ERR_NO_MEMORY)) {
        ucs_error("gaudi_ipc: there is no room for what memory of process %u "
                  "needs: file descriptors or mappings",
                  key.process.pid);
        return UCS_ERR_NO_RESOURCE;
    }
    if (status != UCS_OK) {
        return UCS_ERR_UNREACHABLE;
    }
    if (page->enter(self->file()) != UCS_OK) {
        ucs_diag("gaudi_ipc: process %u has as many users as it can have",
                 key.process.pid);
        return UCS_ERR_UNREACHABLE;
    }
    exporter_p = std::make_shared<exporter>(process, std::move(page));
    return UCS_OK;
}

ucs_status_t remote_buffers::find(const wire_key &key,
                                  std::shared_ptr<exporter> &exporter_p)
{
    std::shared_ptr<exporter> found;
    {
        std::lock_guard<std::mutex> guard(lock_);
        const auto place = exporters_.find(key.process.nonce);
        if (place != exporters_.end()) {
            found = place->second;
        }
    }
    if (found == nullptr) {
        ucs_status_t status = open_exporter(key, found);
        if (status != UCS_OK) {
            return status;
        }
        /* Another thread may have been faster. */
        const std::shared_ptr<exporter> fresh = found;
        std::lock_guard<std::mutex> guard(lock_);
        found  = exporters_.try_emplace(key.process.nonce, fresh).first->second;
        empty_ = false;
    }
    if (!(found->process().id() == key.process)) {
        ucs_debug("gaudi_ipc: a remote key names process %u by what belongs to "
                  "process %u",
                  key.process.pid, found->process().id().pid);
        return UCS_ERR_UNREACHABLE;
    }
    if (found->is_dead()) {
        sweep();
        ucs_debug("gaudi_ipc: process %u has ended", key.process.pid);
        return UCS_ERR_UNREACHABLE;
    }
    exporter_p = std::move(found);
    return UCS_OK;
}

ucs_status_t remote_buffers::find(const wire_key &key,
                                  std::shared_ptr<exporter> &exporter_p,
                                  std::shared_ptr<remote_buffer> &buffer_p)
{
    const name wanted(key);
    std::shared_ptr<remote_buffer> found;
    bool mapped = false;
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (users_ == 0) {
            ucs_debug("gaudi_ipc: device memory of other processes needs an "
                      "open memory domain");
            return UCS_ERR_UNREACHABLE;
        }
        const auto place = buffers_.find(wanted);
        if (place != buffers_.end()) {
            found  = place->second;
            mapped = found->listed_;
            hits_ += mapped ? 1 : 0;
        }
    }
    base::card *user = cards_.join() ? any_card() : nullptr;
    if (user == nullptr) {
        ucs_debug("gaudi_ipc: this process has no card to reach device memory "
                  "of process %u",
                  key.process.pid);
        return UCS_ERR_UNREACHABLE;
    }
    std::shared_ptr<exporter> of;
    if (found != nullptr) {
        of = found->of_;
        if (of->is_dead()) {
            sweep();
            return UCS_ERR_UNREACHABLE;
        }
    } else {
        sweep();
        ucs_status_t status = find(key, of);
        if (status != UCS_OK) {
            return status;
        }
        auto fresh = std::make_shared<remote_buffer>(of, key);
        std::lock_guard<std::mutex> guard(lock_);
        found = buffers_.try_emplace(wanted, fresh).first->second;
    }
    found->hold();
    uint64_t va;
    const int error =
        found->is_withdrawn() ? -ENOENT : found->va_on(*user, key.address, va);
    found->release();
    if ((error != 0) && !base::is_room_lacking(-error)) {
        if (error == -ENOENT) {
            ucs_debug("gaudi_ipc: process %u has withdrawn the memory of a "
                      "remote key",
                      key.process.pid);
        }
        of.reset();
        forget(found);
        return UCS_ERR_UNREACHABLE;
    }
    exporter_p = std::move(of);
    buffer_p   = std::move(found);
    return (error == 0) ? UCS_OK : UCS_ERR_NO_RESOURCE;
}

/* An import was made: it counts, and others may have to go for it. The buffer
 * is held. */
void remote_buffers::opened(remote_buffer &buffer, uint64_t bytes)
{
    leftovers rest;
    std::lock_guard<std::mutex> guard(lock_);
    ++misses_;
    if (!buffer.listed_) {
        buffer.place_  = by_use_.emplace(buffer.used_at_, &buffer);
        buffer.listed_ = true;
    }
    buffer.charge_ += bytes;
    bytes_ += bytes;
    make_room(rest);
}

void remote_buffers::unlist(remote_buffer &buffer)
{
    if (buffer.listed_) {
        by_use_.erase(buffer.place_);
        bytes_ -= buffer.charge_;
        buffer.listed_ = false;
        buffer.charge_ = 0;
    }
}

/* Take the imports of a buffer away, unless an operation uses them. */
bool remote_buffers::detach(remote_buffer &buffer, leftovers &rest)
{
    int32_t unused = 0;
    if (!buffer.users_.compare_exchange_strong(unused, remote_buffer::closing,
                                               std::memory_order_acquire)) {
        return false;
    }
    buffer.imports_.store(nullptr, std::memory_order_relaxed);
    if (buffer.owned_ != nullptr) {
        rest.imports.push_back(std::move(buffer.owned_));
    }
    unlist(buffer);
    buffer.users_.fetch_sub(remote_buffer::closing, std::memory_order_release);
    return true;
}

/* The list is in the order of uses that it knows of. */
void remote_buffers::make_room(leftovers &rest)
{
    const size_t most = by_use_.size();
    size_t in_use     = 0;
    while (((by_use_.size() > limits_.max_regions) ||
            (bytes_ > limits_.max_bytes)) &&
           (in_use < most)) {
        remote_buffer &first   = *by_use_.begin()->second;
        const uint64_t used_at = first.used_at_;
        if (used_at > by_use_.begin()->first) {
            by_use_.erase(by_use_.begin());
            first.place_ = by_use_.emplace(used_at, &first);
            continue;
        }
        if (!detach(first, rest)) {
            /* Behind all others. */
            ++in_use;
            by_use_.erase(by_use_.begin());
            first.place_ = by_use_.emplace(
                std::max<uint64_t>(ucs_get_time(), used_at + 1), &first);
            continue;
        }
        ++evictions_;
        const auto place = buffers_.find(name(first.key_));
        if ((place != buffers_.end()) && (place->second.get() == &first) &&
            (place->second.use_count() == 1)) {
            rest.buffers.push_back(std::move(place->second));
            buffers_.erase(place);
        }
    }
}

void remote_buffers::forget(const std::shared_ptr<remote_buffer> &buffer)
{
    std::shared_ptr<remote_buffer> last; /* goes when the lock is free */
    std::lock_guard<std::mutex> guard(lock_);
    const auto place = buffers_.find(name(buffer->key_));
    if (!buffer->listed_ && (place != buffers_.end()) &&
        (place->second == buffer) && (buffer.use_count() == 2)) {
        last = std::move(place->second);
        buffers_.erase(place);
    }
}

void remote_buffers::sweep()
{
    if (!empty_.load(std::memory_order_relaxed)) {
        std::lock_guard<std::mutex> sweeping(sweeping_);
        sweep_locked();
    }
}

void remote_buffers::sweep_locked()
{
    swept_at_.store(ucs_get_time(), std::memory_order_relaxed);

    leftovers rest;
    std::lock_guard<std::mutex> guard(lock_);
    bool any = false;
    for (const auto &[nonce, process] : exporters_) {
        process->gone_ = process->is_dead();
        any |=
            process->gone_ || (process->page().ended() != process->ended_seen_);
    }
    if (!any) {
        return;
    }
    for (const auto &[nonce, process] : exporters_) {
        process->ended_seen_ = process->page().ended();
    }
    std::erase_if(buffers_, [&](auto &entry) {
        remote_buffer &buffer = *entry.second;
        if (!buffer.of_->gone_ && !buffer.is_withdrawn()) {
            return false;
        }
        const bool was_listed = buffer.listed_;
        if (!detach(buffer, rest)) {
            --buffer.of_->ended_seen_; /* look again */
            return false;
        }
        withdrawn_ += was_listed ? 1 : 0;
        rest.buffers.push_back(std::move(entry.second));
        return true;
    });
    std::erase_if(exporters_, [&](auto &entry) {
        exporter &process = *entry.second;
        if (!process.gone_ || (process.ended_seen_ != process.page().ended())) {
            return false;
        }
        rest.exporters.push_back(std::move(entry.second));
        return true;
    });
    empty_ = exporters_.empty() && buffers_.empty();
}

void remote_buffers::sweep_sometimes()
{
    if (!empty_.load(std::memory_order_relaxed) &&
        is_due(swept_at_, sweep_interval)) {
        std::unique_lock<std::mutex> sweeping(sweeping_, std::try_to_lock);
        if (sweeping.owns_lock()) { /* else another thread is at it */
            sweep_locked();
        }
    }
}

remote_buffers::statistics remote_buffers::numbers() const
{
    std::lock_guard<std::mutex> guard(lock_);
    return {hits_,          misses_, evictions_,       withdrawn_,
            by_use_.size(), bytes_,  exporters_.size()};
}

} // namespace gaudi::ipc
