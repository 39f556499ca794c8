#include "uct/gaudi/ipc/sharing/exporter.h"

#include <cstring>

namespace gaudi::ipc {

ucs_status_t exporter::open(const process_id &id, const file_ref &page_file,
                            std::shared_ptr<exporter> &exporter_p)
{
    own_page *self = own_page::instance();
    if (self == nullptr) {
        return UCS_ERR_NO_RESOURCE;
    }
    std::shared_ptr<remote_process> process;
    ucs_status_t status = remote_process::open(id, process);
    util::unique_fd fd;
    if (status == UCS_OK) {
        status = process->get_file(page_file, fd);
    }
    std::unique_ptr<foreign_page> page;
    if (status == UCS_OK) {
        status = foreign_page::map(fd.get(), id, page);
    }
    if ((status == UCS_ERR_NO_RESOURCE) || (status == UCS_ERR_NO_MEMORY)) {
        ucs_error("gaudi_ipc: there is no room for what memory of process %u "
                  "needs: file descriptors or mappings",
                  id.pid);
        return UCS_ERR_NO_RESOURCE;
    }
    if (status != UCS_OK) {
        return UCS_ERR_UNREACHABLE;
    }
    if (page->enter(self->file()) != UCS_OK) {
        ucs_diag("gaudi_ipc: process %u has as many users as it can have",
                 id.pid);
        return UCS_ERR_UNREACHABLE;
    }
    exporter_p = std::make_shared<exporter>(process, std::move(page));
    return UCS_OK;
}

bool exporter::is_dead()
{
    if (!dead_.load(std::memory_order_relaxed) && asking_.is_due() &&
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

} // namespace gaudi::ipc
