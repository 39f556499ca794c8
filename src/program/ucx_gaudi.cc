#include "program/ucx_gaudi.h"

#include "program/program_memory.h"
#include "uct/gaudi/base/memory/dmabuf.h"
#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/ucx/memory_type.h"
#include "uct/gaudi/base/ucx/status.h"

#include <cstdio>

using gaudi::program_memory;
using gaudi::base::guarded;
using gaudi::base::memory_map;

static_assert(UCX_GAUDI_VERSION_MAJOR == GAUDI_VERSION_MAJOR);
static_assert(UCX_GAUDI_VERSION_MINOR == GAUDI_VERSION_MINOR);
static_assert(UCX_GAUDI_VERSION_PATCH == GAUDI_VERSION_PATCH);

namespace {

ucs_status_t refuse_null(const char *function)
{
    ucs_error("gaudi: %s: a pointer is NULL", function);
    return UCS_ERR_INVALID_PARAM;
}

} // namespace

unsigned ucx_gaudi_version()
{
    return UCX_GAUDI_VERSION;
}

ucs_memory_type_t ucx_gaudi_memory_type()
{
    return gaudi::base::memory_type();
}

ucs_status_t ucx_gaudi_open(const char *card_name)
{
    return guarded([&] { return program_memory::instance().open(card_name); });
}

ucs_status_t ucx_gaudi_close()
{
    return guarded([] { return program_memory::instance().close(); });
}

ucs_status_t ucx_gaudi_mem_alloc(size_t length, const char *card_name,
                                 void **address_p)
{
    if (address_p == nullptr) {
        return refuse_null("ucx_gaudi_mem_alloc");
    }
    return guarded([&] {
        return program_memory::instance().allocate(length, card_name,
                                                   *address_p);
    });
}

ucs_status_t ucx_gaudi_mem_free(void *address)
{
    return guarded([&] { return program_memory::instance().free(address); });
}

ucs_status_t ucx_gaudi_mem_copy(void *dst, const void *src, size_t length)
{
    if (((dst == nullptr) || (src == nullptr)) && (length != 0)) {
        return refuse_null("ucx_gaudi_mem_copy");
    }
    return guarded(
        [&] { return program_memory::instance().copy(dst, src, length); });
}

ucs_status_t ucx_gaudi_mem_fill(void *address, size_t length,
                                const void *pattern, size_t pattern_length)
{
    if ((address == nullptr) || (pattern == nullptr)) {
        if (length == 0) {
            return UCS_OK;
        }
        return refuse_null("ucx_gaudi_mem_fill");
    }
    return guarded([&] {
        return program_memory::instance().fill(address, length, pattern,
                                               pattern_length);
    });
}

ucs_status_t ucx_gaudi_mem_query(const void *address, size_t length,
                                 ucx_gaudi_mem_attr_t *attr)
{
    if (attr == nullptr) {
        return refuse_null("ucx_gaudi_mem_query");
    }
    return guarded([&] {
        const program_memory::call call;
        const auto known = memory_map::instance().find_device(address, length);
        if (!memory_map::is_device(address) || !known.has_value()) {
            return UCS_ERR_INVALID_ADDR;
        }
        if (attr->field_mask & UCX_GAUDI_MEM_ATTR_FIELD_BASE) {
            attr->base = reinterpret_cast<void *>(known->start);
        }
        if (attr->field_mask & UCX_GAUDI_MEM_ATTR_FIELD_LENGTH) {
            attr->length = known->end - known->start;
        }
        if (attr->field_mask & UCX_GAUDI_MEM_ATTR_FIELD_CARD) {
            std::snprintf(attr->card, sizeof(attr->card), "%s",
                          known->owner->name().c_str());
        }
        if (attr->field_mask & UCX_GAUDI_MEM_ATTR_FIELD_IMPORTED) {
            attr->imported = known->imported ? 1 : 0;
        }
        return UCS_OK;
    });
}

ucs_status_t ucx_gaudi_dmabuf_export(const void *address, size_t length,
                                     int *fd_p, size_t *offset_p)
{
    if ((fd_p == nullptr) || (offset_p == nullptr)) {
        return refuse_null("ucx_gaudi_dmabuf_export");
    }
    return guarded([&] {
        const program_memory::call call;
        return gaudi::base::export_dmabuf(address, length, false, *fd_p,
                                          *offset_p);
    });
}

ucs_status_t ucx_gaudi_dmabuf_import(int fd, size_t offset, size_t length,
                                     const char *card_name, void **address_p)
{
    if (address_p == nullptr) {
        return refuse_null("ucx_gaudi_dmabuf_import");
    }
    return guarded([&] {
        return program_memory::instance().import(fd, offset, length, card_name,
                                                 *address_p);
    });
}

ucs_status_t ucx_gaudi_dmabuf_release(void *address)
{
    if (address == nullptr) {
        return UCS_OK;
    }
    return guarded([&] { return program_memory::instance().release(address); });
}
