/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/process/foreign_pages.h"

#include "util/process.h"

#include <utility>
#include <vector>

namespace gaudi::ipc {

namespace {

ucs_status_t open_page(const process_id &id, const file_ref &page_file,
                       std::shared_ptr<foreign_page> &page_p)
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
        status = foreign_page::map(files[0].get(), std::move(process), page_p);
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

foreign_pages &foreign_pages::instance()
{
    return util::of_this_process<foreign_pages>();
}

void foreign_pages::open()
{
    const std::lock_guard<std::mutex> guard(lock_);
    ++users_;
}

void foreign_pages::close()
{
    decltype(pages_) rest; /* go when the lock is free */
    const std::lock_guard<std::mutex> guard(lock_);
    if (--users_ == 0) {
        rest.swap(pages_);
        empty_ = true;
    }
}

ucs_status_t foreign_pages::find(const process_id &id, const file_ref &page,
                                 std::shared_ptr<foreign_page> &page_p)
{
    std::shared_ptr<foreign_page> found;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        const auto known = pages_.find(id.nonce);
        if (known != pages_.end()) {
            found = known->second;
        }
    }
    if (found == nullptr) {
        sweep();
        const ucs_status_t status = open_page(id, page, found);
        if (status != UCS_OK) {
            return status;
        }
        /* Another thread may have been faster. */
        const std::shared_ptr<foreign_page> fresh = found;
        const std::lock_guard<std::mutex> guard(lock_);
        found  = pages_.try_emplace(id.nonce, fresh).first->second;
        empty_ = false;
    }
    if (!(found->process().id() == id)) {
        ucs_debug("gaudi_ipc: a remote key names process %u by what belongs to "
                  "process %u",
                  id.pid, found->process().id().pid);
        return UCS_ERR_UNREACHABLE;
    }
    if (found->is_dead()) {
        sweep();
        ucs_debug("gaudi_ipc: process %u has ended", id.pid);
        return UCS_ERR_UNREACHABLE;
    }
    page_p = std::move(found);
    return UCS_OK;
}

void foreign_pages::sweep()
{
    if (empty_.load(std::memory_order_relaxed)) {
        return;
    }
    std::vector<std::shared_ptr<foreign_page>> rest; /* as in close() */
    const std::lock_guard<std::mutex> guard(lock_);
    std::erase_if(pages_, [&](auto &entry) {
        const bool is_dead = entry.second->is_dead();
        if (is_dead) {
            rest.push_back(std::move(entry.second));
        }
        return is_dead;
    });
    empty_ = pages_.empty();
}

uint64_t foreign_pages::count() const
{
    const std::lock_guard<std::mutex> guard(lock_);
    return pages_.size();
}

} // namespace gaudi::ipc
