/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a component and its memory domain are to UCX.
 *
 * A component is a class derived from memory_domain, whose functions know
 * nothing of UCX's tables, of parameters that differ between UCX releases, and
 * of exceptions that must not reach UCX. Those that it leaves out say that the
 * operation is not supported. `component` (component.h) makes UCX's tables of
 * the class:
 *
 *   static constexpr char name[];      of the component
 *   static constexpr char title[], prefix[];  of its variables
 *   struct config;                     begins with uct_md_config_t
 *   static ucs_config_field_t config_table[];
 *   static bool is_available();        whether there is a domain to open
 *   static ucs_status_t open(const config &, std::unique_ptr<Domain> &);
 *   void close();
 *   void query(md_properties &) const;
 *   ucs_status_t register_memory(void *, size_t, bool quiet, uct_mem_h &);
 *   ucs_status_t deregister(uct_mem_h, uct_completion_t *invalidated);
 *                                      see invalidates_at_once
 *   void add_files(void *object);      to UCX's virtual file system
 *
 * and the functions of memory_domain. Results are filled on success. None is
 * called in a process that is cut off, but those that tell memory types.
 */
#pragma once

#include "uct/gaudi/base/ucx/ucx.h"
#include "util/process.h"

#include <compare>
#include <cstddef>
#include <memory>
#include <span>

namespace gaudi::base {

/** Whether a deregistration that invalidates has to call its completion before
 *  it returns. UCP demands that from 1.16 on: the completion lies on its stack.
 *  Before, it may be called at any later progress. */
inline constexpr bool invalidates_at_once = UCT_API >= UCT_VERSION(1, 16);

/** What a memory domain says of itself. Memory types are bits. */
struct md_properties {
    bool allocates = false; /**< and takes advice */
    bool needs_key = false; /**< remote memory is reached by keys,
                                 and copied between processes */
    uint64_t registered_types = 0;
    uint64_t accessed_types   = 0;
    uint64_t allocated_types  = 0;
    uint64_t detected_types   = 0;
    uint64_t exported_types   = 0; /**< there are dma-bufs of */
    size_t packed_key_bytes   = 0;
    double reg_cost           = 0; /**< seconds, */
    double reg_cost_per_byte  = 0; /**< and seconds/byte */
    ucs_cpu_set_t local_cpus{};
};

/** What is known of memory at an address. */
struct memory_description {
    ucs_memory_type_t type;
    ucs_sys_device_t device;
    uint64_t start; /**< of the range that is one piece with it */
    uint64_t end;
};

/** A number that UCX's virtual file system shows. */
struct vfs_number {
    const char *name;
    uint64_t (*read)();
};

/** Add a file for each number. @param directory  Below the object's. */
void add_vfs_numbers(void *object, const char *directory,
                     std::span<const vfs_number> numbers);

/** A memory domain. */
class memory_domain {
public:
    /** Whether deregistering can wait for the last access of others. */
    static constexpr bool invalidates = false;
    /** Whether UCX is to ask it before its own module for the same memory:
     *  UCP takes dma-bufs from the first that says it has them. */
    static constexpr bool comes_first = false;

    /** @param device  The one to allocate on, or UCS_SYS_DEVICE_ID_UNKNOWN. */
    ucs_status_t allocate(size_t &, void *&, ucs_memory_type_t,
                          ucs_sys_device_t, bool, uct_mem_h &)
    {
        return UCS_ERR_UNSUPPORTED;
    }
    ucs_status_t free(uct_mem_h) { return UCS_ERR_UNSUPPORTED; }
    ucs_status_t advise(uct_mem_h, void *, size_t, unsigned)
    {
        return UCS_ERR_UNSUPPORTED;
    }
    ucs_status_t describe(const void *, size_t, memory_description &)
    {
        return UCS_ERR_UNSUPPORTED;
    }
    ucs_status_t detect(const void *, ucs_memory_type_t &)
    {
        return UCS_ERR_UNSUPPORTED;
    }
    /** Make a dma-buf of memory that was described.
     *  @param fd_p      A new descriptor, owned by the caller, and
     *  @param offset_p  where in it the memory begins, bytes.
     *  @return Of memory that has none, an error; not logged. */
    ucs_status_t export_dmabuf(const void *, size_t, int &, size_t &)
    {
        return UCS_ERR_UNSUPPORTED;
    }
    /** Keys are empty unless a class says otherwise. */
    ucs_status_t pack_key(uct_mem_h, void *) { return UCS_OK; }
    /** @param key_p  Filled after a failure, too. */
    static ucs_status_t unpack_key(const void *, uct_rkey_t &key_p)
    {
        key_p = 0;
        return UCS_OK;
    }
    static void release_key(uct_rkey_t) {}
    /** Order of unpacked keys: the same memory, in the same registration, is
     *  equal. */
    static std::strong_ordering compare_keys(uct_rkey_t, uct_rkey_t)
    {
        return std::strong_ordering::equal;
    }

protected:
    /** The handle behind a uct_mem_h; nullptr, and logged, if it is none. */
    template <typename Handle>
    [[nodiscard]] Handle *to_handle(uct_mem_h memh, const char *doing) const
    {
        auto *handle = static_cast<Handle *>(memh);
        if ((handle == nullptr) || !handle->is_valid()) {
            ucs_error("%s: %s: %p is no memory handle of this domain",
                      super_.component->name, doing, memh);
            return nullptr;
        }
        return handle;
    }

private:
    template <typename Domain>
    friend struct component_functions;

    uct_md_t super_{}; /* first: UCX has pointers to it */
    util::in_use open_;
};

} // namespace gaudi::base
