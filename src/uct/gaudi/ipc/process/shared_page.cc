/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/process/shared_page.h"

#include "uct/gaudi/base/cards/ports.h"
#include "uct/gaudi/ipc/process/file_service.h"
#include "util/locks.h"
#include "util/process.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::ipc {

/* --- foreign_page ----------------------------------------------------------
 */

ucs_status_t foreign_page::map(int fd, std::shared_ptr<remote_process> process,
                               std::shared_ptr<foreign_page> &page_p)
{
    const process_id &id = process->id();
    if (util::lasting_length(fd) != sizeof(shared_page)) {
        ucs_debug("gaudi_ipc: process %u names a file as its shared page that "
                  "is none",
                  id.pid);
        return UCS_ERR_INVALID_PARAM;
    }
    std::shared_ptr<foreign_page> page(new foreign_page(std::move(process)));
    if (!page->mapping_.map(fd, 0, sizeof(shared_page), PROT_READ)) {
        ucs_debug("gaudi_ipc: the shared page of process %u cannot be mapped: "
                  "%s",
                  id.pid, std::strerror(errno));
        return UCS_ERR_NO_MEMORY;
    }
    const page_header &head = page->page();
    if ((head.magic != page_header::right_magic) ||
        (head.version != wire_version) || (head.process != id)) {
        ucs_debug("gaudi_ipc: the shared page that process %u names is another "
                  "one's",
                  id.pid);
        return UCS_ERR_INVALID_PARAM;
    }
    page_p = std::move(page);
    return UCS_OK;
}

bool foreign_page::is_using(uint64_t owner, uint64_t stamp) const
{
    const uint32_t used = std::min(page().hazards_used.load(), max_hazards);
    return std::any_of(page().hazards, page().hazards + used,
                       [&](const hazard_entry &hazard) {
                           return (hazard.uses.load() != 0) &&
                                  (hazard.owner.load() == owner) &&
                                  (hazard.stamp.load() == stamp);
                       });
}

/* After an exec its page is not mapped where it was, and hardly another one
 * with its nonce. One whose memory we may not read counts as there. */
bool foreign_page::has_left() const
{
    const page_header &head = page();
    process_id seen{};
    if (!process_->is_alive()) {
        return true;
    }
    const int error = process_->memory().read(
        &seen, head.address + offsetof(page_header, process), sizeof(seen));
    return (error == -EFAULT) || ((error == 0) && (seen != head.process));
}

bool foreign_page::is_quiet()
{
    using clock = std::chrono::steady_clock;
    if (!is_ending() && !has_left()) { /* it may say anything afterwards */
        return false;
    }
    const clock::time_point now = clock::now();
    const clock::time_point end = now + base::card_ports::drain_time;
    clock::rep unknown          = 0;
    (void)quiet_at_.compare_exchange_strong(unknown,
                                            end.time_since_epoch().count());
    return !has_ports() || (now.time_since_epoch().count() >= quiet_at_.load());
}

bool foreign_page::is_dead()
{
    if (!dead_.load(std::memory_order_relaxed) && asking_.is_due() &&
        has_left()) {
        dead_.store(true, std::memory_order_relaxed);
    }
    return dead_.load(std::memory_order_relaxed);
}

bool foreign_page::has_memory()
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

/* --- own_page --------------------------------------------------------------
 */

own_page *own_page::instance()
{
    own_page &page = util::of_this_process<own_page>();
    if (ucs_likely(page.made_.load(std::memory_order_acquire))) {
        return &page;
    }
    std::lock_guard<std::mutex> guard(page.lock_);
    if (!page.made_.load(std::memory_order_relaxed)) {
        const ucs_status_t status = page.create();
        if (status != UCS_OK) {
            ucs_error(
                "gaudi_ipc: no memory can be shared with other processes: "
                "%s (allow memfd_create and sockets, or use gaudi_copy,sm)",
                ucs_status_string(status));
            return nullptr;
        }
        page.made_.store(true, std::memory_order_release);
    }
    return &page;
}

ucs_status_t own_page::create()
{
    constexpr size_t total = sizeof(shared_page);
    if (util::longest_file() < total) {
        ucs_debug("gaudi_ipc: this process may not make a file of %zu bytes "
                  "(RLIMIT_FSIZE)",
                  total);
        return UCS_ERR_NO_RESOURCE;
    }
    util::unique_fd fd = util::make_lasting_file("gaudi_ipc", total);
    if (!fd) {
        return UCS_ERR_NO_RESOURCE;
    }
    if (!mapping_.map(fd.get(), 0, total)) {
        return UCS_ERR_NO_MEMORY;
    }
    shared_page &head = page();
    head.version      = wire_version;
    head.process      = own_process();
    head.address      = reinterpret_cast<uintptr_t>(mapping_.start());
    head.magic        = page_header::right_magic;

    file_offer offer;
    offer.fds[0] = fd.get();
    offer.take   = take_importer;
    fd_          = std::move(fd);
    return file_service::add(std::move(offer), file_);
}

own_page::mark own_page::take_cell(uint64_t start, uint64_t length)
{
    std::lock_guard<std::mutex> guard(lock_);
    mark taken;
    if (!free_cells_.empty()) {
        taken.cell = free_cells_.back();
        free_cells_.pop_back();
        ranges_[taken.cell] = {start, length};
    } else if (ranges_.size() < max_cells) {
        taken.cell = static_cast<uint32_t>(ranges_.size());
        ranges_.push_back({start, length});
        free_cells_.reserve(ranges_.capacity()); /* end_cell cannot fail */
    } else {
        return taken;
    }
    taken.stamp = ++last_stamp_;
    page().cells[taken.cell].store(taken.stamp);
    return taken;
}

