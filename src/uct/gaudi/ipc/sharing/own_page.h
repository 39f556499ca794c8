/**
 * The shared page of this process, and the processes that use its memory.
 *
 * Whoever asks the file service for the page brings its own one: that makes it
 * an importer, until it has ended. Any thread; one lock, a leaf.
 */
#pragma once

#include "uct/gaudi/ipc/process/remote_process.h"
#include "uct/gaudi/ipc/sharing/pace.h"
#include "uct/gaudi/ipc/sharing/shared_page.h"

#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace gaudi::ipc {

class own_page {
public:
    /** The page, made by the first call that can make it.
     *  @return nullptr when it cannot be made now, which was logged. */
    static own_page *instance();

    own_page() = default;

    [[nodiscard]] const file_ref &file() const { return file_; }
    [[nodiscard]] int fd() const { return fd_.get(); }

    /** A cell with a new stamp in it. */
    struct mark {
        uint32_t cell  = 0;
        uint64_t stamp = 0; /**< 0: none */
    };

    /** @param start,length  What it stands for, for @ref is_current.
     *  @return A mark without stamp when there is no cell left. */
    [[nodiscard]] mark take_cell(uint64_t start, uint64_t length);

    /** What had the cell is no more. Sequentially consistent with the reading
     *  of hazards. */
    void end_cell(const mark &ended);

    [[nodiscard]] bool is_current(const mark &asked) const;

    /** The same, of what stands for this range. */
    [[nodiscard]] bool is_current(const mark &asked, uint64_t start,
                                  uint64_t length) const;

    [[nodiscard]] size_t cells() const; /**< that are taken */

    /** A hazard of this process, with no uses; nullptr when none is left. */
    [[nodiscard]] hazard_entry *take_hazard(uint64_t owner, uint64_t stamp);
    void give_hazard(hazard_entry *hazard);

    /** Who uses a key right now, if anybody does: a pid. A look at the hazards
     *  of all importers, and system calls for those that use it. */
    [[nodiscard]] std::optional<uint32_t> find_user(uint64_t stamp);

    /** An importer costs a descriptor and a mapping. */
    void forget_dead_importers();

    /** The same, now and then; nothing where no page was made. */
    static void forget_dead_sometimes();

    /** Tell importers that a buffer is no more. Waits for nobody. */
    void tell_withdrawal() const;

private:
    static constexpr size_t max_importers   = 1u << 12;
    static constexpr double forget_interval = 50e-3; /* seconds */

    struct importer {
        std::shared_ptr<remote_process> process;
        std::unique_ptr<foreign_page> page;
    };
    struct range {
        uint64_t start;
        uint64_t length;
    };

    static ucs_status_t take_importer(const process_id &sender,
                                      util::unique_fd page);
    ucs_status_t create();
    void forget_dead_locked();
    [[nodiscard]] shared_page &page() const
    {
        return *reinterpret_cast<shared_page *>(mapping_.start());
    }

    std::atomic<bool> made_{false};
    util::unique_fd fd_;
    util::file_mapping mapping_;
    file_ref file_ = {};

    mutable std::mutex lock_; /* making the page, and the following */
    uint64_t last_stamp_ = 0;
    std::vector<range> ranges_; /* by cell, of all that were ever taken */
    std::vector<uint32_t> free_cells_;
    std::vector<uint32_t> free_hazards_;
    uint32_t hazards_used_ = 0;
    std::unordered_map<uint64_t, importer> importers_; /* by nonce */
    pace forgetting_{forget_interval};
};

} // namespace gaudi::ipc
