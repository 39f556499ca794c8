/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies and fills of ucx_gaudi.h. One that fails on its way leaves some of the
 * bytes. */
#include "program/program_copies.h"

#include "program/program_memory.h"
#include "program/ucx_gaudi.h"
#include "uct/gaudi/base/memory/registration_cache.h"

#include "util/locks.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace gaudi {

using base::memory_map;

namespace {

/* Of a fill: what comes from the host. */
constexpr size_t pattern_block = 65536;

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
    return program_memory::call_with_engine(true, [&](auto &engine) {
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

base::side side_of(const opened_ptr &opened, const void *address)
{
    return (opened == nullptr)
               ? base::side(address)
               : base::side(
                     *opened->key,
                     opened->key->address() +
                         (reinterpret_cast<uintptr_t>(address) - opened->here));
}

/* Of the program's, if it is memory of this process. */
base::held_registration find_host(const opened_ptr &opened, const void *address,
                                  size_t length)
{
    return ((opened != nullptr) || memory_map::is_device(address))
               ? nullptr
               : program_memory::instance().find_host(address, length);
}

/* Whether cards reach all of a range. */
bool is_mapped(const void *address, size_t length)
{
    if (memory_map::is_device(address) ||
        (find_host(nullptr, address, length) != nullptr)) {
        return true;
    }
    auto &of_ucx = base::registration_cache::instance();
    if (!of_ucx.join()) {
        return false;
    }
    const bool found =
        base::held_registration(of_ucx.find_host(const_cast<void *>(address),
                                                 length, false)) != nullptr;
    (void)of_ucx.close();
    return found;
}

} // namespace

/* What goes between processes is logged, as gaudi_ipc does. */
copy_sides::copy_sides(void *to_address, const void *from_address, size_t bytes)
    : to(program_ipc::instance().find(to_address, bytes)),
      from(program_ipc::instance().find(from_address, bytes)),
      to_host(find_host(to, to_address, bytes)),
      from_host(find_host(from, from_address, bytes)),
      dst(side_of(to, to_address)), src(side_of(from, from_address)),
      length(bytes), begun(std::chrono::steady_clock::now())
{
    dst.registration = to_host.get();
    src.registration = from_host.get();
    if (!is_within()) {
        ucs_info("gaudi: %s begins", text().c_str());
    }
}

std::string copy_sides::text() const
{
    const auto kind = [](const base::side &of, const opened_ptr &opened) {
        const bool is_host =
            (opened != nullptr) ? opened->key->is_host() : !of.is_device;
        return is_host ? "host" : "gaudi";
    };
    char line[128];
    std::snprintf(line, sizeof(line), "a copy of %zu bytes, %s to %s, by %s %u",
                  length, kind(src, from), kind(dst, to),
                  (to != nullptr) ? "push to process" : "pull from process",
                  ((to != nullptr) ? to : from)->key->pid());
    return line;
}

void copy_sides::log_end(ucs_status_t status) const
{
    const std::chrono::duration<double, std::micro> time =
        std::chrono::steady_clock::now() - begun;
    if (!is_within()) {
        ucs_info("gaudi: %s ended after %.0f us: %s", text().c_str(),
                 time.count(), ucs_status_string(status));
    }
}

ucs_status_t copy_sides::connect(base::transfer_engine &engine)
{
    ucs_status_t status = UCS_OK;
    if (to != nullptr) {
        status = to->find_peer(engine, dst.peer);
    }
    if ((status == UCS_OK) && (from != nullptr)) {
        status = from->find_peer(engine, src.peer);
    }
    return status;
}

bool is_of_cards(const void *dst, const void *src, size_t length)
{
    return (memory_map::is_device(dst) || memory_map::is_device(src)) &&
           is_mapped(dst, length) && is_mapped(src, length);
}

ucs_status_t check_copy(const char *function, const void *dst, const void *src,
                        size_t length)
{
    if (((dst == nullptr) || (src == nullptr)) && (length != 0)) {
        return refuse_null(function);
    }
    ucs_status_t status = check_range(dst, length);
    if (status == UCS_OK) {
        status = check_range(src, length);
    }
    if ((status == UCS_OK) && (length != 0) && (dst != src) &&
        overlap(dst, src, length)) {
        ucs_error("gaudi: cannot copy %zu bytes from %p to %p: they overlap",
                  length, src, dst);
        return UCS_ERR_INVALID_PARAM;
    }
    return status;
}

ucs_status_t copy_memory(void *dst, const void *src, size_t length) noexcept
{
    if ((length == 0) || (dst == src)) {
        return UCS_OK;
    }
    if (!memory_map::is_device(dst) && !memory_map::is_device(src)) {
        std::memmove(dst, src, length);
        return UCS_OK;
    }
    return base::guarded_entry([&] {
        copy_sides sides(dst, src, length);
        const ucs_status_t ended = program_memory::call_with_engine(
            sides.is_within(), [&](base::transfer_engine &engine) {
                ucs_status_t status = sides.connect(engine);
                if (status == UCS_OK) {
                    status = engine.copy(sides.dst, sides.src, length);
                }
                while (status == UCS_ERR_NO_RESOURCE) {
                    /* The only way to the peer is being made. */
                    util::nap();
                    status = engine.copy(sides.dst, sides.src, length);
                }
                return status;
            });
        sides.log_end(ended);
        return ended;
    });
}

} // namespace gaudi

ucs_status_t ucx_gaudi_mem_copy(void *dst, const void *src, size_t length)
{
    return gaudi::base::guarded_entry([&, own = __func__] {
        const ucs_status_t status = gaudi::check_copy(own, dst, src, length);
        return (status == UCS_OK) ? gaudi::copy_memory(dst, src, length)
                                  : status;
    });
}

ucs_status_t ucx_gaudi_mem_fill(void *address, size_t length,
                                const void *pattern, size_t pattern_length)
{
    return gaudi::base::guarded_entry([&, own = __func__] {
        if ((address == nullptr) || (pattern == nullptr)) {
            return (length == 0) ? UCS_OK : gaudi::refuse_null(own);
        }
        return gaudi::fill_memory(address, length, pattern, pattern_length);
    });
}
