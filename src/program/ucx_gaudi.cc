/* The functions of ucx_gaudi.h that are about memory. Errors are logged where
 * they are found. What fails changes nothing, but that a copy that fails on its
 * way leaves some of the bytes. */
#include "program/ucx_gaudi.h"

#include "program/program_memory.h"
#include "uct/gaudi/base/memory/device_pool.h"
#include "uct/gaudi/base/memory/dmabuf.h"
#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/ucx/memory_type.h"
#include "util/text.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace base = gaudi::base;

using base::held_cards;
using base::memory_map;
using gaudi::program_memory;

static_assert(UCX_GAUDI_VERSION_MAJOR == GAUDI_VERSION_MAJOR);
static_assert(UCX_GAUDI_VERSION_MINOR == GAUDI_VERSION_MINOR);
static_assert(UCX_GAUDI_VERSION_PATCH == GAUDI_VERSION_PATCH);

namespace {

/* Of a fill: what comes from the host. */
constexpr size_t pattern_block = 65536;

ucs_status_t refuse_null(const char *function)
{
    ucs_error("gaudi: %s: a pointer is NULL", function);
    return UCS_ERR_INVALID_PARAM;
}

ucs_status_t check_range(const void *address, size_t length)
{
    if (memory_map::is_plausible(address, length)) {
        return UCS_OK;
    }
    ucs_error("gaudi: %zu bytes at %p are no range of memory", length, address);
    return UCS_ERR_INVALID_ADDR;
}

void repeat(char *target, size_t length, const void *pattern,
            size_t pattern_length)
{
    for (size_t at = 0; at < length; at += pattern_length) {
        std::memcpy(target + at, pattern, pattern_length);
    }
}

bool overlap(const void *one, const void *other, size_t length)
{
    const auto first  = reinterpret_cast<uintptr_t>(one);
    const auto second = reinterpret_cast<uintptr_t>(other);
    return std::max(first, second) - std::min(first, second) < length;
}

ucs_status_t open_cards(const char *card_name) noexcept
{
    return program_memory::call_with_cards(
        card_name, [](program_memory &) { return UCS_OK; });
}

ucs_status_t copy_memory(void *dst, const void *src, size_t length) noexcept
{
    ucs_status_t status = check_range(dst, length);
    if (status == UCS_OK) {
        status = check_range(src, length);
    }
    if ((status != UCS_OK) || (length == 0) || (dst == src)) {
        return status;
    }
    if (overlap(dst, src, length)) {
        ucs_error("gaudi: cannot copy %zu bytes from %p to %p: they overlap",
                  length, src, dst);
        return UCS_ERR_INVALID_PARAM;
    }
    if (!memory_map::is_device(dst) && !memory_map::is_device(src)) {
        std::memmove(dst, src, length);
        return UCS_OK;
    }
    return program_memory::call_with_engine([&](base::transfer_engine &engine) {
        return engine.copy(dst, src, length);
    });
}

ucs_status_t fill_memory(void *address, size_t length, const void *pattern,
                         size_t pattern_length)
{
    if ((pattern_length == 0) || (pattern_length > 16) ||
        ((pattern_length & (pattern_length - 1)) != 0) ||
        (length % pattern_length != 0)) {
        ucs_error("gaudi: cannot fill %zu bytes with a pattern of %zu bytes: "
                  "its length has to be 1, 2, 4, 8 or 16, and divide theirs",
                  length, pattern_length);
        return UCS_ERR_INVALID_PARAM;
    }
    const ucs_status_t status = check_range(address, length);
    if ((status != UCS_OK) || (length == 0)) {
        return status;
    }
    if (memory_map::is_device(pattern)) {
        ucs_error("gaudi: cannot fill with the pattern at %p: it is in device "
                  "memory, and has to be in host memory",
                  pattern);
        return UCS_ERR_INVALID_PARAM;
    }
    char *const target = static_cast<char *>(address);
    if (!memory_map::is_device(address)) {
        repeat(target, length, pattern, pattern_length);
        return UCS_OK;
    }
    return program_memory::call_with_engine([&](base::transfer_engine &engine) {
        size_t done = std::min(length, pattern_block);
        const std::unique_ptr<char[]> block(new char[done]);
        repeat(block.get(), done, pattern, pattern_length);
        ucs_status_t filled = engine.check(target, length);
        if (filled == UCS_OK) {
            filled = engine.copy(target, block.get(), done);
        }
        while ((filled == UCS_OK) && (done < length)) {
            const size_t bytes = std::min(done, length - done);
            filled             = engine.copy(target + done, target, bytes);
            done += bytes;
        }
        return filled;
    });
}

} // namespace

unsigned ucx_gaudi_version()
{
    return UCX_GAUDI_VERSION;
}

