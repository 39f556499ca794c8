#include "uct/gaudi/base/cards/box.h"

#include "uct/gaudi/base/cards/driver.h"
#include "uct/gaudi/base/ucx/ucx.h"
#include "util/made_once.h"

#include <string>

extern "C" {
#include <ucs/sys/uid.h>
}

namespace gaudi::base {

namespace {

/* FNV-1a. */
uint64_t add_to_hash(uint64_t hash, const std::string &text)
{
    for (const unsigned char c : text) {
        hash = (hash ^ c) * 0x100000001b3u;
    }
    return hash;
}

constinit util::made_once<uint64_t> identity;

} // namespace

uint64_t box_identity()
{
    return identity.get([] {
        const shim::driver *loaded = driver();
        const std::string name = (loaded != nullptr) ? loaded->box_name() : "";
        return add_to_hash(ucs_get_system_id() ^ 0xcbf29ce484222325u, name);
    });
}

} // namespace gaudi::base
