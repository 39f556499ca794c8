/* SPDX-License-Identifier: BSD-3-Clause */
/* A libscal.so that knows one descriptor: what the stand-in for SynapseAI has
 * acquired. Statuses are scal.h's. */
#include "synapse/stand_in.h"

#include <cstring>
#include <mutex>

namespace {

constexpr int success   = 0;
constexpr int failure   = -1;
constexpr int invalid   = -4;
constexpr int not_found = -11;

std::mutex lock;
int known_fd = -1;
scal_memory_pool_infoV2 known_pool{};

scal_handle_t handle()
{
    return reinterpret_cast<scal_handle_t>(&known_fd);
}

} // namespace

#pragma GCC visibility push(default)

extern "C" {

void scal_stand_in_set(int fd, const scal_memory_pool_infoV2 *pool)
{
    const std::lock_guard<std::mutex> guard(lock);
    known_fd   = fd;
    known_pool = *pool;
}

/* A duplicate of the descriptor is another one. */
int scal_get_handle_from_fd(int fd, scal_handle_t *scal)
{
    const std::lock_guard<std::mutex> guard(lock);
    if ((fd < 0) || (fd != known_fd)) {
        return failure;
    }
    *scal = handle();
    return success;
}

int scal_get_pool_handle_by_name(scal_handle_t scal, const char *name,
                                 scal_pool_handle_t *pool)
{
    const std::lock_guard<std::mutex> guard(lock);
    if (scal != handle()) {
        return invalid;
    }
    if (std::strcmp(name, known_pool.name) != 0) {
        return not_found;
    }
    *pool = reinterpret_cast<scal_pool_handle_t>(&known_pool);
    return success;
}

int scal_pool_get_infoV2(scal_pool_handle_t pool, scal_memory_pool_infoV2 *info)
{
    const std::lock_guard<std::mutex> guard(lock);
    if (pool != reinterpret_cast<scal_pool_handle_t>(&known_pool)) {
        return invalid;
    }
    *info      = known_pool;
    info->scal = handle();
    return success;
}

} // extern "C"

#pragma GCC visibility pop
