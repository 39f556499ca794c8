/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Device memory that comes from others, or goes to them, as dma-bufs.
 *
 * Any thread; see memory_map.h for the locks.
 */
#pragma once

#include "uct/gaudi/base/cards/card.h"

namespace gaudi::base {

/**
 * Export device memory as a dma-buf of the host pages around it.
 *
 * Nothing is kept for it but by the driver. The memory may be freed while
 * the dma-buf is alive, and stays what it is for who holds that.
 *
 * @param quiet     Log failures as diagnostics: UCX tries things, and UCP
 * rounds up what it asks for.
 * @param fd_p      A new descriptor, close-on-exec, owned by the caller;
 *                  filled on success, as
 * @param offset_p  the place of the first byte in the dma-buf.
 * @return UCS_ERR_INVALID_ADDR when no allocation covers the range,
 *         UCS_ERR_UNSUPPORTED for imported memory and by drivers without
 *         export; logged.
 */
[[nodiscard]] ucs_status_t export_dmabuf(const void *address, size_t length,
                                         bool quiet, int &fd_p,
                                         size_t &offset_p);

/**
 * Import part of a dma-buf: device memory of the card from then on.
 *
 * @param fd         Stays the caller's, and may be closed.
 * @param address_p  Filled on success.
 * @return UCS_ERR_UNSUPPORTED by a driver that cannot import,
 *         UCS_ERR_INVALID_PARAM for what is no dma-buf or not in it; errors
 *         were logged.
 */
[[nodiscard]] ucs_status_t import_dmabuf(card &importer, int fd, size_t offset,
                                         size_t length, void *&address_p);

/** Undo an import. It is unmapped when its last registration has ended.
 *  @return UCS_ERR_INVALID_ADDR for another address; logged. */
[[nodiscard]] ucs_status_t release_import(const void *address);

} // namespace gaudi::base
