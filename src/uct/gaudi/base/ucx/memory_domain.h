/**
 * What a component and its memory domain are to UCX.
 *
 * A component is a class derived from memory_domain, whose functions know
 * nothing of UCX's tables, of parameters that differ between UCX releases, and
 * of exceptions that must not reach UCX. Those that it leaves out say that the
 * operation is not supported. @ref component makes UCX's tables of the class:
 *
 *   static constexpr char name[];      of the component
 *   static constexpr char title[], prefix[];  of its variables
 *   struct config;                     begins with uct_md_config_t
 *   static ucs_config_field_t config_table[];
 *   static bool is_available();        whether there is a domain to open
 *   static ucs_status_t open(const config &, std::unique_ptr<Domain> &);
 *   void close();                      not called in a forked child
 *   void query(md_properties &) const;
 *   ucs_status_t register_memory(void *, size_t, bool quiet, uct_mem_h &);
 *   ucs_status_t deregister(uct_mem_h, uct_completion_t *invalidated);
 *   void add_files(void *object);      to UCX's virtual file system
 *
 * and the functions of memory_domain. Results are filled on success.
 */
#pragma once

#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/base/ucx/ucx.h"
#include "uct/gaudi/base/ucx/unsupported.h"
#include "util/process.h"

#include <climits>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace gaudi::base {

/** What a memory domain says of itself. Memory types are bits. */
struct md_properties {
    bool allocates            = false; /**< and takes advice */
    bool needs_key            = false; /**< remote memory is reached by keys */
    uint64_t registered_types = 0;
    uint64_t accessed_types   = 0;
    uint64_t allocated_types  = 0;
    uint64_t detected_types   = 0;
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

/** A memory domain, and whose it is. */
class memory_domain {
public:
    /** Whether deregistering can wait for the last access of others. */
    static constexpr bool invalidates = false;

    ucs_status_t allocate(size_t &, void *&, ucs_memory_type_t, bool,
                          uct_mem_h &)
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
    /** Keys are empty unless a class says otherwise. */
    ucs_status_t pack_key(uct_mem_h, void *) { return UCS_OK; }
    /** @param key_p  Filled after a failure, too. */
    static ucs_status_t unpack_key(const void *, uct_rkey_t &key_p)
    {
        key_p = 0;
        return UCS_OK;
    }
    static void release_key(uct_rkey_t) {}

protected:
    /** Whether the process that opened it is a parent of this one, which has no
     *  part in its cards then. */
    [[nodiscard]] bool is_inherited() const
    {
        return generation_ != util::process_generation();
    }

    /** Log that. @param quiet  As a diagnostic, not as an error. */
    ucs_status_t refuse_inherited(bool quiet) const;

    /** The handle behind a uct_mem_h; nullptr, and logged, if it is none. */
    template <typename Handle>
    [[nodiscard]] Handle *to_handle(uct_mem_h memh, const char *doing) const
    {
        auto *handle = static_cast<Handle *>(memh);
        if ((handle == nullptr) || !handle->is_valid()) {
            log_bad_handle(memh, doing);
            return nullptr;
        }
        return handle;
    }

private:
    template <typename Domain>
    friend struct component_functions;

    void log_bad_handle(uct_mem_h memh, const char *doing) const;

    uct_md_t super_{}; /* first: UCX has pointers to it */
    unsigned generation_ = util::process_generation();
};

/** UCX's operations of a memory domain, by the functions of a class. */
template <typename Domain>
struct component_functions {
    static Domain &of(uct_md_h md)
    {
        static_assert(offsetof(memory_domain, super_) == 0);
        return static_cast<Domain &>(*reinterpret_cast<memory_domain *>(md));
    }

    static ucs_status_t query_md_resources(uct_component_t *component,
                                           uct_md_resource_desc_t **resources_p,
                                           unsigned *num_resources_p) noexcept
    {
        const ucs_status_t status = guarded(
            [] { return Domain::is_available() ? UCS_OK : UCS_ERR_NO_DEVICE; });
        return (status == UCS_OK)
                   ? uct_md_query_single_md_resource(component, resources_p,
                                                     num_resources_p)
                   : uct_md_query_empty_md_resource(resources_p,
                                                    num_resources_p);
    }

