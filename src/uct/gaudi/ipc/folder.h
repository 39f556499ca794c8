/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The folder by which processes find each other whose network or user
 * namespaces keep them apart, such as those of two pods (UCX_GAUDI_IPC_DIR).
 *
 * In it each user has a folder of its own, closed to all others, and there each
 * process a socket. It is removed at exit; that of a killed process, when
 * another one comes. Any thread.
 */
#pragma once

#include "util/unique_fd.h"

#include <cstdint>

namespace gaudi::ipc {

/** Tells the user's folder from others of the machine; 0: there is none, or
 *  none that can be used, which was logged as a warning. */
[[nodiscard]] uint32_t folder_identity();

/** Connect to a process by its name, or by the folder.
 *  @return As connect_to_name. */
[[nodiscard]] util::unique_fd connect_to(uint64_t process, int &error_p);

/** The listening socket of this process, made by the first call; -1: none.
 *  Stays the folder's. */
[[nodiscard]] int folder_socket();

} // namespace gaudi::ipc
