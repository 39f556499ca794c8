/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/sharing/remote_buffers.h"

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/process/file_service.h"
#include "util/errors.h"
#include "util/process.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <utility>

namespace gaudi::ipc {

namespace {

/* What a card or a process that refused a buffer says of it. */
ucs_status_t judge_refusal(int error)
{
    switch (error) {
    case -ENOENT:
        return UCS_ERR_REJECTED;
    case -EOPNOTSUPP:
    case -EPERM:
        return UCS_ERR_UNSUPPORTED;
    default:
        return UCS_ERR_UNREACHABLE;
    }
}

ucs_status_t open_source(const process_id &id, const file_ref &page_file,
                         std::shared_ptr<foreign_page> &source_p)
{
    const own_page *self = own_page::instance();
    if (self == nullptr) {
        return UCS_ERR_NO_RESOURCE;
    }
    std::shared_ptr<remote_process> process;
    file_pair files;
    ucs_status_t status = remote_process::open(id, process);
    if (status == UCS_OK) {
        status = process->get_files(page_file, files, {self->fd(), -1});
    }
    if (status == UCS_OK) {
        status =
            foreign_page::map(files[0].get(), std::move(process), source_p);
    }
    switch (status) {
    case UCS_OK:
        return UCS_OK;
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_NO_MEMORY:
        ucs_error("gaudi_ipc: there is no room for what memory of process %u "
                  "needs: file descriptors or mappings (raise ulimit -n, "
                  "vm.max_map_count)",
                  id.pid);
        return UCS_ERR_NO_RESOURCE;
    case UCS_ERR_EXCEEDS_LIMIT:
        ucs_diag("gaudi_ipc: process %u has as many users as it can have",
                 id.pid);
        return UCS_ERR_UNREACHABLE;
    default:
        return UCS_ERR_UNREACHABLE;
    }
}

} // namespace

remote_buffers &remote_buffers::instance()
{
    return util::of_this_process<remote_buffers>();
}

void remote_buffers::open(const limits &wished)
{
    std::lock_guard<std::mutex> guard(lock_);
    if (users_++ == 0) {
        file_service::on_withdrawal([] { instance().sweep(); });
        limits_  = wished;
        counted_ = {};
    }
}

void remote_buffers::close()
{
    leftovers rest;
    std::unique_lock<std::mutex> guard(lock_);
    changed_.wait(guard, [this] { return (users_ > 1) || (threads_ == 0); });
    if (--users_ > 0) {
        return;
    }
    while (!mapped_.empty()) {
        const auto first            = mapped_.begin();
        const remote_buffer &buffer = *first->second.of;
        if (!detach(first, rest)) {
            ucs_warn("gaudi_ipc: memory of process %u is still used when the "
                     "last memory domain closes",
                     buffer.of_->process().id().pid);
            (void)unlist(first);
        }
    }
    for (auto &[which, buffer] : buffers_) {
        rest.push_back(std::move(buffer));
    }
    buffers_.clear();
    for (auto &[nonce, process] : sources_) {
        rest.push_back(std::move(process));
    }
    sources_.clear();
    empty_ = true;
}

ucs_status_t remote_buffers::find(const wire_key &key,
                                  std::shared_ptr<foreign_page> &source_p)
{
    std::shared_ptr<foreign_page> found;
    {
        std::lock_guard<std::mutex> guard(lock_);
        const auto place = sources_.find(key.process.nonce);
        if (place != sources_.end()) {
            found = place->second;
        }
    }
    if (found == nullptr) {
        ucs_status_t status = open_source(key.process, key.page, found);
        if (status != UCS_OK) {
            return status;
        }
        /* Another thread may have been faster. */
        const std::shared_ptr<foreign_page> fresh = found;
        std::lock_guard<std::mutex> guard(lock_);
        found  = sources_.try_emplace(key.process.nonce, fresh).first->second;
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
    source_p = std::move(found);
    return UCS_OK;
}

ucs_status_t remote_buffers::find(const wire_key &key,
                                  std::shared_ptr<foreign_page> &source_p,
                                  std::shared_ptr<remote_buffer> &buffer_p)
{
    const name wanted = name_of(key);
    std::shared_ptr<remote_buffer> found;
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (users_ == 0) {
            ucs_debug("gaudi_ipc: device memory of other processes needs an "
                      "open memory domain");
            return UCS_ERR_UNREACHABLE;
        }
        const auto place = buffers_.find(wanted);
        if (place != buffers_.end()) {
            found = place->second;
        }
    }
    const base::held_cards cards = base::card_table::instance().cards();
    base::card *user             = cards.first();
    if (user == nullptr) {
        ucs_debug("gaudi_ipc: this process has no card to reach device memory "
                  "of process %u",
                  key.process.pid);
        /* Its own were lost, or it has none. */
        return cards.empty() ? UCS_ERR_UNSUPPORTED : UCS_ERR_UNREACHABLE;
    }
    std::shared_ptr<foreign_page> of;
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
        auto fresh = std::make_shared<remote_buffer>(of, key, *this);
        std::lock_guard<std::mutex> guard(lock_);
        found = buffers_.try_emplace(wanted, fresh).first->second;
    }
    /* What tells whether a card reaches it, and is used next. */
    const uint64_t length    = std::min(key.length, base::window_grain);
    base::kept_window window = found->keep(key.address, length);
    {
        std::lock_guard<std::mutex> guard(lock_);
        counted_.hits += mapped_.contains(window.get()) ? 1 : 0;
    }
    uint64_t va;
    const int error = found->is_withdrawn()
                          ? -ENOENT
                          : found->va_on(*user, key.address, length, true, va);
    window.reset();
    if ((error != 0) && !util::may_pass(-error)) {
        if (error == -ENOENT) {
            ucs_debug("gaudi_ipc: process %u has withdrawn the memory of a "
                      "remote key",
                      key.process.pid);
        }
        of.reset();
        forget(found);
        return judge_refusal(error);
    }
    source_p = std::move(of);
    buffer_p = std::move(found);
    return (error == 0) ? UCS_OK : UCS_ERR_NO_RESOURCE;
}

