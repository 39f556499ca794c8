/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions of ucx_gaudi.h that are about memory. Errors are logged where
 * they are found. What fails changes nothing. */
#include "program/ucx_gaudi.h"

#include "program/program_copies.h"
#include "program/program_ipc.h"
#include "program/program_memory.h"
#include "uct/gaudi/base/memory/device_pool.h"
#include "uct/gaudi/base/memory/dmabuf.h"
#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/ucx/memory_type.h"
#include "util/text.h"

#include <cstdio>

namespace base = gaudi::base;

using base::held_cards;
using base::memory_map;
using gaudi::program_memory;
using gaudi::refuse_null;

static_assert(UCX_GAUDI_VERSION_MAJOR == GAUDI_VERSION_MAJOR);
static_assert(UCX_GAUDI_VERSION_MINOR == GAUDI_VERSION_MINOR);
static_assert(UCX_GAUDI_VERSION_PATCH == GAUDI_VERSION_PATCH);

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
    return program_memory::call_with_cards(
        card_name, [](program_memory &) { return UCS_OK; });
}

ucs_status_t ucx_gaudi_close()
{
    return base::guarded_entry([] {
        gaudi::program_ipc::instance().forget_freed();
        return program_memory::instance().close();
    });
}

ucs_status_t ucx_gaudi_mem_alloc(size_t length, const char *card_name,
                                 void **address_p)
{
    if (address_p == nullptr) {
        return refuse_null(__func__);
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

ucs_status_t ucx_gaudi_host_register(void *address, size_t length)
{
    if (address == nullptr) {
        return refuse_null(__func__);
    }
    if ((length == 0) || memory_map::is_device(address) ||
        !memory_map::is_plausible(address, length)) {
        ucs_error("gaudi: cannot register %zu bytes at %p: they are no host "
                  "memory",
                  length, address);
        return UCS_ERR_INVALID_ADDR;
    }
    return program_memory::call([&](program_memory &own, const held_cards &) {
        auto *fresh = new base::host_region(address, length);
        if (!own.add_host(*fresh)) {
            fresh->put();
            ucs_error("gaudi: host memory at %p is registered already",
                      address);
            return UCS_ERR_ALREADY_EXISTS;
        }
        return UCS_OK;
    });
}

ucs_status_t ucx_gaudi_host_unregister(void *address)
{
    if (address == nullptr) {
        return UCS_OK;
    }
    return program_memory::call([&](program_memory &own, const held_cards &) {
        base::host_region *memory = own.take_host(address);
        if (memory == nullptr) {
            ucs_error("gaudi: no host memory is registered at %p", address);
            return UCS_ERR_INVALID_ADDR;
        }
        memory->put();
        return UCS_OK;
    });
}

ucs_status_t ucx_gaudi_mem_query(const void *address, size_t length,
                                 ucx_gaudi_mem_attr_t *attr)
{
    if (attr == nullptr) {
        return refuse_null(__func__);
    }
    if (!memory_map::is_device(address)) {
        return UCS_ERR_INVALID_ADDR; /* asked of host memory all the time */
    }
    return program_memory::call([&](program_memory &, const held_cards &) {
        const auto known = memory_map::instance().find_device(address, length);
        const auto opened =
            gaudi::program_ipc::instance().find(address, length);
        if (!known.has_value() && (opened == nullptr)) {
            return UCS_ERR_INVALID_ADDR;
        }
        const uint64_t base = (opened != nullptr) ? opened->here : known->start;
        if (attr->field_mask & UCX_GAUDI_MEM_ATTR_FIELD_BASE) {
            attr->base = reinterpret_cast<void *>(base);
        }
        if (attr->field_mask & UCX_GAUDI_MEM_ATTR_FIELD_LENGTH) {
            attr->length =
                (opened != nullptr) ? opened->key->length() : known->end - base;
        }
        if (attr->field_mask & UCX_GAUDI_MEM_ATTR_FIELD_CARD) {
            std::snprintf(attr->card, sizeof(attr->card), "%s",
                          (opened != nullptr) ? ""
                                              : known->owner->name().c_str());
        }
        if (attr->field_mask & UCX_GAUDI_MEM_ATTR_FIELD_IMPORTED) {
            attr->imported = ((opened != nullptr) || known->imported) ? 1 : 0;
        }
        return UCS_OK;
    });
}

ucs_status_t ucx_gaudi_dmabuf_export(const void *address, size_t length,
                                     int *fd_p, size_t *offset_p)
{
    if ((fd_p == nullptr) || (offset_p == nullptr)) {
        return refuse_null(__func__);
    }
    return program_memory::call([&](program_memory &, const held_cards &) {
        return base::export_dmabuf(address, length, false, *fd_p, *offset_p);
    });
}

ucs_status_t ucx_gaudi_dmabuf_import(int fd, size_t offset, size_t length,
                                     const char *card_name, void **address_p)
{
    if (address_p == nullptr) {
        return refuse_null(__func__);
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
            own.count(program_memory::use::import, 1);
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
            own.count(program_memory::use::import, -1);
        }
        return status;
    });
}
