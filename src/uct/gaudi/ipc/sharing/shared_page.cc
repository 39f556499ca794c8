#include "uct/gaudi/ipc/sharing/shared_page.h"

#include "util/file_mapping.h"

#include "uct/gaudi/ipc/process/file_service.h"
#include "util/addresses.h"
#include "util/per_process.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::ipc {

namespace {

constexpr uint64_t page_magic = 0x6567617069647561;

constexpr size_t total = sizeof(shared_page);

static_assert(total % shared_page::page_size == 0);

} // namespace

/* --- own ------------------------------------------------------------------ */

own_page *own_page::instance()
{
    own_page &page = util::of_this_process<own_page>();
    if (ucs_likely(page.made_.load(std::memory_order_acquire))) {
        return &page;
    }
    std::lock_guard<std::mutex> guard(page.making_);
    if (!page.made_.load(std::memory_order_relaxed)) {
        const ucs_status_t status = page.create();
        if (status != UCS_OK) {
            ucs_error(
                "gaudi_ipc: no memory can be shared with other processes: "
                "%s",
                ucs_status_string(status));
            return nullptr;
        }
        page.made_.store(true, std::memory_order_release);
    }
    return &page;
}

ucs_status_t own_page::create()
{
    if (util::longest_file() < total) {
        ucs_debug("gaudi_ipc: this process may not make a file of %zu bytes "
                  "(RLIMIT_FSIZE)",
                  total);
        return UCS_ERR_NO_RESOURCE;
    }
    util::unique_fd fd(
        memfd_create("gaudi_ipc", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd) {
        return UCS_ERR_NO_RESOURCE;
    }
    if ((ftruncate(fd.get(), static_cast<off_t>(total)) != 0) ||
        (fcntl(fd.get(), F_ADD_SEALS,
               F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)) {
        return UCS_ERR_IO_ERROR;
    }
    util::file_mapping mapping;
    if (!mapping.map(fd.get(), 0, total)) {
        return UCS_ERR_NO_MEMORY;
    }
    if (!describe_file(fd.get(), file_kind::shared_page, file_)) {
        return UCS_ERR_IO_ERROR;
    }
    fd_               = std::move(fd);
    mapping_          = std::move(mapping);
    shared_page &head = page();
    head.version      = wire_version;
    head.process      = own_process();
    head.address      = reinterpret_cast<uintptr_t>(mapping_.start());
    head.magic        = page_magic;
    /* Without the service others get it from the kernel alone. */
    (void)file_service::add(file_);
    return UCS_OK;
}

own_page::mark own_page::take_slot(uint64_t start, uint64_t length)
{
    std::lock_guard<std::mutex> guard(lock_);
    mark taken;
    if (!free_slots_.empty()) {
        taken.slot = free_slots_.back();
        free_slots_.pop_back();
        ranges_[taken.slot] = {start, length};
    } else if (ranges_.size() < max_slots) {
        taken.slot = static_cast<uint32_t>(ranges_.size());
        ranges_.push_back({start, length});
        free_slots_.reserve(ranges_.capacity()); /* end_slot cannot fail */
    } else {
        return taken;
    }
    taken.generation = ++sequence_;
    page().slots[taken.slot].store(taken.generation);
    return taken;
}

void own_page::end_slot(const mark &ended, bool was_buffer)
{
    page().slots[ended.slot].store(0);
    if (was_buffer) {
        page().ended.fetch_add(1);
    }
    std::lock_guard<std::mutex> guard(lock_);
    free_slots_.push_back(ended.slot);
}

bool own_page::is_current(const mark &asked) const
{
    return (asked.generation != 0) &&
           (page().slots[asked.slot].load() == asked.generation);
}

bool own_page::is_current(const mark &asked, uint64_t start,
                          uint64_t length) const
{
    std::lock_guard<std::mutex> guard(lock_);
    if ((asked.slot >= ranges_.size()) || !is_current(asked)) {
        return false;
    }
    const range &known = ranges_[asked.slot];
    return (start >= known.start) && (length <= known.length) &&
           (start - known.start <= known.length - length);
}

size_t own_page::slots() const
{
    std::lock_guard<std::mutex> guard(lock_);
    return ranges_.size() - free_slots_.size();
}

hazard_entry *own_page::take_hazard(uint64_t owner, uint64_t generation)
{
    uint32_t index;
    {
        std::lock_guard<std::mutex> guard(lock_);
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
    }
    hazard_entry &hazard = page().hazards[index];
    hazard.uses.store(0);
    hazard.generation.store(generation);
    hazard.owner.store(owner);
    return &hazard;
}

void own_page::give_hazard(hazard_entry *hazard)
{
    hazard->owner.store(0);
    std::lock_guard<std::mutex> guard(lock_);
    free_hazards_.push_back(static_cast<uint32_t>(hazard - page().hazards));
}

void own_page::forget_if_dead(importer_entry &entry)
{
    uint64_t claim = entry.claim.load();
    if ((claim != 0) && util::process_has_ended(claim)) {
        entry.claim.compare_exchange_strong(claim, 0);
    }
}

/* --- of other processes --------------------------------------------------- */

ucs_status_t foreign_page::map(int fd, const process_id &process,
                               std::unique_ptr<foreign_page> &page_p)
{
    if (util::lasting_length(fd) != total) {
        ucs_debug("gaudi_ipc: process %u names a file as its shared page that "
                  "is none",
                  process.pid);
        return UCS_ERR_INVALID_PARAM;
    }
    std::unique_ptr<foreign_page> page(new foreign_page);
    if (!page->mapping_.map(fd, 0, total, PROT_READ)) {
        ucs_debug("gaudi_ipc: the shared page of process %u cannot be mapped: "
                  "%s",
                  process.pid, std::strerror(errno));
        return UCS_ERR_NO_MEMORY;
    }
    const page_header &head = page->page();
    if ((head.magic != page_magic) || (head.version != wire_version) ||
        (head.process != process)) {
        ucs_debug("gaudi_ipc: the shared page that process %u names is another "
                  "one's",
                  process.pid);
        return UCS_ERR_INVALID_PARAM;
    }
    page_p = std::move(page);
    return UCS_OK;
}

foreign_page::~foreign_page()
{
    if (entry_ != nullptr) {
        uint64_t claim = own_process().word();
        entry_->ready.store(0);
        entry_->claim.compare_exchange_strong(claim, 0);
    }
}

/* Its page is not mapped where it was, and hardly another one with its nonce.
 */
bool foreign_page::is_left(const util::process_memory &memory) const
{
    const page_header &head = page();
    process_id seen{};
    const int error = memory.read(
        &seen, head.address + offsetof(page_header, process), sizeof(seen));
    return (error == -EFAULT) || ((error == 0) && (seen != head.process));
}

bool foreign_page::is_using(uint64_t owner, uint64_t generation) const
{
    const uint32_t used = std::min(page().hazards_used.load(), max_hazards);
    const hazard_entry *hazards = page().hazards;
    for (uint32_t i = 0; i < used; ++i) {
        if ((hazards[i].uses.load() != 0) &&
            (hazards[i].owner.load() == owner) &&
            (hazards[i].generation.load() == generation)) {
            return true;
        }
    }
    return false;
}

ucs_status_t foreign_page::enter(const file_ref &own_file)
{
    const process_id self   = own_process();
    const uint64_t mine     = self.word();
    importer_entry *entries = page().importers;
    if (mprotect(entries, sizeof(page().importers), PROT_READ | PROT_WRITE) !=
        0) {
        return UCS_ERR_NO_MEMORY;
    }
    for (const bool look_for_dead : {false, true}) {
        for (uint32_t i = 0; i < max_importers; ++i) {
            uint64_t claim = entries[i].claim.load();
            if ((claim != 0) &&
                !(look_for_dead && util::process_has_ended(claim))) {
                continue;
            }
            if (!entries[i].claim.compare_exchange_strong(claim, mine)) {
                continue;
            }
            entry_ = &entries[i];
            entry_->ready.store(0);
            entry_->process = self;
            entry_->page    = own_file;
            entry_->ready.store(1);
            return UCS_OK;
        }
    }
    return UCS_ERR_NO_RESOURCE;
}

} // namespace gaudi::ipc
