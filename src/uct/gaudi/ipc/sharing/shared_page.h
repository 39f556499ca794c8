/**
 * What a process shows to those that use its memory, and they to it.
 *
 * One sealed memfd per process, sparse:
 *
 *   cells    a word each; it holds the stamp of the key or buffer that has the
 *            cell now, and 0 when nothing does. No two things of a process ever
 *            have the same stamp
 *   hazards  stamps of other processes' keys that this one is using right now
 *
 * A user writes a hazard, then looks at the cell; the owner changes the cell,
 * then looks at the hazards of its importers. So no use that the owner does not
 * see starts after the change.
 *
 * Nothing that another process wrote is trusted: what does not make sense ends
 * up as an error, or as a wait with a bound.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/process/process_id.h"
#include "util/file_mapping.h"
#include "util/other_process.h"

#include <atomic>
#include <cstdint>
#include <memory>

namespace gaudi::ipc {

inline constexpr uint32_t max_cells   = 1u << 22;
inline constexpr uint32_t max_hazards = 1u << 20;

struct page_header {
    static constexpr uint64_t right_magic = 0x6567617069647561;

    uint64_t magic;
    uint32_t version;  /**< wire_version */
    uint32_t reserved; /**< 0 */
    process_id process;
    uint64_t address;                   /**< of this page in the process */
    std::atomic<uint32_t> hazards_used; /**< none behind was ever used */
};

struct hazard_entry {
    std::atomic<uint64_t> owner; /**< nonce of whose memory; 0: free */
    std::atomic<uint64_t> stamp; /**< of the key */
    std::atomic<uint32_t> uses;  /**< operations right now */
    uint32_t reserved;
};

/** The whole file; each part starts on a page of its own. */
struct shared_page : page_header {
    static constexpr size_t page_size = 4096;

    alignas(page_size) std::atomic<uint64_t> cells[max_cells];
    alignas(page_size) hazard_entry hazards[max_hazards];
};

static_assert((sizeof(hazard_entry) == 24) &&
              (sizeof(shared_page) % shared_page::page_size == 0));
static_assert(std::atomic<uint64_t>::is_always_lock_free);

/** The page of another process, as this one sees it. Any thread. */
class foreign_page {
public:
    /** Map the page of a process. @param fd  Of it; stays the caller's.
     *  @return UCS_ERR_INVALID_PARAM: it is no such page. UCS_ERR_NO_MEMORY.
     *          Said at debug level. */
    [[nodiscard]] static ucs_status_t
    map(int fd, const process_id &process,
        std::unique_ptr<foreign_page> &page_p);

    /** What is in a cell now. @param cell  Below max_cells. */
    [[nodiscard]] uint64_t cell(uint32_t cell) const
    {
        return page().cells[cell].load();
    }

    /** Whether the process has become another program, whose memory is not what
     *  keys stand for. A system call.
     *  @param memory  Of the process. false when we may not read it. */
    [[nodiscard]] bool is_left(const util::process_memory &memory) const;

    /** Whether the process is using something right now. */
    [[nodiscard]] bool is_using(uint64_t owner, uint64_t stamp) const;

private:
    foreign_page() = default;
    [[nodiscard]] const shared_page &page() const
    {
        return *reinterpret_cast<const shared_page *>(mapping_.start());
    }

    util::file_mapping mapping_;
};

} // namespace gaudi::ipc
