/**
 * Device memory as dma-bufs. Importing one is mapping::import_dmabuf.
 *
 * Any thread; nothing is kept here.
 */
#pragma once

#include "hlthunk_shim/hlthunk/device.h"

#include <cstdint>

namespace gaudi::shim {

/** What an exported range is a multiple of, and starts at, bytes: the pages of
 *  the host, whatever the pages of the card are (validate_export_params in
 *  drivers/accel/habanalabs). */
uint64_t dmabuf_page();

/**
 * Export pages of device memory.
 *
 * While the dma-buf is alive, in any process, the mapping cannot be unmapped
 * and the card stays open.
 *
 * @param va      As the mapping has it; the physical address on Gaudi1.
 * @param offset  Of the first exported byte behind it.
 * @param size    Bytes.
 * @param fd_p    A new descriptor, close-on-exec, owned by the caller; filled
 *                on success only.
 * @return 0; -EOPNOTSUPP by a driver library that has not the call of this
 *         card; -EINVAL for what is no range of pages in a mapping; else
 *         -errno.
 */
[[nodiscard]] int export_dmabuf(const device &dev, uint64_t va, uint64_t offset,
                                uint64_t size, int &fd_p);

/** @return Bytes of a dma-buf, 0 for any other file descriptor that tells no
 *          size, -EBADF for a closed one. */
[[nodiscard]] int64_t dmabuf_size(const device &dev, int dmabuf);

} // namespace gaudi::shim
