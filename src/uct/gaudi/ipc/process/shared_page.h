/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a process shows to those that use its memory, and they to it.
 *
 * One sealed memfd per process, sparse:
 *
 *   cells    a word each; it holds the stamp of the key that has the cell now,
 *            and 0 when none does. No two keys of a process ever have the same
 *            stamp
 *   hazards  stamps of other processes' keys that this one is using right now
 *
 * A user writes a hazard, then looks at the cell; the owner changes the cell,
 * then looks at the hazards of its importers. So no use that the owner does not
 * see starts after the change.
 *
 * Nothing that another process wrote is trusted: what does not make sense ends
 * up as an error, a wait with a bound, or memory that stays pinned for it.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/ipc/process/pace.h"
#include "uct/gaudi/ipc/process/remote_process.h"
#include "util/file_mapping.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gaudi::ipc {

inline constexpr uint32_t max_cells   = 1u << 22;
inline constexpr uint32_t max_hazards = 1u << 20;

struct page_header {
    static constexpr uint64_t right_magic = 0x6567617069647561;

    uint64_t magic;
    uint32_t version;     /**< wire_version */
    uint32_t copies_host; /**< 1: it copies its host memory, too, see below */
    process_id process;
    uint64_t address; /**< of this page in the process */
    file_ref copies; /**< who brings a ring (serving/copy_ring.h) is copied for;
                          zero before the first key */
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

/**
 * Another process, one whose memory this one uses or that uses memory of this
 * one: what it says in its page, and whether it is still there.
 *
 * Threads: any; no locks.
 */
class foreign_page {
public:
    /** Map the page of a process. @param fd  Of it; stays the caller's.
     *  @return UCS_ERR_INVALID_PARAM: it is no such page. UCS_ERR_NO_MEMORY.
     *          Said at debug level. */
    [[nodiscard]] static ucs_status_t
    map(int fd, std::shared_ptr<remote_process> process,
        std::shared_ptr<foreign_page> &page_p);

    [[nodiscard]] const remote_process &process() const { return *process_; }

    /** What is in a cell now. @param cell  Below max_cells. */
    [[nodiscard]] uint64_t cell(uint32_t cell) const
    {
        return page().cells[cell].load();
    }

    /** Where it is asked to copy for others; zero: nowhere. */
    [[nodiscard]] file_ref copy_service() const { return page().copies; }

    /** Whether it is asked there for its host memory, too. */
    [[nodiscard]] bool copies_host() const { return page().copies_host == 1; }

    /** Whether the process is using something right now. */
    [[nodiscard]] bool is_using(uint64_t owner, uint64_t stamp) const;

    /** Whether the process has ended, or has executed another program, whose
     *  memory is not what keys stand for. System calls. */
    [[nodiscard]] bool has_left() const;

    /** The same; the kernel is asked every few milliseconds. */
    [[nodiscard]] bool is_dead();

    /** Its card's ports write to memory of this process from now on. */
    void note_ports() { has_ports_.store(true); }
    [[nodiscard]] bool has_ports() const { return has_ports_.load(); }

    /** Whether it has left, and nothing that it had begun goes on: what is
     *  under way over ports does, for a while. System calls. */
    [[nodiscard]] bool is_quiet();
    /** Whether that was asked since it has left. */
    [[nodiscard]] bool is_ending() const { return quiet_at_.load() != 0; }

    /** Whether the kernel lets us read and write its host memory; why not is
     *  said at debug level, once. */
    [[nodiscard]] bool has_memory();

private:
    /* How long what the kernel said of a process is taken for true, seconds. */
    static constexpr double trust = 5e-3;

    explicit foreign_page(std::shared_ptr<remote_process> process)
        : process_(std::move(process))
    {}
    [[nodiscard]] const shared_page &page() const
    {
        return *reinterpret_cast<const shared_page *>(mapping_.start());
    }

    const std::shared_ptr<remote_process> process_;
    util::file_mapping mapping_;
    pace asking_{trust};
    std::atomic<bool> dead_{false};
    std::atomic<bool> has_ports_{false};
    std::atomic<std::chrono::steady_clock::rep> quiet_at_{0}; /* 0: open */
    std::atomic<int> memory_{-1}; /* has_memory, -1: not known */
};

/**
 * The page of this process, and the processes that use its memory.
 *
 * Whoever asks the file service for the page brings its own one: that makes it
 * an importer, until it has ended. Any thread; one lock, a leaf.
 */
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

    /** For a key.
     *  @param start,length  What it is of, for @ref is_current.
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

    /** Let others find what copies for them. Once, before the first key. */
    void offer_copies(const file_ref &service);

    /** A copy for another process begins, or ends, by a key of a range around
     *  this one. @return false: it is not current, or no key. */
    [[nodiscard]] bool begin_use(const mark &asked, uint64_t start,
                                 uint64_t length);
    void end_use(uint64_t stamp);

    /** Wait until no such copy is under way by a key that has ended: all that
     *  was asked for before. */
    void await_own_uses(uint64_t stamp);

    /** A hazard of this process, with no uses; nullptr when none is left. */
    [[nodiscard]] hazard_entry *take_hazard(uint64_t owner, uint64_t stamp);
    void give_hazard(hazard_entry *hazard);

    /** A process that has asked for this page; nullptr: it has not. */
    [[nodiscard]] std::shared_ptr<foreign_page>
    find_importer(const process_id &id) const;

    /** Who uses a key. */
    struct key_user {
        uint32_t pid;
        bool has_left; /* but it is not quiet yet */
    };
    /** Who uses a key right now, if anybody does: one that lives rather than
     *  one that has left. A look at the hazards of all importers, and system
     *  calls for those that use it. */
    [[nodiscard]] std::optional<key_user> find_user(uint64_t stamp);

    /** An importer costs a descriptor and a mapping. @return Whether some that
     *  have ended are not quiet yet. */
    static bool forget_dead_importers();

private:
    static constexpr size_t max_importers = 1u << 12;

    struct range {
        uint64_t start;
        uint64_t length;
    };

    static ucs_status_t take_importer(const process_id &sender,
                                      file_pair brought);
    [[nodiscard]] bool covers(const mark &asked, uint64_t start,
                              uint64_t length) const;
    ucs_status_t create();
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
    std::unordered_map<uint64_t, unsigned> own_uses_; /* by stamp */
    std::unordered_map<uint64_t, std::shared_ptr<foreign_page>>
        importers_; /* by nonce */
};

} // namespace gaudi::ipc
