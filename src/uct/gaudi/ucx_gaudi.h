/*
 * What ucx-gaudi offers to programs beside UCX's own interface. C and C++.
 *
 * Nobody needs it to send Gaudi memory: UCX does that with nothing but
 * pointers. It is for what UCX has no function for in all of its releases: the
 * number of the memory type, and dma-bufs of device memory (from 1.14 on UCX
 * exports them by uct_md_mem_query, too).
 *
 * A dma-buf is a file descriptor that stands for device memory. It can be given
 * to another process (SCM_RIGHTS, pidfd_getfd), to an RDMA driver, or to
 * another card, which then reaches the memory itself, over PCIe.
 *
 * Cards are open while the program has UCX open (ucp_init, or a memory domain
 * of component gaudi_copy), and everything here has to be used between. A
 * forked child has none of its parent's cards, memory and imports.
 *
 * All functions may be called by any thread at any time. They answer with UCX's
 * status; UCX's log (UCX_LOG_LEVEL) tells what was wrong. Outputs are filled on
 * UCS_OK only.
 *
 * Link with what `pkg-config --libs ucx-gaudi-transports` says. A program that
 * is linked so has the module for the UCX that it runs with; preloading and
 * slots do it no harm. Where no module fits, one line on stderr says so, no
 * memory is a card's, and there is no card.
 */
#ifndef UCX_GAUDI_H
#define UCX_GAUDI_H

#include <stddef.h>
#include <stdint.h>

#include <ucs/memory/memory_type.h>
#include <ucs/type/status.h>

/** Version of this header. */
#define UCX_GAUDI_VERSION_MAJOR 0
#define UCX_GAUDI_VERSION_MINOR 1
#define UCX_GAUDI_VERSION_PATCH 0

#define UCX_GAUDI_MAKE_VERSION(_major, _minor, _patch)                         \
    (((_major) << 24) | ((_minor) << 16) | (_patch))

#define UCX_GAUDI_VERSION                                                      \
    UCX_GAUDI_MAKE_VERSION(UCX_GAUDI_VERSION_MAJOR, UCX_GAUDI_VERSION_MINOR,   \
                           UCX_GAUDI_VERSION_PATCH)

#define UCX_GAUDI_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/** Version of the library that is loaded, as UCX_GAUDI_MAKE_VERSION has it. */
UCX_GAUDI_API unsigned ucx_gaudi_version(void);

/**
 * UCX's memory type that stands for Gaudi memory in this process: for
 * ucp_mem_map_params_t, ucp_request_param_t and uct_mem_alloc_params_t.
 *
 * @return UCS_MEMORY_TYPE_UNKNOWN when ucx-gaudi is not active: it has no
 *         module for the running UCX, or there is no type left for it.
 */
UCX_GAUDI_API ucs_memory_type_t ucx_gaudi_memory_type(void);

/** Which fields of ucx_gaudi_mem_attr_t are wanted. */
enum ucx_gaudi_mem_attr_field {
    UCX_GAUDI_MEM_ATTR_FIELD_BASE     = 1 << 0,
    UCX_GAUDI_MEM_ATTR_FIELD_LENGTH   = 1 << 1,
    UCX_GAUDI_MEM_ATTR_FIELD_CARD     = 1 << 2,
    UCX_GAUDI_MEM_ATTR_FIELD_IMPORTED = 1 << 3
};

/** What device memory is. */
typedef struct ucx_gaudi_mem_attr {
    uint64_t
        field_mask; /**< enum ucx_gaudi_mem_attr_field, set by the caller */
    void *base;     /**< first byte of the allocation or import */
    size_t length;  /**< its bytes */
    char card[16];  /**< "gaudi0"; of an import, the card that reaches it */
    int imported;   /**< 1: by ucx_gaudi_dmabuf_import, else 0 */
} ucx_gaudi_mem_attr_t;

