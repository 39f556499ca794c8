/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/sharing/key.h"

#include "uct/gaudi/ipc/process/reachability.h"
#include "uct/gaudi/ipc/process/shared_page.h"

#include <bit>
#include <cstddef>
#include <cstring>

namespace gaudi::ipc {

namespace {

/* One that differs in a single word never has the same. */
uint64_t checksum_of(const wire_key &key)
{
    constexpr size_t words = offsetof(wire_key, checksum) / sizeof(uint64_t);
    constexpr uint64_t odd = 0x9e3779b97f4a7c15;
    uint64_t word[words];
    std::memcpy(word, &key, sizeof(word));
    uint64_t sum = words;
    for (const uint64_t each : word) {
        sum = std::rotl((sum ^ each) * odd, 29);
    }
    return sum;
}

bool is_range(uint64_t start, uint64_t length)
{
    return length <= UINT64_MAX - start;
}

/* What is wrong with a key of this machine and version; nullptr: nothing. */
const char *find_mistake(const wire_key &key)
{
    if ((key.process.pid == 0) || (key.process.pid > INT32_MAX) ||
        (key.process.nonce == 0)) {
        return "it names no process";
    }
    if ((key.cell >= max_cells) || (key.stamp == 0)) {
        return "it names no cell";
    }
    if (!is_range(key.address, key.length)) {
        return "its range wraps around";
    }
    if (key.of_message > 1) {
        return "it is neither yes nor no where it should be";
    }
    if ((key.kind != key_kind::host) && (key.kind != key_kind::device)) {
        return "it is of no kind of memory";
    }
    return nullptr;
}

} // namespace

void seal_key(wire_key &key)
{
    key.checksum = checksum_of(key);
}

ucs_status_t read_key(const void *buffer, wire_key &key_p)
{
    wire_key key;
    std::memcpy(&key, buffer, sizeof(key));

    if ((key.machine.version == wire_version) &&
        (key.checksum != checksum_of(key))) {
        ucs_error("gaudi_ipc: what was received is no remote key: it was "
                  "changed on its way");
        return UCS_ERR_INVALID_PARAM;
    }
    const std::string why = why_unreachable(key.machine);
    if (!why.empty()) {
        ucs_debug("gaudi_ipc: a remote key cannot be used: %s", why.c_str());
        return UCS_ERR_UNREACHABLE;
    }
    const char *mistake = find_mistake(key);
    if (mistake != nullptr) {
        ucs_error("gaudi_ipc: what was received is no remote key: %s", mistake);
        return UCS_ERR_INVALID_PARAM;
    }
    key_p = key;
    return UCS_OK;
}

} // namespace gaudi::ipc
