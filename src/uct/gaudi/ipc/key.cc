/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/ipc/key.h"

#include <bit>
#include <cstddef>
#include <cstring>

namespace gaudi::ipc {

namespace {

/* Changing any one word changes the checksum. */
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

/* What is wrong with a key of this machine and version; nullptr: nothing. */
const char *find_mistake(const wire_key &key)
{
    if ((key.process == 0) || (key.word == 0)) {
        return "it names no owner";
    }
    if (key.length > UINT64_MAX - key.address) {
        return "its range wraps around";
    }
    if ((key.of_message > 1) || (key.reserved != 0)) {
        return "a field is out of range";
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

bool is_sealed(const wire_key &key)
{
    return key.checksum == checksum_of(key);
}

ucs_status_t read_key(const void *buffer, wire_key &key_p)
{
    wire_key key;
    std::memcpy(&key, buffer, sizeof(key));

    if (key.version != wire_version) {
        ucs_debug("gaudi_ipc: a remote key cannot be used: its version is %u, "
                  "and this process's %u",
                  key.version, wire_version);
        return UCS_ERR_UNREACHABLE;
    }
    const char *mistake =
        is_sealed(key) ? find_mistake(key) : "it was changed on its way";
    if (mistake != nullptr) {
        ucs_error("gaudi_ipc: what was received is no remote key: %s", mistake);
        return UCS_ERR_INVALID_PARAM;
    }
    if (!hashes_of(own_machine()).reaches(key.place)) {
        ucs_debug("gaudi_ipc: a remote key cannot be used: its process is of "
                  "another machine, box, namespace or user");
        return UCS_ERR_UNREACHABLE;
    }
    key_p = key;
    return UCS_OK;
}

} // namespace gaudi::ipc
