/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What agents move: blocks of equal size that lie scattered in several pieces
 * of memory, as the keys and values of a model's layers do. Each piece is
 * registered by itself, and every second block is nobody's: it has to stay as
 * it is.
 */
#pragma once

#include "gtest/tools/peer/agent.h"
#include "gtest/tools/peer/memory.h"

#include <memory>
#include <vector>

namespace peer {

/** How many blocks there are, and of what size. */
struct shape {
    size_t blocks;
    size_t size;
};

/** Whose blocks: of the agent that has the list, or of the other one. */
enum class side_of_list { here, there };

/** One side's blocks. One thread at a time. */
class cache {
public:
    /** @param framework  Has the device memory, and is not the agent's. */
    cache(const agent &of, const context &framework, kind_of_memory kind,
          const shape &how);

    /** Tell the agent of the memory, or that it will be used no longer. */
    void add();
    void remove();

    /** Tell the other side of it. */
    void describe(const channel &to) const;

    /** Fill all, and the blocks so that each differs. */
    void prepare(bool is_source);

    /** Dies unless the list brought each block what belongs there, and left
     *  the rest as it was. */
    void expect(side_of_list side) const;

    [[nodiscard]] char *data(size_t i) const;
    [[nodiscard]] const segment &segment_of(size_t i) const;
    [[nodiscard]] const shape &how() const { return how_; }
    [[nodiscard]] kind_of_memory kind() const { return pieces_[0]->kind(); }

private:
    const agent &of_;
    shape how_;
    std::vector<std::unique_ptr<memory>> pieces_;
    std::vector<std::unique_ptr<segment>> segments_;
};

/** What the other side describes (@ref cache::describe). */
std::vector<description> receive_descriptions(const channel &from);

/** The other side's blocks. */
class remote_cache {
public:
    remote_cache(const connection &to, const std::vector<description> &pieces);

    /** Whether each key could be unpacked. Blocks are only had then. */
    [[nodiscard]] ucs_status_t status() const { return status_; }

    [[nodiscard]] uint64_t address(size_t i, const shape &how) const;
    [[nodiscard]] const remote_segment &segment_of(size_t i) const;

private:
    ucs_status_t status_ = UCS_OK;
    std::vector<remote_segment> segments_;
};

/** Which block there belongs to block @a i here. */
size_t scatter(size_t i, size_t count);

/** The list of all blocks: block i here and block scatter(i) there. */
std::vector<block> list_of(const cache &here, const remote_cache &there);

} // namespace peer
