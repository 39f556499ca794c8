#include "uct/gaudi/ipc/ipc_md.h"

#include "uct/gaudi/base/cards/card_hold.h"
#include "uct/gaudi/base/memory/device_table.h"
#include "uct/gaudi/base/ucx/config.h"
#include "uct/gaudi/base/ucx/memory_type.h"
#include "uct/gaudi/base/ucx/status.h"
#include "uct/gaudi/base/ucx/unsupported.h"
#include "uct/gaudi/ipc/sharing/invalidation.h"
#include "util/process.h"

#include <climits>
#include <memory>

namespace gaudi::ipc {

namespace {

struct md_config {
    uct_md_config_t super;
    remote_buffers::limits cache;
    double timeout;
    double invalidate_timeout;
};

ucs_config_field_t md_config_table[] = {
    {"", "", nullptr, offsetof(md_config, super),
     UCS_CONFIG_TYPE_TABLE(uct_md_config_table)},

    {"CACHE_MAX_REGIONS", "1024",
     "How many buffers of other processes may be mapped at a time. The one\n"
     "that was not used for the longest time is unmapped first, and mapped\n"
     "again when it is used again.",
     offsetof(md_config, cache.max_regions), UCS_CONFIG_TYPE_UINT},

    {"CACHE_MAX_SIZE", "inf", "The same, in bytes.",
     offsetof(md_config, cache.max_bytes), UCS_CONFIG_TYPE_MEMUNITS},

    {"TIMEOUT", "1s",
     "How long another process may take to answer where it is asked for\n"
     "files: where the kernel forbids to take them (pidfd_getfd), and when it\n"
     "has closed them. At most an hour.",
     offsetof(md_config, timeout), UCS_CONFIG_TYPE_TIME},

    {"INVALIDATE_TIMEOUT", "10s",
     "How long an invalidation of memory waits for another process that uses\n"
     "it and does not come to an end.",
     offsetof(md_config, invalidate_timeout), UCS_CONFIG_TYPE_TIME},

    {nullptr, nullptr, nullptr, 0, {}}};

/* A memory domain, and whose it is. */
struct memory_domain {
    uct_md_t super;
    unsigned generation;
    base::card_hold cards; /* if there were any, or since device memory, of
                              another context then, was registered */
    std::atomic<uint64_t> registrations;
};

memory_domain &to_domain(uct_md_h md)
{
    return *reinterpret_cast<memory_domain *>(md);
}

/* Whether the process that opened a memory domain is a parent of this one. */
bool is_inherited(uct_md_h md)
{
    return to_domain(md).generation != util::process_generation();
}

ucs_status_t refuse_inherited(bool quiet)
{
    ucs_log(quiet ? UCS_LOG_LEVEL_DIAG : UCS_LOG_LEVEL_ERROR,
            "gaudi_ipc: the memory domain belongs to the process that this one "
            "was forked from; UCX has to be opened anew");
    return UCS_ERR_UNSUPPORTED;
}

/* The registration behind a uct_mem_h, or nullptr. */
exported_memory *memory_of(uct_mem_h memh, const char *doing)
{
    auto *memory = static_cast<exported_memory *>(memh);
    if ((memory == nullptr) || !memory->is_valid()) {
        ucs_error("gaudi_ipc: %s: %p is no memory handle of this domain", doing,
                  memh);
        return nullptr;
    }
    return memory;
}

void md_close(uct_md_h md) noexcept
{
    memory_domain &domain = to_domain(md);
    if (!is_inherited(md)) {
        remote_buffers::instance().close();
        if (domain.registrations > 0) {
            ucs_warn("gaudi_ipc: %lu registrations were not released",
                     domain.registrations.load());
            domain.cards.abandon();
        }
    }
    delete &domain;
}

ucs_status_t md_query(uct_md_h, uct_md_attr_t *attr) noexcept
{
    const uint64_t both =
        UCS_BIT(UCS_MEMORY_TYPE_HOST) | UCS_BIT(base::memory_type());

    attr->cap.flags =
        UCT_MD_FLAG_REG | UCT_MD_FLAG_NEED_RKEY | UCT_MD_FLAG_INVALIDATE;
    attr->cap.reg_mem_types    = both;
    attr->cap.access_mem_types = both;
    attr->cap.alloc_mem_types  = 0;
    attr->cap.detect_mem_types = 0;
    attr->cap.max_alloc        = 0;
    attr->cap.max_reg          = ULONG_MAX;
    attr->rkey_packed_size     = sizeof(wire_key);
    /* An allocation and a look-up, whatever the length. */
    attr->reg_cost = ucs_linear_func_make(200e-9, 0);
    return base::guarded([&] {
        base::find_local_cpus(nullptr, attr->local_cpus);
        return UCS_OK;
    });
}

ucs_status_t mem_reg(uct_md_h md, void *address, size_t length, unsigned flags,
                     uct_mem_h *memh_p) noexcept
{
    const bool quiet = (flags & UCT_MD_MEM_FLAG_HIDE_ERRORS) != 0;
    if (is_inherited(md)) {
        return refuse_inherited(quiet);
    }
    return base::guarded([&] {
        if (base::device_table::is_device_address(address)) {
            (void)to_domain(md).cards.join();
        }
        exported_memory *memory;
        ucs_status_t status =
            exported_memory::create(address, length, quiet, memory);
        if (status == UCS_OK) {
            ++to_domain(md).registrations;
            *memh_p = memory;
        }
        return status;
    });
}

ucs_status_t mem_dereg(uct_md_h md,
                       const uct_md_mem_dereg_params_t *params) noexcept
{
    UCT_MD_MEM_DEREG_CHECK_PARAMS(params, 1);

    exported_memory *memory = memory_of(params->memh, "mem_dereg");
    if (memory == nullptr) {
        return UCS_ERR_INVALID_PARAM;
    }
    const unsigned flags =
        UCT_MD_MEM_DEREG_FIELD_VALUE(params, flags, FIELD_FLAGS, 0u);
    uct_completion_t *completion =
        UCT_MD_MEM_DEREG_FIELD_VALUE(params, comp, FIELD_COMPLETION,
                                     static_cast<uct_completion_t *>(nullptr));
    const bool invalidate = (flags & UCT_MD_MEM_DEREG_FLAG_INVALIDATE) != 0;
    if (invalidate && (completion == nullptr)) {
        ucs_error("gaudi_ipc: mem_dereg: an invalidation needs a completion");
        return UCS_ERR_INVALID_PARAM;
    }
    if (is_inherited(md)) {
        memory->disown();
        delete memory;
        if (invalidate) {
            uct_invoke_completion(completion, UCS_OK);
        }
        return UCS_OK;
    }
    return base::guarded([&] {
        const uint64_t generation = memory->end_key();
        delete memory;
        --to_domain(md).registrations;
        if (invalidate) {
            wait_for_users(generation, completion);
        }
        return UCS_OK;
    });
}

ucs_status_t mkey_pack(uct_md_h md, uct_mem_h memh,
                       const uct_md_mkey_pack_params_t *, void *buffer) noexcept
{
    exported_memory *memory = memory_of(memh, "mkey_pack");
    if (memory == nullptr) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (is_inherited(md)) {
        return refuse_inherited(false);
    }
    return base::guarded([&] { return memory->pack(buffer); });
}

int is_sockaddr_accessible(uct_md_h, const ucs_sock_addr_t *,
                           uct_sockaddr_accessibility_t) noexcept
{
    return 0;
}

using base::unsupported;

constinit uct_md_ops_t md_ops = {
    .close                  = md_close,
    .query                  = md_query,
    .mem_alloc              = unsupported<uct_md_mem_alloc_func_t>::op,
    .mem_free               = unsupported<uct_md_mem_free_func_t>::op,
    .mem_advise             = unsupported<uct_md_mem_advise_func_t>::op,
    .mem_reg                = mem_reg,
    .mem_dereg              = mem_dereg,
    .mem_query              = unsupported<uct_md_mem_query_func_t>::op,
    .mkey_pack              = mkey_pack,
    .is_sockaddr_accessible = is_sockaddr_accessible,
    .detect_memory_type     = unsupported<uct_md_detect_memory_type_func_t>::op,
};

ucs_status_t query_md_resources(uct_component_t *component,
                                uct_md_resource_desc_t **resources_p,
                                unsigned *num_resources_p) noexcept
{
    bool any            = false;
    ucs_status_t status = base::guarded([&] {
        any = base::device_table::instance().any_card();
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
        auto domain             = std::make_unique<memory_domain>();
        domain->super.ops       = &md_ops;
        domain->super.component = component;
        ucs_status_t status     = domain->cards.open();
        if ((status != UCS_OK) && (status != UCS_ERR_BUSY) &&
            (status != UCS_ERR_NO_DEVICE)) {
            return status;
        }
        if (status != UCS_OK) {
            ucs_debug("gaudi_ipc: this process has no card of its own");
        }
        domain->generation = util::process_generation();
        remote_process::set_timeout(config->timeout);
        set_invalidation_timeout(config->invalidate_timeout);
        remote_buffers::instance().open(config->cache);
        *md_p = &domain.release()->super;
        return UCS_OK;
    });
}

ucs_status_t rkey_unpack(uct_component_t *, const void *buffer,
                         uct_rkey_t *rkey_p, void **handle_p) noexcept
{
    remote_key *key = nullptr;
    const ucs_status_t status =
        base::guarded([&] { return remote_key::unpack(buffer, key); });
    /* After a failure, too: UCP 1.13 then releases what is there, which would
     * be a key of before. */
    *rkey_p   = reinterpret_cast<uct_rkey_t>(key);
    *handle_p = nullptr;
    return status;
}

ucs_status_t rkey_release(uct_component_t *, uct_rkey_t rkey, void *) noexcept
{
    remote_key *key = to_remote_key(rkey);
    if (key != nullptr) {
        key->drop();
    }
    return UCS_OK;
}

template <auto number>
void show_buffers(void *, ucs_string_buffer_t *text, void *, uint64_t) noexcept
{
    ucs_string_buffer_appendf(text, "%lu\n",
                              remote_buffers::instance().numbers().*number);
}

template <auto number>
void show_exports(void *, ucs_string_buffer_t *text, void *, uint64_t) noexcept
{
    ucs_string_buffer_appendf(text, "%lu\n", statistics_of_exports().*number);
}

void md_vfs_init(uct_md_h md) noexcept
{
    using cache = remote_buffers::statistics;
    const std::pair<const char *, ucs_vfs_file_read_cb_t> files[] = {
        {"cache/hits", show_buffers<&cache::hits>},
        {"cache/misses", show_buffers<&cache::misses>},
        {"cache/evictions", show_buffers<&cache::evictions>},
        {"cache/withdrawn", show_buffers<&cache::withdrawn>},
        {"cache/regions", show_buffers<&cache::regions>},
        {"cache/bytes", show_buffers<&cache::bytes>},
        {"cache/processes", show_buffers<&cache::processes>},
        {"exports/keys", show_exports<&export_statistics::keys>},
        {"exports/buffers", show_exports<&export_statistics::buffers>},
        {"exports/exports", show_exports<&export_statistics::exports>},
    };
    for (const auto &[file, show] : files) {
        ucs_vfs_obj_add_ro_file(md, show, nullptr, 0, "%s", file);
    }
}

} // namespace

} // namespace gaudi::ipc

using namespace gaudi::ipc;

extern "C" {
uct_component_t uct_gaudi_ipc_component = {
    .name               = "gaudi_ipc",
    .query_md_resources = query_md_resources,
    .md_open            = md_open,
    .cm_open      = gaudi::base::unsupported<uct_component_cm_open_func_t>::op,
    .rkey_unpack  = rkey_unpack,
    .rkey_ptr     = gaudi::base::unsupported<uct_component_rkey_ptr_func_t>::op,
    .rkey_release = rkey_release,
    .md_config    = {.name   = "Gaudi IPC memory domain",
                     .prefix = "GAUDI_IPC_",
                     .table  = md_config_table,
                     .size   = sizeof(md_config),
                     .list   = {}},
    .cm_config =
        {.name = "", .prefix = "", .table = nullptr, .size = 0, .list = {}},
    .tl_list     = UCT_COMPONENT_TL_LIST_INITIALIZER(&uct_gaudi_ipc_component),
    .list        = {},
    .flags       = 0,
    .md_vfs_init = md_vfs_init,
};
}
