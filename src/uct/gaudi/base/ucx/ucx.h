/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The one way to UCX's headers, public and private, from C++.
 *
 * What differs between UCX versions is decided in this folder, never in copy/
 * or ipc/.
 */
#pragma once

/* Before UCX's headers, which must not drag them into the C block. */
#include <cstddef>
#include <cstdint>

extern "C" {
#include <config.h>

#include <ucm/event/event.h>
#include <ucs/config/parser.h>
#include <ucs/debug/log.h>
#include <ucs/memory/memory_type.h>
#include <ucs/memory/memtype_cache.h>
#include <ucs/sys/string.h>
#include <ucs/sys/topo/base/topo.h>
#include <ucs/vfs/base/vfs_obj.h>
#include <uct/api/v2/uct_v2.h>
#include <uct/base/uct_iface.h>
#include <uct/base/uct_iov.inl>
#include <uct/base/uct_md.h>
}
