/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memory domain of component gaudi_ipc: registrations that other processes can
 * use, and what keys of other processes stand for.
 *
 * It allocates nothing and tells no memory types: gaudi_copy does. There in
 * every process of a box with cards, in one that has got none of them, too. Any
 * thread.
 */
#pragma once

#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/ucx/memory_domain.h"
#include "uct/gaudi/ipc/exports.h"
#include "uct/gaudi/ipc/remote_key.h"

#include <atomic>

namespace gaudi::ipc {

/** See base/ucx/memory_domain.h for what its functions are for. A handle of it
 *  is an exported_memory, an unpacked key a remote_key. */
class memory_domain : public base::memory_domain {
public:
    static constexpr char name[]      = "gaudi_ipc";
    static constexpr char title[]     = "Gaudi IPC memory domain";
    static constexpr char prefix[]    = "GAUDI_IPC_";
    static constexpr bool invalidates = true;
    struct config {
        uct_md_config_t super;
        int host; /* ucs_ternary_auto_value_t */
    };
    static ucs_config_field_t config_table[];

    static bool is_available();
    static ucs_status_t open(const config &config,
                             std::unique_ptr<memory_domain> &domain_p);
    void close();
    void query(base::md_properties &properties) const;
    ucs_status_t register_memory(void *address, size_t length, bool quiet,
                                 uct_mem_h &memh_p);
    ucs_status_t deregister(uct_mem_h memh, uct_completion_t *invalidated);
    ucs_status_t pack_key(uct_mem_h memh, void *buffer);
    static ucs_status_t unpack_key(const void *buffer, uct_rkey_t &key_p);
    static void release_key(uct_rkey_t key);
    static std::strong_ordering compare_keys(uct_rkey_t first,
                                             uct_rkey_t second);
    void add_files(void *object);

    /** Whether UCP may move host memory to host memory by it. */
    [[nodiscard]] bool moves_host() const { return moves_host_; }

private:
    bool moves_host_ = true;
    bool has_card_   = false; /* when it was opened */
    base::held_cards cards_;  /* if there were any */
    std::atomic<uint64_t> registrations_{0};
};

/** The component, as UCX knows it. */
uct_component_t &component();

/** Add it to UCX's list. Called once, at load. */
void register_component();

} // namespace gaudi::ipc