/**
 * Look up device memory.
 *
 * @return UCS_OK; UCS_ERR_INVALID_PARAM without attr; UCS_ERR_INVALID_ADDR
 *         (not logged) when the range is not as a whole in one allocation of
 *         device memory or in one import.
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_mem_query(const void *address,
                                               size_t length,
                                               ucx_gaudi_mem_attr_t *attr);

/**
 * Export a range of device memory.
 *
 * A dma-buf is made of whole pages of the host. The range may start and end
 * anywhere in an allocation: the pages around it are exported, and offset_p
 * tells where in the dma-buf it starts. No other allocation is in these pages,
 * but the rest of the same one can be.
 *
 * Nothing is kept for an export: close the descriptor when it is no longer
 * needed. The memory may be freed before. It stays what it is for those who
 * hold the dma-buf, and the card gets it back when all of them are gone. A card
 * stays taken as long as any process holds a dma-buf of it.
 *
 * @param address   Of device memory, allocated by UCX.
 * @param length    Bytes, not 0.
 * @param fd_p      A new file descriptor, close-on-exec, owned by the caller.
 * @param offset_p  Of the first byte in the dma-buf, less than a page.
 * @return UCS_OK
 *         UCS_ERR_INVALID_PARAM  an output is NULL
 *         UCS_ERR_INVALID_ADDR   the range is not as a whole in one allocation
 *                                of device memory: host memory, freed memory,
 *                                nothing
 *         UCS_ERR_NO_DEVICE      its card was reset or removed
 *         UCS_ERR_UNSUPPORTED    the driver has no such call, or the memory is
 *                                imported: the exporter's dma-buf is the one to
 *                                pass on
 *         UCS_ERR_NO_MEMORY, UCS_ERR_IO_ERROR  as the driver says, also without
 *                                room for one more file descriptor
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_dmabuf_export(const void *address,
                                                   size_t length, int *fd_p,
                                                   size_t *offset_p);

/**
 * Import part of a dma-buf of device memory, exported by another card or
 * process, or by the same.
 *
 * The address that it gives is device memory of the importing card for UCX:
 * detected as such, taken by puts, gets and messages, and by mem_reg. Copies
 * between it and the card's own memory go directly from card to card. The CPU
 * cannot touch it.
 *
 * The memory stays valid until ucx_gaudi_dmabuf_release, whatever becomes of
 * the exporter, its allocation and the descriptor.
 *
 * @param fd         The dma-buf; stays the caller's, and may be closed
 *                   afterwards.
 * @param offset     Of the first wanted byte in it, any.
 * @param length     Bytes, not 0, any number up to the end of the dma-buf.
 * @param card       Which open card reaches it: name ("gaudi1"), index ("1") or
 *                   bus id; NULL for any.
 * @param address_p  Device address of the first byte.
 * @return UCS_OK
 *         UCS_ERR_INVALID_PARAM  an output is NULL, fd is no dma-buf of device
 *                                memory, or the range is not in it
 *         UCS_ERR_NO_DEVICE      this process has not that card open, or none
 *         UCS_ERR_UNSUPPORTED    the driver cannot import: the one in the Linux
 *                                kernel cannot, the vendor's own one can
 *         UCS_ERR_NO_MEMORY, UCS_ERR_IO_ERROR  as the driver says
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_dmabuf_import(int fd, size_t offset,
                                                   size_t length,
                                                   const char *card,
                                                   void **address_p);

/**
 * Undo an import. Nothing may be under way that uses it. It is unmapped when
 * the last registration of it has ended.
 *
 * @param address  As ucx_gaudi_dmabuf_import gave it; NULL does nothing.
 * @return UCS_OK
 *         UCS_ERR_INVALID_ADDR  no import gave this address
 */
UCX_GAUDI_API ucs_status_t ucx_gaudi_dmabuf_release(void *address);

#ifdef __cplusplus
}
#endif

#endif
