#include "uct/gaudi/ipc/sharing/import_source.h"

#include "uct/gaudi/ipc/sharing/own_page.h"

#include <cstring>

namespace gaudi::ipc {

ucs_status_t import_source::open(const process_id &id,
                                 const file_ref &page_file,
                                 std::shared_ptr<import_source> &source_p)
{
    const own_page *self = own_page::instance();
    if (self == nullptr) {
        return UCS_ERR_NO_RESOURCE;
    }
    std::shared_ptr<remote_process> process;
    std::unique_ptr<foreign_page> page;
    file_pair files;
    ucs_status_t status = remote_process::open(id, process);
    if (status == UCS_OK) {
        status = process->get_files(page_file, files, self->fd());
    }
    if (status == UCS_OK) {
        status = foreign_page::map(files[0].get(), id, page);
    }
    switch (status) {
    case UCS_OK:
        source_p = std::make_shared<import_source>(process, std::move(page));
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

bool import_source::is_dead()
{
    if (!dead_.load(std::memory_order_relaxed) && asking_.is_due() &&
        (!process_->is_alive() || page_->is_left(process_->memory()))) {
        dead_.store(true, std::memory_order_relaxed);
    }
    return dead_.load(std::memory_order_relaxed);
}

bool import_source::has_memory()
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

} // namespace gaudi::ipc
