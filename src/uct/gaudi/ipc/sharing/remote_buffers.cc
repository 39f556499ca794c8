#include "uct/gaudi/ipc/sharing/remote_buffers.h"

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/ipc/process/file_service.h"
#include "util/background_thread.h"
#include "util/errors.h"
#include "util/process.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <iterator>
#include <map>
#include <utility>

namespace gaudi::ipc {

namespace {

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
        status = process->get_files(page_file, files, self->fd());
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
                  "needs: file descriptors or mappings",
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

/* --- remote_buffer -------------------------------------------------------- */

remote_buffer::remote_buffer(std::shared_ptr<foreign_page> of,
                             const wire_key &key)
    : of_(std::move(of)), key_(key),
      windows_(key.buffer.address, key.buffer.size, key.buffer.parts != 0, true)
{}

remote_buffer::~remote_buffer()
{
    remote_buffers &cache = remote_buffers::instance();
    std::lock_guard<std::mutex> guard(cache.lock_);
    for (auto each = cache.mapped_.begin();
         (mapped_ > 0) && (each != cache.mapped_.end());) {
        each = (each->second.of == this) ? cache.unlist(each) : std::next(each);
    }
}

base::kept_window remote_buffer::keep(uint64_t address, uint64_t length)
{
    base::kept_window window = windows_.find(address, length);
    if (window != nullptr) {
        window->used_at.store(ucs_get_time(), std::memory_order_relaxed);
    }
    return window;
}

int remote_buffer::va_on(base::card &user, uint64_t address, uint64_t length,
                         bool waits, uint64_t &va_p)
{
    base::kept_window window;
    const ucs_status_t status = base::guarded([&] {
        window = windows_.find(address, length);
        return UCS_OK;
    });
    if (window == nullptr) {
        return (status == UCS_OK) ? -EFAULT : -ENOMEM;
    }
    if (!waits && (window->size() > quick_bytes) &&
        !window->imports.knows(user) && start_import(user, window)) {
        return -EINPROGRESS;
    }
    uint64_t first  = 0;
    const int error = import_once(user, window, first);
    va_p            = first + (address - window->start);
    return error;
}

int remote_buffer::import_once(base::card &user,
                               const base::kept_window &window,
                               uint64_t &first_p)
{
    const auto import = [&](shim::registration &mapping) {
        base::card_mappings::answer given{-ENOMEM, false};
        (void)base::guarded([&] {
            given = import_on(user, window, mapping);
            return UCS_OK;
        });
        return given;
    };
    return window->imports.va_on(user, window->opening, import, first_p);
}

/* Have a thread import a window, unless one does.
 * @return Whether one is at it. */
bool remote_buffer::start_import(base::card &user,
                                 const base::kept_window &window)
{
    if (window->opens_in_background.exchange(true)) {
        return true;
    }
    auto &cache             = remote_buffers::instance();
    const auto count_thread = [&cache](int change) {
        std::lock_guard<std::mutex> guard(cache.lock_);
        cache.importing_ += change;
        cache.imported_.notify_all();
    };
    count_thread(1);
    try {
        util::start_background_thread(
            "ucx-gaudi-open",
            [count_thread, &user, cards = user.hold(), window = window,
             self = shared_from_this()]() mutable {
                uint64_t first;
                (void)self->import_once(user, window, first);
                window->opens_in_background = false;
                /* Who closes the cache may close cards. */
                window.reset();
                self.reset();
                cards = {};
                count_thread(-1);
            });
        return true;
    } catch (const std::exception &error) {
        ucs_debug("gaudi_ipc: no thread for an import: %s", error.what());
    }
    window->opens_in_background = false;
    count_thread(-1);
    return false;
}

base::card_mappings::answer
remote_buffer::import_on(base::card &user, const base::kept_window &window,
                         shim::registration &mapping)
{
    const uint64_t size = window->size();
    file_pair files; /* the import keeps what it needs */
    const util::unique_fd &fd = files[0];
    int error                 = to_errno(
                        of_->process().get_files(key_.buffer.file, files, -1,
                                                 {window->start - key_.buffer.address, size}));
    if (fd) {
        error = user.device().import_dmabuf(fd.get(), size, mapping);
    }
    if ((error == 0) && is_withdrawn()) {
        return {-ENOENT, false};
    }
    if (error != 0) {
        ucs_debug("%s cannot reach %lu bytes at %#lx of process %u: %s",
                  user.name().c_str(), size, window->start,
                  of_->process().id().pid, std::strerror(-error));
    }
    if ((error == -EPERM) && !of_->without_peers.exchange(true)) {
        ucs_diag("gaudi_ipc: %s has no peer-to-peer to a card of process %u: "
                 "its device memory is reached in other ways",
                 user.name().c_str(), of_->process().id().pid);
    }
    const bool is_final =
        fd && ((error == 0) || (error == -EOPNOTSUPP) || (error == -EPERM));
    if (is_final) {
        remote_buffers::instance().opened(*this, window,
                                          (error == 0) ? size : 0);
    }
    return {error, is_final};
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
        limits_  = wished;
        counted_ = {};
    }
}

void remote_buffers::close()
{
    {
        /* They use cards. */
        std::unique_lock<std::mutex> guard(lock_);
        imported_.wait(guard,
                       [this] { return (users_ > 1) || (importing_ == 0); });
    }
    std::lock_guard<std::mutex> sweeping(sweeping_);
    leftovers rest;
    std::lock_guard<std::mutex> guard(lock_);
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
        auto fresh = std::make_shared<remote_buffer>(of, key);
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
    if (!empty_.load(std::memory_order_relaxed)) {
        std::lock_guard<std::mutex> sweeping(sweeping_);
        sweep_locked();
    }
}

void remote_buffers::sweep_locked()
{
    sweeping_pace_.restart();

    leftovers rest;
    std::lock_guard<std::mutex> guard(lock_);
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
}

void remote_buffers::sweep_sometimes()
{
    if (!empty_.load(std::memory_order_relaxed) && sweeping_pace_.is_due()) {
        std::unique_lock<std::mutex> sweeping(sweeping_, std::try_to_lock);
        if (sweeping.owns_lock()) { /* else another thread is at it */
            sweep_locked();
        }
    }
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