void own_page::end_cell(const mark &ended)
{
    page().cells[ended.cell].store(0);
    std::lock_guard<std::mutex> guard(lock_);
    free_cells_.push_back(ended.cell);
}

bool own_page::is_current(const mark &asked) const
{
    return (asked.stamp != 0) &&
           (page().cells[asked.cell].load() == asked.stamp);
}

bool own_page::is_current(const mark &asked, uint64_t start,
                          uint64_t length) const
{
    std::lock_guard<std::mutex> guard(lock_);
    return covers(asked, start, length);
}

/* For those whom the kernel lets copy nothing. A sandbox may forbid a process
 * to copy its own memory, too. */
void own_page::offer_copies(const file_ref &service)
{
    const bool is_apart = (own_machine().folder != 0);
    const util::process_memory own(getpid(), -1);
    page().copies      = service;
    page().copies_host = (is_apart && (own.probe() == 0)) ? 1 : 0;
}

/* A key that ends is marked first; then its users are looked for. */
bool own_page::begin_use(const mark &asked, uint64_t start, uint64_t length)
{
    std::lock_guard<std::mutex> guard(lock_);
    if (!covers(asked, start, length)) {
        return false;
    }
    ++own_uses_[asked.stamp];
    return true;
}

void own_page::end_use(uint64_t stamp)
{
    std::lock_guard<std::mutex> guard(lock_);
    const auto used = own_uses_.find(stamp);
    if (--used->second == 0) {
        own_uses_.erase(used);
    }
}

void own_page::await_own_uses(uint64_t stamp)
{
    for (;;) {
        {
            std::lock_guard<std::mutex> guard(lock_);
            if (!own_uses_.contains(stamp)) {
                return;
            }
        }
        util::nap();
    }
}

/* Under the lock. */
bool own_page::covers(const mark &asked, uint64_t start, uint64_t length) const
{
    if ((asked.cell >= ranges_.size()) || !is_current(asked)) {
        return false;
    }
    const range &known = ranges_[asked.cell];
    return (start >= known.start) && (length <= known.length) &&
           (start - known.start <= known.length - length);
}

size_t own_page::cells() const
{
    std::lock_guard<std::mutex> guard(lock_);
    return ranges_.size() - free_cells_.size();
}

hazard_entry *own_page::take_hazard(uint64_t owner, uint64_t stamp)
{
    std::lock_guard<std::mutex> guard(lock_);
    uint32_t index;
    if (!free_hazards_.empty()) {
        index = free_hazards_.back();
        free_hazards_.pop_back();
    } else if (hazards_used_ < max_hazards) {
        index = hazards_used_++;
        if (free_hazards_.capacity() < hazards_used_) {
            free_hazards_.reserve(size_t{2} * hazards_used_);
        }
        page().hazards_used.store(hazards_used_);
    } else {
        return nullptr;
    }
    hazard_entry &hazard = page().hazards[index];
    hazard.uses.store(0);
    hazard.stamp.store(stamp);
    hazard.owner.store(owner);
    return &hazard;
}

void own_page::give_hazard(hazard_entry *hazard)
{
    hazard->owner.store(0);
    std::lock_guard<std::mutex> guard(lock_);
    free_hazards_.push_back(static_cast<uint32_t>(hazard - page().hazards));
}

/* It is one before it has our page, so none that uses anything is missing. */
ucs_status_t own_page::take_importer(const process_id &sender,
                                     file_pair brought)
{
    std::shared_ptr<remote_process> process;
    std::shared_ptr<foreign_page> fresh;
    ucs_status_t status = remote_process::open(sender, process);
    if (status == UCS_OK) {
        status = foreign_page::map(brought[0].get(), std::move(process), fresh);
    }
    if (status != UCS_OK) {
        return status;
    }
    own_page &self = *instance();
    (void)forget_dead_importers();
    std::lock_guard<std::mutex> guard(self.lock_);
    const auto found = self.importers_.find(sender.nonce);
    if ((found != self.importers_.end()) && !found->second->is_ending() &&
        (found->second->process().id() == sender)) {
        return UCS_OK; /* another thread of it was here: rings may have that */
    }
    if (self.importers_.size() >= max_importers) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }
    file_service::call_at_end(fresh->process().life(),
                              [] { (void)forget_dead_importers(); });
    auto &known = self.importers_[sender.nonce];
    if ((known != nullptr) && known->has_ports()) {
        fresh->note_ports();
    }
    known = std::move(fresh);
    return UCS_OK;
}

std::shared_ptr<foreign_page>
own_page::find_importer(const process_id &id) const
{
    std::lock_guard<std::mutex> guard(lock_);
    const auto found = importers_.find(id.nonce);
    return ((found != importers_.end()) &&
            (found->second->process().id() == id))
               ? found->second
               : nullptr;
}

std::optional<own_page::key_user> own_page::find_user(uint64_t stamp)
{
    const uint64_t self = own_process().nonce;
    std::optional<key_user> found;
    std::lock_guard<std::mutex> guard(lock_);
    for (const auto &[nonce, user] : importers_) {
        if (user->is_using(self, stamp) && !user->is_quiet()) {
            found = {user->process().id().pid, user->is_ending()};
            if (!found->has_left) {
                break;
            }
        }
    }
    return found;
}

bool own_page::forget_dead_importers()
{
    own_page &page = util::of_this_process<own_page>();
    std::lock_guard<std::mutex> guard(page.lock_);
    bool any_later = false;
    std::erase_if(page.importers_, [&](const auto &entry) {
        const bool is_quiet = entry.second->is_quiet();
        any_later |= !is_quiet && entry.second->is_ending();
        return is_quiet;
    });
    return any_later;
}

} // namespace gaudi::ipc