    static ucs_status_t md_open(uct_component_t *component, const char *,
                                const uct_md_config_t *config,
                                uct_md_h *md_p) noexcept
    {
        return guarded([&] {
            std::unique_ptr<Domain> domain;
            const ucs_status_t status = Domain::open(
                *reinterpret_cast<const typename Domain::config *>(config),
                domain);
            if (status == UCS_OK) {
                uct_md_t &super = domain.release()->super_;
                super.ops       = &md_ops;
                super.component = component;
                *md_p           = &super;
            }
            return status;
        });
    }

    static void close(uct_md_h md) noexcept
    {
        if (!of(md).is_inherited()) {
            of(md).close();
        }
        delete &of(md);
    }

    static ucs_status_t query(uct_md_h md, uct_md_attr_t *attr) noexcept
    {
        md_properties own;
        const ucs_status_t status = guarded([&] {
            of(md).query(own);
            return UCS_OK;
        });
        attr->cap.flags =
            UCT_MD_FLAG_REG |
            (own.allocates ? UCT_MD_FLAG_ALLOC | UCT_MD_FLAG_ADVISE : 0) |
            (own.needs_key ? UCT_MD_FLAG_NEED_RKEY : 0) |
            (Domain::invalidates ? UCT_MD_FLAG_INVALIDATE : 0);
        attr->cap.reg_mem_types    = own.registered_types;
        attr->cap.access_mem_types = own.accessed_types;
        attr->cap.alloc_mem_types  = own.allocated_types;
        attr->cap.detect_mem_types = own.detected_types;
        attr->cap.max_alloc        = own.allocates ? SIZE_MAX : 0;
        attr->cap.max_reg          = ULONG_MAX;
        attr->rkey_packed_size     = own.packed_key_bytes;
        attr->reg_cost =
            ucs_linear_func_make(own.reg_cost, own.reg_cost_per_byte);
        attr->local_cpus = own.local_cpus;
        return status;
    }

    static ucs_status_t mem_alloc(uct_md_h md, size_t *length_p,
                                  void **address_p, ucs_memory_type_t type,
                                  unsigned flags, const char *,
                                  uct_mem_h *memh_p) noexcept
    {
        return guarded([&] {
            return of(md).allocate(*length_p, *address_p, type, is_quiet(flags),
                                   *memh_p);
        });
    }

    static ucs_status_t mem_free(uct_md_h md, uct_mem_h memh) noexcept
    {
        return guarded([&] { return of(md).free(memh); });
    }

    static ucs_status_t mem_advise(uct_md_h md, uct_mem_h memh, void *address,
                                   size_t length, unsigned advice) noexcept
    {
        return guarded(
            [&] { return of(md).advise(memh, address, length, advice); });
    }

    static ucs_status_t mem_reg(uct_md_h md, void *address, size_t length,
                                unsigned flags, uct_mem_h *memh_p) noexcept
    {
        return guarded([&] {
            return of(md).register_memory(address, length, is_quiet(flags),
                                          *memh_p);
        });
    }

    static ucs_status_t
    mem_dereg(uct_md_h md, const uct_md_mem_dereg_params_t *params) noexcept
    {
        UCT_MD_MEM_DEREG_CHECK_PARAMS(params, Domain::invalidates);
        const unsigned flags =
            UCT_MD_MEM_DEREG_FIELD_VALUE(params, flags, FIELD_FLAGS, 0u);
        uct_completion_t *completion = UCT_MD_MEM_DEREG_FIELD_VALUE(
            params, comp, FIELD_COMPLETION,
            static_cast<uct_completion_t *>(nullptr));
        const bool invalidates =
            Domain::invalidates && (flags & UCT_MD_MEM_DEREG_FLAG_INVALIDATE);
        if (invalidates && (completion == nullptr)) {
            ucs_error("%s: mem_dereg: an invalidation needs a completion",
                      Domain::name);
            return UCS_ERR_INVALID_PARAM;
        }
        return guarded([&] {
            return of(md).deregister(params->memh,
                                     invalidates ? completion : nullptr);
        });
    }