ucs_memory_type_t ucx_gaudi_memory_type()
{
    return base::memory_type();
}

ucs_status_t ucx_gaudi_open(const char *card_name)
{
    return open_cards(card_name);
}

ucs_status_t ucx_gaudi_close()
{
    return base::guarded([] { return program_memory::instance().close(); });
}

ucs_status_t ucx_gaudi_mem_alloc(size_t length, const char *card_name,
                                 void **address_p)
{
    if (address_p == nullptr) {
        return refuse_null("ucx_gaudi_mem_alloc");
    }
    if (length == 0) {
        ucs_error("gaudi: cannot allocate 0 bytes of device memory");
        return UCS_ERR_INVALID_PARAM;
    }
    return program_memory::call_with_cards(card_name, [&](program_memory &own) {
        const held_cards cards = base::card_table::instance().cards();
        base::card *owner      = cards.find_named(card_name);
        if (owner == nullptr) {
            ucs_error("gaudi: cannot allocate %zu bytes: %s", length,
                      (card_name == nullptr) ? "all cards of this process are "
                                               "lost"
                                             : "the card is lost");
            return UCS_ERR_NO_DEVICE;
        }
        base::device_memory *memory;
        const ucs_status_t status =
            base::allocate(*owner, length, false, memory);
        if (status != UCS_OK) {
            return status;
        }
        void *address = reinterpret_cast<void *>(memory->start);
        try {
            own.add(*memory);
        } catch (...) {
            memory_map::instance().free(*memory);
            throw;
        }
        *address_p = address;
        return UCS_OK;
    });
}

ucs_status_t ucx_gaudi_mem_free(void *address)
{
    if (address == nullptr) {
        return UCS_OK;
    }
    return program_memory::call([&](program_memory &own, const held_cards &) {
        base::device_memory *memory = own.take(address);
        if (memory == nullptr) {
            ucs_error("gaudi: %p cannot be freed: ucx_gaudi_mem_alloc of this "
                      "process did not give this address, or it is freed",
                      address);
            return UCS_ERR_INVALID_ADDR;
        }
        memory_map::instance().free(*memory);
        return UCS_OK;
    });
}

ucs_status_t ucx_gaudi_mem_copy(void *dst, const void *src, size_t length)
{
    if (((dst == nullptr) || (src == nullptr)) && (length != 0)) {
        return refuse_null("ucx_gaudi_mem_copy");
    }
    return copy_memory(dst, src, length);
}

ucs_status_t ucx_gaudi_mem_fill(void *address, size_t length,
                                const void *pattern, size_t pattern_length)
{
    if ((address == nullptr) || (pattern == nullptr)) {
        return (length == 0) ? UCS_OK : refuse_null("ucx_gaudi_mem_fill");
    }
    return fill_memory(address, length, pattern, pattern_length);
}

ucs_status_t ucx_gaudi_mem_query(const void *address, size_t length,
                                 ucx_gaudi_mem_attr_t *attr)
{
    if (attr == nullptr) {
        return refuse_null("ucx_gaudi_mem_query");
    }
    if (!memory_map::is_device(address)) {
        return UCS_ERR_INVALID_ADDR; /* asked of host memory all the time */
    }
    return program_memory::call([&](program_memory &, const held_cards &) {
        const auto known = memory_map::instance().find_device(address, length);
        if (!known.has_value()) {
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
    return program_memory::call([&](program_memory &, const held_cards &) {
        return base::export_dmabuf(address, length, false, *fd_p, *offset_p);
    });
}

ucs_status_t ucx_gaudi_dmabuf_import(int fd, size_t offset, size_t length,
                                     const char *card_name, void **address_p)
{
    if (address_p == nullptr) {
        return refuse_null("ucx_gaudi_dmabuf_import");
    }
    return program_memory::call([&](program_memory &own,
                                    const held_cards &cards) {
        base::card *importer = cards.find_named(card_name);
        if (importer == nullptr) {
            ucs_error("gaudi: a dma-buf cannot be imported on card %s: this "
                      "process has not opened it",
                      (card_name != nullptr)
                          ? gaudi::util::to_printable(card_name).c_str()
                          : "(any)");
            return UCS_ERR_NO_DEVICE;
        }
        const ucs_status_t status =
            base::import_dmabuf(*importer, fd, offset, length, *address_p);
        if (status == UCS_OK) {
            own.count_imports(1);
        }
        return status;
    });
}

ucs_status_t ucx_gaudi_dmabuf_release(void *address)
{
    if (address == nullptr) {
        return UCS_OK;
    }
    return program_memory::call([&](program_memory &own, const held_cards &) {
        const ucs_status_t status = base::release_import(address);
        if (status == UCS_OK) {
            own.count_imports(-1);
        }
        return status;
    });
}
