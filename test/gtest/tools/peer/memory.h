/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memory of the programs' own, and what has to be in it.
 *
 * The CPU cannot touch device memory: it is filled and looked at by messages
 * that another UCP context sends to itself. Threads: those messages take a
 * lock; everything else belongs to one thread at a time.
 */
#pragma once

#include "gtest/tools/peer/cards.h"
#include "gtest/tools/peer/side.h"

#include <string>
#include <vector>

namespace peer {

enum class kind_of_memory {
    heap,  /**< the program's, registered with UCP unless it is plain */
    host,  /**< host memory that UCP allocated */
    gaudi, /**< device memory: of the program's own card, else from UCP */
};

const char *name_of(kind_of_memory kind);

/** UCP's number of the memory type, by its name. */
ucs_memory_type_t type_of(kind_of_memory kind);

inline constexpr kind_of_memory all_kinds[] = {
    kind_of_memory::heap, kind_of_memory::host, kind_of_memory::gaudi};

/** Memory as its owner tells others of it. */
struct description {
    uint64_t address = 0;
    std::vector<char> key;

    void send(const channel &to) const;
    [[nodiscard]] static description receive(const channel &from);
};

/** Key of mapped memory, for other workers. */
std::vector<char> pack_key(ucp_context_h context, ucp_mem_h handle);

/** sizeof(gaudi::ipc::wire_key), by which its part of a key is known. */
inline constexpr size_t gaudi_part_size = 64;

/** Where gaudi_ipc's part of a packed key begins; its end where it has none. */
size_t find_gaudi_part(const std::vector<char> &key);

/** A piece of memory, mapped by a context. */
class memory {
public:
    /** @param wish   Device memory: a place near which it has to be.
     *  @param plain  Heap: UCP is told nothing of it, there is no handle. */
    memory(const context &of, kind_of_memory kind, size_t size,
           uint64_t wish = 0, bool plain = false);
    ~memory();
    memory(const memory &)            = delete;
    memory &operator=(const memory &) = delete;

    [[nodiscard]] char *data() const { return data_; }
    [[nodiscard]] size_t size() const { return size_; }
    [[nodiscard]] ucp_mem_h handle() const { return handle_; }
    [[nodiscard]] kind_of_memory kind() const { return kind_; }

    /** For other workers. */
    [[nodiscard]] description describe() const;

    void store(size_t offset, const char *from, size_t size);
    void load(size_t offset, char *to, size_t size) const;

private:
    const context &of_;
    kind_of_memory kind_;
    size_t size_;
    std::vector<char> heap_;
    own_memory own_;
    ucp_mem_h handle_ = nullptr;
    char *data_       = nullptr;
};

/** Bytes on either side of a transfer's that must stay as they were. */
inline constexpr size_t guard = 96;

/** Where a transfer's bytes come from or go to. */
struct slot {
    memory &where;
    size_t offset;
    size_t size;
    bool registered; /**< UCP is told the memory's handle, if it has one */

    [[nodiscard]] char *data() const { return where.data() + offset; }
};

/** Bytes of the transfer and around it, all of one seed. */
void prepare(const slot &what, unsigned seed);

/** Dies unless the transfer's bytes are of one seed, those around of another.*/
void expect(const slot &what, unsigned seed, unsigned around);

/** Parameters of an operation on the slot. */
ucp_request_param_t parameters_for(const slot &what);

/** The bytes that everything is filled with, by seed. */
void fill(char *data, size_t size, unsigned seed);
std::vector<char> bytes_of(unsigned seed, size_t size);

/** Dies unless all of them are those of the seed. */
void expect_bytes(const std::vector<char> &there, unsigned seed);

} // namespace peer
