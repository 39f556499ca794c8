#include "uct/gaudi/ipc/sharing/shared_page.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>

namespace gaudi::ipc {

ucs_status_t foreign_page::map(int fd, const process_id &process,
                               std::unique_ptr<foreign_page> &page_p)
{
    if (util::lasting_length(fd) != sizeof(shared_page)) {
        ucs_debug("gaudi_ipc: process %u names a file as its shared page that "
                  "is none",
                  process.pid);
        return UCS_ERR_INVALID_PARAM;
    }
    std::unique_ptr<foreign_page> page(new foreign_page);
    if (!page->mapping_.map(fd, 0, sizeof(shared_page), PROT_READ)) {
        ucs_debug("gaudi_ipc: the shared page of process %u cannot be mapped: "
                  "%s",
                  process.pid, std::strerror(errno));
        return UCS_ERR_NO_MEMORY;
    }
    const page_header &head = page->page();
    if ((head.magic != page_header::right_magic) ||
        (head.version != wire_version) || (head.process != process)) {
        ucs_debug("gaudi_ipc: the shared page that process %u names is another "
                  "one's",
                  process.pid);
        return UCS_ERR_INVALID_PARAM;
    }
    page_p = std::move(page);
    return UCS_OK;
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

} // namespace gaudi::ipc