/* An import was made: it counts, and others may have to go for it. The window
 * is kept. */
void remote_buffers::opened(remote_buffer &buffer,
                            const base::kept_window &window, uint64_t bytes)
{
    leftovers rest;
    std::lock_guard<std::mutex> guard(lock_);
    ++counted_.misses;
    const auto [place, is_new] =
        mapped_.try_emplace(window.get(), mapping{&buffer});
    buffer.mapped_ += is_new ? 1 : 0;
    place->second.bytes += bytes;
    bytes_ += bytes;
    make_room(rest);
}

void remote_buffers::gone(remote_buffer &buffer)
{
    std::lock_guard<std::mutex> guard(lock_);
    for (auto each = mapped_.begin();
         (buffer.mapped_ > 0) && (each != mapped_.end());) {
        each = (each->second.of == &buffer) ? unlist(each) : std::next(each);
    }
}

void remote_buffers::count_threads(int change)
{
    std::lock_guard<std::mutex> guard(lock_);
    threads_ += change;
    changed_.notify_all();
}

remote_buffers::mappings::iterator
remote_buffers::unlist(mappings::iterator which)
{
    --which->second.of->mapped_;
    bytes_ -= which->second.bytes;
    return mapped_.erase(which);
}

/* Take the imports of a window away, unless an operation uses them. */
bool remote_buffers::detach(mappings::iterator which, leftovers &rest)
{
    base::kept_window gone;
    if (!which->second.of->windows_.remove_unused(*which->first, gone)) {
        return false;
    }
    rest.push_back(std::move(gone));
    (void)unlist(which);
    return true;
}

void remote_buffers::detach_all(remote_buffer &buffer, leftovers &rest)
{
    for (auto next = mapped_.begin();
         (buffer.mapped_ > 0) && (next != mapped_.end());) {
        const auto which = next++;
        if (which->second.of == &buffer) {
            (void)detach(which, rest);
        }
    }
}

/* What was not used for the longest time goes first. Seldom, beside what an
 * import costs. */
void remote_buffers::make_room(leftovers &rest)
{
    const auto is_full = [this] {
        return (mapped_.size() > limits_.max_regions) ||
               (bytes_ > limits_.max_bytes);
    };
    if (!is_full()) {
        return;
    }
    std::multimap<uint64_t, mappings::iterator> by_use;
    for (auto each = mapped_.begin(); each != mapped_.end(); ++each) {
        by_use.emplace(each->first->used_at, each);
    }
    for (const auto &[used_at, oldest] : by_use) {
        if (!is_full()) {
            return;
        }
        const remote_buffer &buffer = *oldest->second.of;
        if (!detach(oldest, rest)) {
            continue; /* in use */
        }
        ++counted_.evictions;
        const auto place = buffers_.find(name_of(buffer.key_));
        if ((buffer.mapped_ == 0) && (place != buffers_.end()) &&
            (place->second.get() == &buffer) &&
            (place->second.use_count() == 1)) {
            rest.push_back(std::move(place->second));
            buffers_.erase(place);
        }
    }
}

void remote_buffers::forget(const std::shared_ptr<remote_buffer> &buffer)
{
    std::shared_ptr<remote_buffer> last; /* goes when the lock is free */
    std::lock_guard<std::mutex> guard(lock_);
    const auto place = buffers_.find(name_of(buffer->key_));
    if ((buffer->mapped_ == 0) && (place != buffers_.end()) &&
        (place->second == buffer) && (buffer.use_count() == 2)) {
        last = std::move(place->second);
        buffers_.erase(place);
    }
}

void remote_buffers::sweep()
{
    if (empty_.load(std::memory_order_relaxed)) {
        return;
    }
    leftovers rest;
    std::unique_lock<std::mutex> guard(lock_);
    std::erase_if(buffers_, [&](auto &entry) {
        remote_buffer &buffer = *entry.second;
        if (!buffer.is_withdrawn() && !buffer.of_->is_dead()) {
            return false;
        }
        const unsigned before = buffer.mapped_;
        detach_all(buffer, rest);
        counted_.withdrawn += before - buffer.mapped_;
        if (buffer.mapped_ > 0) {
            return false; /* in use: the next time */
        }
        rest.push_back(std::move(entry.second));
        return true;
    });
    std::erase_if(sources_, [&](auto &entry) {
        const bool is_dead = entry.second->is_dead();
        if (is_dead) {
            rest.push_back(std::move(entry.second));
        }
        return is_dead;
    });
    empty_ = sources_.empty() && buffers_.empty();
    ++threads_;
    guard.unlock();
    rest.clear();
    count_threads(-1);
}

remote_buffers::statistics remote_buffers::numbers() const
{
    std::lock_guard<std::mutex> guard(lock_);
    statistics result = counted_;
    result.regions    = mapped_.size();
    result.bytes      = bytes_;
    result.processes  = sources_.size();
    return result;
}

} // namespace gaudi::ipc