    static ucs_status_t mem_query(uct_md_h md, const void *address,
                                  size_t length,
                                  uct_md_mem_attr_t *attr) noexcept
    {
        memory_description memory;
        const ucs_status_t status =
            guarded([&] { return of(md).describe(address, length, memory); });
        if (status != UCS_OK) {
            return status;
        }
        if (attr->field_mask & UCT_MD_MEM_ATTR_FIELD_MEM_TYPE) {
            attr->mem_type = memory.type;
        }
        if (attr->field_mask & UCT_MD_MEM_ATTR_FIELD_SYS_DEV) {
            attr->sys_dev = memory.device;
        }
        if (attr->field_mask & UCT_MD_MEM_ATTR_FIELD_BASE_ADDRESS) {
            attr->base_address = reinterpret_cast<void *>(memory.start);
        }
        if (attr->field_mask & UCT_MD_MEM_ATTR_FIELD_ALLOC_LENGTH) {
            attr->alloc_length = memory.end - memory.start;
        }
        return UCS_OK;
    }

    static ucs_status_t mkey_pack(uct_md_h md, uct_mem_h memh,
                                  const uct_md_mkey_pack_params_t *,
                                  void *buffer) noexcept
    {
        return guarded([&] { return of(md).pack_key(memh, buffer); });
    }

    static int is_sockaddr_accessible(uct_md_h, const ucs_sock_addr_t *,
                                      uct_sockaddr_accessibility_t) noexcept
    {
        return 0;
    }

    static ucs_status_t detect_memory_type(uct_md_h md, const void *address,
                                           size_t,
                                           ucs_memory_type_t *type_p) noexcept
    {
        return of(md).detect(address, *type_p);
    }

    static ucs_status_t rkey_unpack(uct_component_t *, const void *buffer,
                                    uct_rkey_t *rkey_p,
                                    void **handle_p) noexcept
    {
        uct_rkey_t key = 0;
        const ucs_status_t status =
            guarded([&] { return Domain::unpack_key(buffer, key); });
        /* After a failure, too: UCP 1.13 then releases what is there, which
         * would be a key of before. */
        *rkey_p   = key;
        *handle_p = nullptr;
        return status;
    }

    static ucs_status_t rkey_release(uct_component_t *, uct_rkey_t rkey,
                                     void *) noexcept
    {
        Domain::release_key(rkey);
        return UCS_OK;
    }

    static void md_vfs_init(uct_md_h md) noexcept { of(md).add_files(md); }

    static constinit uct_md_ops_t md_ops;

    template <size_t... I>
    static constexpr uct_component_t make(uct_component_t *self,
                                          std::index_sequence<I...>)
    {
        return {
            .name               = {Domain::name[I]...},
            .query_md_resources = query_md_resources,
            .md_open            = md_open,
            .cm_open            = unsupported<uct_component_cm_open_func_t>::op,
            .rkey_unpack        = rkey_unpack,
            .rkey_ptr     = unsupported<uct_component_rkey_ptr_func_t>::op,
            .rkey_release = rkey_release,
            .md_config    = {.name   = Domain::title,
                             .prefix = Domain::prefix,
                             .table  = Domain::config_table,
                             .size   = sizeof(typename Domain::config),
                             .list   = {}},
            .cm_config    = {.name   = "",
                             .prefix = "",
                             .table  = nullptr,
                             .size   = 0,
                             .list   = {}},
            .tl_list      = {&self->tl_list, &self->tl_list},
            .list         = {},
            .flags        = 0,
            .md_vfs_init  = md_vfs_init,
        };
    }

private:
    static bool is_quiet(unsigned flags)
    {
        return (flags & UCT_MD_MEM_FLAG_HIDE_ERRORS) != 0;
    }
};

template <typename Domain>
constinit uct_md_ops_t component_functions<Domain>::md_ops = {
    .close                  = close,
    .query                  = query,
    .mem_alloc              = mem_alloc,
    .mem_free               = mem_free,
    .mem_advise             = mem_advise,
    .mem_reg                = mem_reg,
    .mem_dereg              = mem_dereg,
    .mem_query              = mem_query,
    .mkey_pack              = mkey_pack,
    .is_sockaddr_accessible = is_sockaddr_accessible,
    .detect_memory_type     = detect_memory_type,
};

/** UCX's table of a component. */
template <typename Domain>
constinit uct_component_t component = component_functions<Domain>::make(
    &component<Domain>, std::make_index_sequence<sizeof(Domain::name)>());

} // namespace gaudi::base
