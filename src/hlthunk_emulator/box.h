/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The emulated machine: its cards' names, and the one file by which its
 * processes know of each other: what box it is, who has which card, how much
 * memory is free, what is on its way.
 *
 * The file is in memory and goes with the last process that has it; others find
 * it in /proc, where an abstract name of each process's says. So a box is one
 * of processes that can look into each other: of one user, and in the same
 * namespaces of network, processes and users. In a folder that HLTHUNK_EMU_NODE
 * names the file is there, and stays; what it says is void as soon as no
 * process is a member of the box.
 *
 * Who has what is a lock of a byte of the file, and gone with its process.
 */
#pragma once

#include "hlthunk_emulator/asic.h"
#include "hlthunk_emulator/traffic.h"
#include "util/file_mapping.h"
#include "util/fork_handlers.h"
#include "util/unique_fd.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

namespace gaudi::emu {

/** Bus id of a card, "dddd:bb:dd.f". */
std::string bus_id_of(unsigned index);

/**
 * Find a card by bus id; the domain may be left out.
 *
 * @return Its index, -1 when the box has no such card.
 */
int index_of_bus_id(const char *bus_id);

/** Names this process's box among all of the machine. */
std::string box_name();

/** The begin of the box file. */
struct box_state {
    uint64_t magic;
    char settings[4096]; /**< as settings_of_box() has them */
    std::array<std::atomic<uint64_t>, max_cards> free_memory; /**< bytes, of
                                                          cards that are open */
    std::atomic<bool> is_changing; /**< somebody has his turn at what follows */
    model_time looked_for_dead;
    traffic all;
};

class box {
public:
    /** That of this process, joined or made by the first call. @throws
     *  bad_alloc. */
    static box &instance();

    /** As instance(). */
    box();
    box(const box &)            = delete;
    box &operator=(const box &) = delete;

    /** 0, -EINVAL when others of the box have other settings, which is
     *  reported on stderr, or another -errno. Nothing else is to be called
     *  then. */
    [[nodiscard]] int error() const { return error_; }

    [[nodiscard]] box_state &state() const
    {
        return *reinterpret_cast<box_state *>(shared_.start());
    }

    /** The traffic, which one thread of all processes has at a time. */
    class turn {
    public:
        explicit turn(const box &of);
        ~turn();
        turn(const turn &)            = delete;
        turn &operator=(const turn &) = delete;

        box_state *operator->() const { return &box_.state(); }

    private:
        static constinit util::child_mutex threads_;

        const std::lock_guard<util::child_mutex> guard_{threads_};
        const box &box_;
    };

    /** Map the wires between ports, which are behind the state. @return 0 or
     *  -errno. */
    int map_wires(size_t bytes, util::file_mapping &mapping_p) const;

    /**
     * Take a card.
     *
     * @return A file descriptor that holds it, with all its copies, -EBUSY, or
     *         another -errno.
     */
    [[nodiscard]] int take_card(unsigned card) const;

    /** Whether a process has a card, this one included, or a dma-buf of it. */
    [[nodiscard]] bool card_is_taken(unsigned card) const;

    /** What one process may have of a card. */
    enum class use : unsigned { compute_node, ports };

    void begin(use what, unsigned card) const;
    void end(use what, unsigned card) const;
    /** Whether another process has it. */
    [[nodiscard]] bool is_elsewhere(use what, unsigned card) const;

    /** Number of this process in the box, and whether another one is there. */
    [[nodiscard]] uint16_t member() const { return member_; }
    [[nodiscard]] bool is_there(uint16_t member) const;

private:
    int join();
    int begin_new();
    int open_found();
    int take_member_number();
    int compare_settings() const;

    util::unique_fd fd_;
    util::closed_in_children closed_in_children_;
    util::unique_fd name_; /* says where others find the file */
    util::closed_in_children name_closed_in_children_;
    util::file_mapping shared_;
    uint16_t member_ = 0;
    int error_       = 0;
};

} // namespace gaudi::emu
