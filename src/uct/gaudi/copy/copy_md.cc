#include "uct/gaudi/copy/copy_md.h"

#include "uct/gaudi/base/memory/registration_cache.h"
#include "uct/gaudi/base/ucx/config.h"
#include "uct/gaudi/base/ucx/memory_events.h"
#include "uct/gaudi/base/ucx/memory_type.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/base/ucx/unsupported.h"
#include "uct/gaudi/copy/copy_iface.h"
#include "util/process.h"

#include <climits>
#include <utility>

namespace gaudi::copy {

namespace {

using base::memory_handle;

struct md_config {
    uct_md_config_t super;
    base::registration_cache::settings registrations;
};

ucs_config_field_t md_config_table[] = {
    {"", "", nullptr, offsetof(md_config, super),
     UCS_CONFIG_TYPE_TABLE(uct_md_config_table)},

    {"RCACHE", "try",
     "Keep registrations for the next one of the same memory. It needs UCX's\n"
     "memory events (UCX_MEM_EVENTS).\n"
     " y     - the memory domain cannot be opened without\n"
     " try   - go without where it cannot be done\n"
     " n     - each registration is one of its own",
     offsetof(md_config, registrations.use), UCS_CONFIG_TYPE_TERNARY},

    {"", base::rcache_config_defaults, nullptr,
     offsetof(md_config, registrations.rcache),
     UCS_CONFIG_TYPE_TABLE(base::rcache_config_table)},

    {"REG_WHOLE_ALLOC", "auto",
     "Whether registering a part of an allocation of device memory registers\n"
     "the whole, so that all parts share one registration.\n"
     " auto  - if the allocation is a small part of its card's memory\n"
     " on    - always\n"
     " off   - never",
     offsetof(md_config, registrations.whole), UCS_CONFIG_TYPE_ON_OFF_AUTO},

    {"MAX_REG_RATIO", "0.1",
     "Largest allocation that REG_WHOLE_ALLOC=auto registers as a whole, as a\n"
     "part of its card's memory.",
     offsetof(md_config, registrations.whole_part), UCS_CONFIG_TYPE_DOUBLE},

    {nullptr, nullptr, nullptr, 0, {}}};

/* A memory domain, and whose it is. */
struct memory_domain {
    uct_md_t super;
    unsigned generation;
};

base::device_table &table()
{
    return base::device_table::instance();
}

base::registration_cache &registrations()
{
    return base::registration_cache::instance();
}

/* Whether the process that opened a memory domain is a parent of this one,
 * which has no part in its cards then. */
bool is_inherited(uct_md_h md)
{
    return reinterpret_cast<memory_domain *>(md)->generation !=
           util::process_generation();
}

ucs_status_t refuse_inherited(bool quiet)
{
    ucs_log(quiet ? UCS_LOG_LEVEL_DIAG : UCS_LOG_LEVEL_ERROR,
            "gaudi_copy: the memory domain belongs to the process that this "
            "one was forked from; UCX has to be opened anew");
    return UCS_ERR_UNSUPPORTED;
}

/* The handle behind a uct_mem_h, or nullptr. */
memory_handle *handle_of(uct_mem_h memh, const char *doing)
{
    auto *handle = static_cast<memory_handle *>(memh);
    if ((handle == nullptr) || !handle->is_valid()) {
        ucs_error("gaudi_copy: %s: %p is no memory handle of this domain",
                  doing, memh);
        return nullptr;
    }
    return handle;
}

void md_close(uct_md_h md) noexcept
{
    /* With handles left, the cards stay open for them. */
    if (!is_inherited(md) && registrations().close()) {
        table().close();
    }
    delete reinterpret_cast<memory_domain *>(md);
}

ucs_status_t md_query(uct_md_h md, uct_md_attr_t *attr) noexcept
{
    const uint64_t gaudi = UCS_BIT(base::memory_type());

    /* No NEED_RKEY: UCP would register and pack around every eager message, and
     * pointers alone tell cards and addresses here. HOST in reg_mem_types makes
     * UCP's default RMA take this transport for host keys. */
    attr->cap.flags = UCT_MD_FLAG_ALLOC | UCT_MD_FLAG_REG | UCT_MD_FLAG_ADVISE;
    attr->cap.reg_mem_types    = UCS_BIT(UCS_MEMORY_TYPE_HOST) | gaudi;
    attr->cap.alloc_mem_types  = gaudi;
    attr->cap.access_mem_types = UCS_BIT(UCS_MEMORY_TYPE_HOST) | gaudi;
    attr->cap.detect_mem_types = gaudi;
    attr->cap.max_alloc        = SIZE_MAX;
    attr->cap.max_reg          = ULONG_MAX;
    attr->rkey_packed_size     = 0;
    /* A look-up; without a cache pinning and mapping, measured on the emulator:
     * a card was not at hand. */
    const auto &cache    = registrations();
    attr->reg_cost       = cache.caches_host()
                               ? ucs_linear_func_make(cache.overhead(), 0)
                               : ucs_linear_func_make(16e-6, 0.06e-9);
    const bool has_cards = !is_inherited(md) && !table().cards().empty();
    return base::guarded([&] {
        base::find_local_cpus(has_cards ? table().cards().front().get()
                                        : nullptr,
                              attr->local_cpus);
        return UCS_OK;
    });
}

ucs_status_t mem_alloc(uct_md_h md, size_t *length_p, void **address_p,
                       ucs_memory_type_t mem_type, unsigned flags, const char *,
                       uct_mem_h *memh_p) noexcept
{
    if (mem_type != base::memory_type()) {
        return UCS_ERR_UNSUPPORTED;
    }
    const bool quiet = (flags & UCT_MD_MEM_FLAG_HIDE_ERRORS) != 0;
    if (is_inherited(md)) {
        return refuse_inherited(quiet);
    }
    return base::guarded([&] {
        auto handle  = std::make_unique<memory_handle>();
        handle->what = memory_handle::kind::allocated;
        ucs_status_t status =
            table().allocate(table().card_for_hint(*address_p), *length_p,
                             quiet, handle->device);
        if (status == UCS_OK) {
            *address_p = reinterpret_cast<void *>(handle->device->start);
            *memh_p    = handle.release();
        }
        return status;
    });
}

ucs_status_t mem_free(uct_md_h md, uct_mem_h memh) noexcept
{
    memory_handle *handle = handle_of(memh, "mem_free");
    if (handle == nullptr) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (handle->what != memory_handle::kind::allocated) {
        ucs_error("gaudi_copy: registered memory is deregistered, not freed");
        return UCS_ERR_INVALID_PARAM;
    }
    if (is_inherited(md)) {
        delete handle;
        return UCS_OK;
    }
    return base::guarded([&] {
        table().free(handle->device);
        delete handle;
        return UCS_OK;
    });
}

ucs_status_t mem_advise(uct_md_h md, uct_mem_h memh, void *address,
                        size_t length, unsigned advice) noexcept
{
    const memory_handle *handle = handle_of(memh, "mem_advise");
    if (handle == nullptr) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (is_inherited(md)) {
        return refuse_inherited(false);
    }
    const bool is_host = (handle->what == memory_handle::kind::host);
    const auto &range =
        is_host ? static_cast<const util::interval_node &>(*handle->host)
                : static_cast<const util::interval_node &>(*handle->device);
    const auto start = reinterpret_cast<uintptr_t>(address);
    if ((start < range.start) || (start > range.end) ||
        (length > range.end - start) ||
        ((advice != UCT_MADV_NORMAL) && (advice != UCT_MADV_WILLNEED))) {
        return UCS_ERR_INVALID_PARAM;
    }
    /* Device memory is always there. What a card cannot map, it stages. */
    if (is_host && (advice == UCT_MADV_WILLNEED)) {
        for (const auto &card : table().cards()) {
            uint64_t va;
            (void)handle->host->va_on(*card, va);
        }
    }
    return UCS_OK;
}

ucs_status_t mem_reg(uct_md_h md, void *address, size_t length, unsigned flags,
                     uct_mem_h *memh_p) noexcept
{
    const bool quiet = (flags & UCT_MD_MEM_FLAG_HIDE_ERRORS) != 0;
    if (is_inherited(md)) {
        return refuse_inherited(quiet);
    }
    return base::guarded([&] {
        memory_handle *handle;
        ucs_status_t status =
            registrations().get(address, length, quiet, handle);
        if (status == UCS_OK) {
            *memh_p = handle;
        }
        return status;
    });
}

ucs_status_t mem_dereg(uct_md_h md,
                       const uct_md_mem_dereg_params_t *params) noexcept
{
    UCT_MD_MEM_DEREG_CHECK_PARAMS(params, 0);

    memory_handle *handle = handle_of(params->memh, "mem_dereg");
    if (handle == nullptr) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (handle->what == memory_handle::kind::allocated) {
        ucs_error("gaudi_copy: allocated memory is freed, not deregistered");
        return UCS_ERR_INVALID_PARAM;
    }
    if (is_inherited(md)) {
        if (!handle->cached) {
            delete handle;
        }
        return UCS_OK;
    }
    ucs_status_t status = registrations().put(handle);
    if (status != UCS_OK) {
        ucs_error("gaudi_copy: mem_dereg: %p is not registered any more",
                  params->memh);
    }
    return status;
}

ucs_status_t mem_query(uct_md_h, const void *address, size_t length,
                       uct_md_mem_attr_t *attr) noexcept
{
    if (!base::device_table::is_device_address(address)) {
        return UCS_ERR_INVALID_ADDR;
    }

    /* A device address that is in no allocation of ours is Gaudi memory all the
     * same: anything else would make UCX touch it with the CPU. */
    uint64_t start              = reinterpret_cast<uintptr_t>(address);
    size_t allocated            = length;
    base::card *owner           = nullptr;
    ucs_sys_device_t sys_device = UCS_SYS_DEVICE_ID_UNKNOWN;
    uint64_t end                = start + length;
    bool exact                  = false;
    if (uint64_t base;
        table().query(address, length, base, allocated, owner, &exact)) {
        sys_device = owner->sys_device();
        if (!exact) { /* other cards may have memory around it */
            base      = start;
            allocated = length;
        }
        base::remember_device_memory(reinterpret_cast<void *>(base), allocated,
                                     sys_device);
        /* UCP registers the range that it is told. */
        if (exact) {
            registrations().choose_range(*owner, base, base + allocated, start,
                                         end);
        }
    }

    if (attr->field_mask & UCT_MD_MEM_ATTR_FIELD_MEM_TYPE) {
        attr->mem_type = base::memory_type();
    }
    if (attr->field_mask & UCT_MD_MEM_ATTR_FIELD_SYS_DEV) {
        attr->sys_dev = sys_device;
    }
    if (attr->field_mask & UCT_MD_MEM_ATTR_FIELD_BASE_ADDRESS) {
        attr->base_address = reinterpret_cast<void *>(start);
    }
    if (attr->field_mask & UCT_MD_MEM_ATTR_FIELD_ALLOC_LENGTH) {
        attr->alloc_length = end - start;
    }
    return UCS_OK;
}

ucs_status_t detect_memory_type(uct_md_h, const void *address, size_t,
                                ucs_memory_type_t *mem_type_p) noexcept
{
    if (!base::device_table::is_device_address(address)) {
        return UCS_ERR_INVALID_ADDR;
    }
    *mem_type_p = base::memory_type();
    return UCS_OK;
}

ucs_status_t mkey_pack(uct_md_h, uct_mem_h, const uct_md_mkey_pack_params_t *,
                       void *) noexcept
{
    return UCS_OK; /* the key is empty */
}

int is_sockaddr_accessible(uct_md_h, const ucs_sock_addr_t *,
                           uct_sockaddr_accessibility_t) noexcept
{
    return 0;
}

constinit uct_md_ops_t md_ops = {
    .close                  = md_close,
    .query                  = md_query,
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

ucs_status_t query_md_resources(uct_component_t *component,
                                uct_md_resource_desc_t **resources_p,
                                unsigned *num_resources_p) noexcept
{
    bool any            = false;
    ucs_status_t status = base::guarded([&] {
        any = table().any_card();
        return UCS_OK;
    });
    if ((status != UCS_OK) || !any) {
        return uct_md_query_empty_md_resource(resources_p, num_resources_p);
    }
    return uct_md_query_single_md_resource(component, resources_p,
                                           num_resources_p);
}

ucs_status_t md_open(uct_component_t *component, const char *,
                     const uct_md_config_t *base_config,
                     uct_md_h *md_p) noexcept
{
    const auto *config = reinterpret_cast<const md_config *>(base_config);
    return base::guarded([&] {
        auto md             = std::make_unique<memory_domain>();
        md->super.ops       = &md_ops;
        md->super.component = component;
        md->generation      = util::process_generation();
        ucs_status_t status = table().open();
        if (status != UCS_OK) {
            return status;
        }
        status = registrations().open(config->registrations);
        if (status != UCS_OK) {
            table().close();
            return status;
        }
        *md_p = &md.release()->super;
        return UCS_OK;
    });
}

ucs_status_t rkey_unpack(uct_component_t *, const void *, uct_rkey_t *rkey_p,
                         void **handle_p) noexcept
{
    *rkey_p   = 0;
    *handle_p = nullptr;
    return UCS_OK;
}

ucs_status_t rkey_release(uct_component_t *, uct_rkey_t, void *) noexcept
{
    return UCS_OK;
}

/* One number, by its place in registration_cache::statistics. */
template <base::memory_kind kind,
          uint64_t base::registration_cache::statistics::*number>
void show_statistic(void *, ucs_string_buffer_t *text, void *,
                    uint64_t) noexcept
{
    ucs_string_buffer_appendf(text, "%lu\n",
                              registrations().statistics_of(kind).*number);
}

template <base::memory_kind kind>
void add_statistics(uct_md_h md, const char *name)
{
    using numbers = base::registration_cache::statistics;
    const std::pair<const char *, ucs_vfs_file_read_cb_t> files[] = {
        {"hits", show_statistic<kind, &numbers::hits>},
        {"misses", show_statistic<kind, &numbers::misses>},
        {"evictions", show_statistic<kind, &numbers::evictions>},
        {"invalidations", show_statistic<kind, &numbers::invalidations>},
        {"regions", show_statistic<kind, &numbers::regions>},
        {"bytes", show_statistic<kind, &numbers::bytes>},
    };
    for (const auto &[file, show] : files) {
        ucs_vfs_obj_add_ro_file(md, show, nullptr, 0, "registrations/%s/%s",
                                name, file);
    }
}

void md_vfs_init(uct_md_h md) noexcept
{
    add_statistics<base::memory_kind::host>(md, "host");
    add_statistics<base::memory_kind::device>(md, "device");
}

} // namespace

} // namespace gaudi::copy

using namespace gaudi::copy;

extern "C" {
uct_component_t uct_gaudi_copy_component = {
    .name               = "gaudi_copy",
    .query_md_resources = query_md_resources,
    .md_open            = md_open,
    .cm_open      = gaudi::base::unsupported<uct_component_cm_open_func_t>::op,
    .rkey_unpack  = rkey_unpack,
    .rkey_ptr     = gaudi::base::unsupported<uct_component_rkey_ptr_func_t>::op,
    .rkey_release = rkey_release,
    .md_config    = {.name   = "Gaudi copy memory domain",
                     .prefix = "GAUDI_COPY_",
                     .table  = md_config_table,
                     .size   = sizeof(md_config),
                     .list   = {}},
    .cm_config =
        {.name = "", .prefix = "", .table = nullptr, .size = 0, .list = {}},
    .tl_list     = UCT_COMPONENT_TL_LIST_INITIALIZER(&uct_gaudi_copy_component),
    .list        = {},
    .flags       = 0,
    .md_vfs_init = md_vfs_init,
};
}

void gaudi::copy::register_component()
{
    base::mark_variables_used(uct_gaudi_copy_component.md_config);
    base::mark_variables_used(uct_gaudi_cpy_tl.config);
    uct_component_register(&uct_gaudi_copy_component);
    uct_tl_register(&uct_gaudi_copy_component, &uct_gaudi_cpy_tl);
}
