/**
 * What a process shows to those that use its memory, and they to it.
 *
 * One sealed memfd per process, sparse:
 *
 *   slots      a word each; it holds the generation of what has the slot now, a
 *              key or a buffer, and 0 when nothing does. No two things of a
 *              process ever have the same generation
 *   importers  who uses memory of this process: filled in by them
 *   hazards    which generations of other processes this one is using right now
 *
 * A user writes a hazard, then looks at the slot; the owner changes the slot,
 * then looks at the hazards of its importers. So no use that the owner does not
 * see starts after the change.
 *
 * Nothing that another process wrote is trusted: what does not make sense ends
 * up as an error, or as a wait with a bound. Any thread; locks are leaves and
 * short.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/process/process_id.h"
#include "util/file_mapping.h"
#include "util/other_process.h"
#include "util/unique_fd.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace gaudi::ipc {

inline constexpr uint32_t max_slots     = 1u << 22;
inline constexpr uint32_t max_importers = 1u << 12;
inline constexpr uint32_t max_hazards   = 1u << 20;

struct page_header {
    uint64_t magic;
    uint32_t version;  /**< wire_version */
    uint32_t reserved; /**< 0 */
    process_id process;
    uint64_t address;                   /**< of this page in the process */
    std::atomic<uint64_t> ended;        /**< buffers that are no more */
    std::atomic<uint32_t> hazards_used; /**< none behind was ever used */
};

struct importer_entry {
    std::atomic<uint64_t> claim; /**< process_id::word; 0: free */
    std::atomic<uint64_t> ready; /**< 1: the rest is filled in */
    process_id process;
    file_ref page;
};

struct hazard_entry {
    std::atomic<uint64_t> owner;      /**< nonce of whose memory; 0: free */
    std::atomic<uint64_t> generation; /**< of the key */
    std::atomic<uint32_t> uses;       /**< operations right now */
    uint32_t reserved;
};

/** The whole file; each part starts on a page of its own. */
struct shared_page : page_header {
    static constexpr size_t page_size = 4096;

    alignas(page_size) std::atomic<uint64_t> slots[max_slots];
    alignas(page_size) importer_entry importers[max_importers];
    alignas(page_size) hazard_entry hazards[max_hazards];
};

static_assert((sizeof(importer_entry) == 80) && (sizeof(hazard_entry) == 24));
static_assert(std::atomic<uint64_t>::is_always_lock_free);

/** The page of this process. */
class own_page {
public:
    /** The page, made by the first call that can make it.
     *  @return nullptr when it cannot be made now, which was logged. */
    static own_page *instance();

    own_page() = default;

    [[nodiscard]] const file_ref &file() const { return file_; }

    /** A slot with a new generation in it. */
    struct mark {
        uint32_t slot       = 0;
        uint64_t generation = 0; /**< 0: none */
    };

    /** @param start,length  What it stands for, for @ref is_current.
     *  @return A mark without generation when there is no slot left. */
    [[nodiscard]] mark take_slot(uint64_t start, uint64_t length);

    /** What had the slot is no more. Sequentially consistent with the reading
     *  of hazards. @param was_buffer  Importers look for stale mappings. */
    void end_slot(const mark &ended, bool was_buffer);

    [[nodiscard]] bool is_current(const mark &asked) const;

    /** The same, of what stands for this range. */
    [[nodiscard]] bool is_current(const mark &asked, uint64_t start,
                                  uint64_t length) const;

    /** A hazard of this process, with no uses; nullptr when none is left. */
    [[nodiscard]] hazard_entry *take_hazard(uint64_t owner,
                                            uint64_t generation);
    void give_hazard(hazard_entry *hazard);

    [[nodiscard]] size_t slots() const; /**< that are taken */

    /** Free the entry of a process that has ended and did not do it. */
    static void forget_if_dead(importer_entry &entry);

    /** Call a function with every process that uses memory of this one. */
    template <typename Function>
    void for_each_importer(Function &&function) const
    {
        for (uint32_t i = 0; i < max_importers; ++i) {
            importer_entry &entry = page().importers[i];
            if (entry.claim.load() == 0) {
                if (entry.process.pid == 0) {
                    return; /* nobody was ever here, or behind */
                }
                continue;
            }
            if (entry.ready.load() == 1) {
                function(entry);
            }
        }
    }

private:
    ucs_status_t create();
    [[nodiscard]] shared_page &page() const
    {
        return *reinterpret_cast<shared_page *>(mapping_.start());
    }

    std::mutex making_;
    std::atomic<bool> made_{false};
    util::unique_fd fd_;
    util::file_mapping mapping_;
    file_ref file_     = {};
    uint64_t sequence_ = 0; /* last generation */

    struct range {
        uint64_t start;
        uint64_t length;
    };

    mutable std::mutex lock_;   /* the following */
    std::vector<range> ranges_; /* by slot, of all that were ever taken */
    std::vector<uint32_t> free_slots_;
    std::vector<uint32_t> free_hazards_;
    uint32_t hazards_used_ = 0;
};

/** The page of another process, as this one sees it. */
class foreign_page {
public:
    /** Map the page of a process. @param fd  Of it; stays the caller's.
     *  @return UCS_ERR_INVALID_PARAM: it is no such page; said at debug level.
     */
    [[nodiscard]] static ucs_status_t
    map(int fd, const process_id &process,
        std::unique_ptr<foreign_page> &page_p);

    ~foreign_page();

    /** What is in a slot now. @param slot  Below max_slots. */
    [[nodiscard]] uint64_t slot(uint32_t slot) const
    {
        return page().slots[slot].load();
    }

    /** Buffers of it that are no more. */
    [[nodiscard]] uint64_t ended() const { return page().ended.load(); }

    /** Whether the process has become another program, whose memory is not what
     *  keys stand for. A system call.
     *  @param memory  Of the process. false when we may not read it. */
    [[nodiscard]] bool is_left(const util::process_memory &memory) const;

    /** Whether the process is using something right now. */
    [[nodiscard]] bool is_using(uint64_t owner, uint64_t generation) const;

    /** Enter this process into the list of those who use memory of that one;
     *  the destructor takes it out. UCS_ERR_NO_RESOURCE: the list is full. */
    [[nodiscard]] ucs_status_t enter(const file_ref &own_file);

private:
    foreign_page() = default;
    [[nodiscard]] shared_page &page() const
    {
        return *reinterpret_cast<shared_page *>(mapping_.start());
    }

    util::file_mapping mapping_;
    importer_entry *entry_ = nullptr; /* ours */
};

} // namespace gaudi::ipc
