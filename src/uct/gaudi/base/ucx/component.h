/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * UCX's tables of a component and of its memory domain, made of a class
 * (memory_domain.h). Where parameters differ between releases, the function
 * that fits the table's slot is taken.
 */
#pragma once

#include "uct/gaudi/base/ucx/absent.h"
#include "uct/gaudi/base/ucx/config.h"
#include "uct/gaudi/base/ucx/memory_domain.h"
#include "uct/gaudi/base/ucx/status.h"

#include <climits>
#include <cstddef>
#include <memory>
#include <utility>

namespace gaudi::base {

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
        const ucs_status_t status = guarded_entry(
            [] { return Domain::is_available() ? UCS_OK : UCS_ERR_NO_DEVICE; });
        if (status == UCS_OK) {
            return uct_md_query_single_md_resource(component, resources_p,
                                                   num_resources_p);
        }
        if (status == UCS_ERR_UNSUPPORTED) {
            return status;
        }
        /* UCX parses the tables of a component that has a domain, and warns
         * about variables of tables that it never parsed. */
        uct_tl_t *tl;
        mark_variables_used(component->md_config);
        ucs_list_for_each(tl, &component->tl_list, list)
        {
            mark_variables_used(tl->config);
        }
        return uct_md_query_empty_md_resource(resources_p, num_resources_p);
    }

    static ucs_status_t md_open(uct_component_t *component, const char *,
                                const uct_md_config_t *config,
                                uct_md_h *md_p) noexcept
    {
        return guarded_entry([&] {
            std::unique_ptr<Domain> domain;
            const ucs_status_t status = Domain::open(
                *reinterpret_cast<const typename Domain::config *>(config),
                domain);
            if (status == UCS_OK) {
                *md_p              = &domain.release()->super_;
                (*md_p)->ops       = &md_ops;
                (*md_p)->component = component;
            }
            return status;
        });
    }

    static void close(uct_md_h md) noexcept
    {
        if (!util::is_cut_off()) {
            of(md).close();
            delete &of(md);
        }
    }

    /* The attributes of UCX 1.13 are in groups. */
    template <typename Attributes>
    static ucs_status_t query(uct_md_h md, Attributes *attr) noexcept
    {
        GAUDI_IF_THERE(uct_md_base_md_query(attr), uct_md_base_md_query(attr))
        md_properties own;
        const ucs_status_t status = guarded_entry([&] {
            of(md).query(own);
            return UCS_OK;
        });
        const auto set            = [&](auto &cap) {
            cap.flags            = flags_of(own);
            cap.reg_mem_types    = own.registered_types;
            cap.access_mem_types = own.accessed_types;
            cap.alloc_mem_types  = own.allocated_types;
            cap.detect_mem_types = own.detected_types;
            cap.max_alloc        = own.allocates ? SIZE_MAX : 0;
            cap.max_reg          = ULONG_MAX;
            GAUDI_IF_THERE(cap.dmabuf_mem_types,
                                      cap.dmabuf_mem_types = own.exported_types)
            /* From 1.14 on UCP keeps registrations of its own, and demands that
             * what it sends can be kept. */
            GAUDI_IF_THERE(cap.cache_mem_types,
                                      cap.cache_mem_types = own.registered_types)
            GAUDI_IF_THERE(cap.reg_alignment, cap.reg_alignment = 1)
        };
        if constexpr (requires { attr->cap; }) {
            set(attr->cap);
        } else {
            set(*attr);
        }
        attr->rkey_packed_size = own.packed_key_bytes;
        attr->reg_cost =
            ucs_linear_func_make(own.reg_cost, own.reg_cost_per_byte);
        attr->local_cpus = own.local_cpus;
        return status;
    }

    static ucs_status_t mem_alloc(uct_md_h md, size_t *length_p,
                                  void **address_p, ucs_memory_type_t type,
                                  ucs_sys_device_t device, unsigned flags,
                                  const char *, uct_mem_h *memh_p) noexcept
    {
        return guarded_entry([&] {
            return of(md).allocate(*length_p, *address_p, type, device,
                                   is_quiet(flags), *memh_p);
        });
    }

    /* UCX 1.18 and before do not choose the device. */
    static ucs_status_t mem_alloc(uct_md_h md, size_t *length_p,
                                  void **address_p, ucs_memory_type_t type,
                                  unsigned flags, const char *name,
                                  uct_mem_h *memh_p) noexcept
    {
        return mem_alloc(md, length_p, address_p, type,
                         UCS_SYS_DEVICE_ID_UNKNOWN, flags, name, memh_p);
    }

    static ucs_status_t mem_free(uct_md_h md, uct_mem_h memh) noexcept
    {
        return util::is_cut_off() ? UCS_OK
                                  : guarded([&] { return of(md).free(memh); });
    }

    static ucs_status_t mem_advise(uct_md_h md, uct_mem_h memh, void *address,
                                   size_t length, unsigned advice) noexcept
    {
        return guarded_entry(
            [&] { return of(md).advise(memh, address, length, advice); });
    }

    [[gnu::flatten]] static ucs_status_t mem_reg(uct_md_h md, void *address,
                                                 size_t length, unsigned flags,
                                                 uct_mem_h *memh_p) noexcept
    {
        return guarded_entry([&] {
            return of(md).register_memory(address, length, is_quiet(flags),
                                          *memh_p);
        });
    }

    template <typename Parameters> /* from UCX 1.14 on */
    static ucs_status_t mem_reg(uct_md_h md, void *address, size_t length,
                                const Parameters *params,
                                uct_mem_h *memh_p) noexcept
    {
        const bool has_flags =
            (params->field_mask & ::UCT_MD_MEM_REG_FIELD_FLAGS) != 0;
        return mem_reg(md, address, length,
                       has_flags ? static_cast<unsigned>(params->flags) : 0,
                       memh_p);
    }

    [[gnu::flatten]] static ucs_status_t
    mem_dereg(uct_md_h md, const uct_md_mem_dereg_params_t *params) noexcept
    {
        UCT_MD_MEM_DEREG_CHECK_PARAMS(params, Domain::invalidates);
        const unsigned flags =
            UCT_MD_MEM_DEREG_FIELD_VALUE(params, flags, FIELD_FLAGS, 0u);
        uct_completion_t *completion = nullptr;
        if (Domain::invalidates && (flags & UCT_MD_MEM_DEREG_FLAG_INVALIDATE)) {
            completion = UCT_MD_MEM_DEREG_FIELD_VALUE(
                params, comp, FIELD_COMPLETION, completion);
            if (completion == nullptr) {
                ucs_error("%s: mem_dereg: an invalidation needs a completion",
                          Domain::name);
                return UCS_ERR_INVALID_PARAM;
            }
        }
        if (util::is_cut_off()) {
            if (completion != nullptr) {
                uct_invoke_completion(completion, UCS_OK);
            }
            return UCS_OK;
        }
        return guarded(
            [&] { return of(md).deregister(params->memh, completion); });
    }

    template <typename Attributes>
    static ucs_status_t mem_query(uct_md_h md, const void *address,
                                  size_t length, Attributes *attr) noexcept
    {
        const uint64_t fields = attr->field_mask;
        memory_description memory;
        const ucs_status_t status =
            guarded([&] { return of(md).describe(address, length, memory); });
        if (status != UCS_OK) {
            return status;
        }
        if (fields & UCT_MD_MEM_ATTR_FIELD_MEM_TYPE) {
            attr->mem_type = memory.type;
        }
        if (fields & UCT_MD_MEM_ATTR_FIELD_SYS_DEV) {
            attr->sys_dev = memory.device;
        }
        if (fields & UCT_MD_MEM_ATTR_FIELD_BASE_ADDRESS) {
            attr->base_address = reinterpret_cast<void *>(memory.start);
        }
        if (fields & UCT_MD_MEM_ATTR_FIELD_ALLOC_LENGTH) {
            attr->alloc_length = memory.end - memory.start;
        }
        if constexpr (requires { attr->dmabuf_fd; }) {
            /* UCX closes it. Only with one does the offset mean anything. */
            int fd        = -1;
            size_t offset = 0;
            if (fields & ::UCT_MD_MEM_ATTR_FIELD_DMABUF_FD) {
                if (guarded_entry([&] {
                        return of(md).export_dmabuf(address, length, fd,
                                                    offset);
                    }) != UCS_OK) {
                    fd = -1;
                }
                attr->dmabuf_fd = fd;
            }
            if (fields & ::UCT_MD_MEM_ATTR_FIELD_DMABUF_OFFSET) {
                attr->dmabuf_offset = offset;
            }
        }
        return UCS_OK;
    }

    static ucs_status_t mkey_pack(uct_md_h md, uct_mem_h memh,
                                  const uct_md_mkey_pack_params_t *,
                                  void *buffer) noexcept
    {
        return guarded_entry([&] { return of(md).pack_key(memh, buffer); });
    }

    /* UCX 1.16 and later name a part, in the key of the whole. */
    static ucs_status_t mkey_pack(uct_md_h md, uct_mem_h memh, void *, size_t,
                                  const uct_md_mkey_pack_params_t *params,
                                  void *buffer) noexcept
    {
        return mkey_pack(md, memh, params, buffer);
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
            guarded_entry([&] { return Domain::unpack_key(buffer, key); });
        /* After a failure, too: UCP 1.13 then releases what is there, which
         * would be a key of before. */
        *rkey_p   = key;
        *handle_p = nullptr;
        return status;
    }

    template <typename Parameters> /* from UCX 1.19 on */
    static ucs_status_t rkey_unpack(uct_component_t *component,
                                    const void *buffer, const Parameters *,
                                    uct_rkey_t *rkey_p,
                                    void **handle_p) noexcept
    {
        return rkey_unpack(component, buffer, rkey_p, handle_p);
    }

    static ucs_status_t rkey_release(uct_component_t *, uct_rkey_t rkey,
                                     void *) noexcept
    {
        if (!util::is_cut_off()) {
            Domain::release_key(rkey);
        }
        return UCS_OK;
    }

    template <typename Parameters>
    static ucs_status_t
    rkey_compare(uct_component_t *, uct_rkey_t first, uct_rkey_t second,
                 const Parameters *params, int *result) noexcept
    {
        if ((params->field_mask != 0) || (result == nullptr)) {
            return UCS_ERR_INVALID_PARAM;
        }
        const auto order = Domain::compare_keys(first, second);
        *result          = (order > 0) - (order < 0);
        return UCS_OK;
    }

    static void md_vfs_init(uct_md_h md) noexcept { of(md).add_files(md); }

    template <typename Operations>
    static consteval Operations make_operations()
    {
        table_builder<Operations> table;
        Operations &own = table.own;
        table.set(own.close, close);
        table.set(own.query, query);
        table.set(own.mem_alloc, mem_alloc);
        table.set(own.mem_free, mem_free);
        table.set(own.mem_advise, mem_advise);
        table.set(own.mem_reg, mem_reg);
        table.set(own.mem_dereg, mem_dereg);
        table.set(own.mem_query, mem_query);
        table.set(own.mkey_pack, mkey_pack);
        table.set(own.detect_memory_type, detect_memory_type);
        GAUDI_IF_THERE(
            own.is_sockaddr_accessible,
            table.set(own.is_sockaddr_accessible, [](auto...) { return 0; }))
        GAUDI_IF_THERE(own.mem_attach, table.decline(own.mem_attach))
        GAUDI_IF_THERE(own.mem_elem_pack, table.decline(own.mem_elem_pack))
        GAUDI_IF_THERE(own.mem_elem_release,
                       table.decline(own.mem_elem_release))
        return table.finish();
    }

    static constinit inline uct_md_ops_t md_ops =
        make_operations<uct_md_ops_t>();

    template <typename Component, size_t... I>
    static constexpr Component make(Component *self, std::index_sequence<I...>)
    {
        /* Only the name has to be there from the start. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
        Component own = {{Domain::name[I]...}};
#pragma GCC diagnostic pop
        own.query_md_resources = query_md_resources;
        own.md_open            = md_open;
        own.cm_open            = unsupported<decltype(own.cm_open)>::op;
        own.rkey_unpack        = rkey_unpack;
        own.rkey_ptr           = unsupported<decltype(own.rkey_ptr)>::op;
        own.rkey_release       = rkey_release;
        own.md_config          = make_config_entry<Domain>();
        own.cm_config.name     = "";
        own.cm_config.prefix   = "";
        own.tl_list            = {&self->tl_list, &self->tl_list};
        own.md_vfs_init        = md_vfs_init;
        GAUDI_IF_THERE(own.rkey_compare, own.rkey_compare = rkey_compare)
        constexpr size_t functions =
            6 + (requires { own.rkey_compare; } ? 1 : 0);
        static_assert(offsetof(Component, md_config) ==
                          offsetof(Component, query_md_resources) +
                              functions * sizeof(void *),
                      "UCX has a slot that is not known here");
        return own;
    }

private:
    static bool is_quiet(unsigned flags)
    {
        return (flags & UCT_MD_MEM_FLAG_HIDE_ERRORS) != 0;
    }

    static uint64_t flags_of(const md_properties &own)
    {
        uint64_t flags = UCT_MD_FLAG_REG;
        if (own.allocates) {
            flags |= UCT_MD_FLAG_ALLOC | UCT_MD_FLAG_ADVISE;
        }
        if (own.needs_key) {
            flags |= UCT_MD_FLAG_NEED_RKEY;
            flags |= ::UCT_MD_FLAG_MEMTYPE_COPY;
        }
        if (Domain::invalidates) {
            flags |= UCT_MD_FLAG_INVALIDATE;
            flags |= ::UCT_MD_FLAG_INVALIDATE_RMA;
            flags |= ::UCT_MD_FLAG_INVALIDATE_AMO;
        }
        return flags;
    }
};

/** UCX's table of a component. */
template <typename Domain>
constinit uct_component_t component = component_functions<Domain>::make(
    &component<Domain>, std::make_index_sequence<sizeof(Domain::name)>());

} // namespace gaudi::base
