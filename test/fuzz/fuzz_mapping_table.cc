/* SPDX-License-Identifier: BSD-3-Clause */
/* The reader of GAUDI_MAPPING_TABLE: whatever the text is, it is either refused
 * with a reason or gives entries that keep what the header promises. */
#include "hlthunk_shim/discovery/mapping_table.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>

using namespace gaudi::shim;

namespace {

void require(bool condition)
{
    if (!condition) {
        std::abort();
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const std::string text(reinterpret_cast<const char *>(data), size);
    const mapping_table table = parse_mapping_table(text);

    if (!table.error.empty()) {
        require(table.entries.empty());
        return 0;
    }
    require(table.entries.size() <= max_mapping_entries);
    std::set<unsigned> indices;
    std::set<unsigned> modules;
    std::set<std::string> bus_ids;
    for (const mapping_entry &entry : table.entries) {
        require(entry.index <= max_mapping_number);
        require(entry.module_id <= max_mapping_number);
        require(normalize_bus_id(entry.bus_id) == entry.bus_id);
        require(!entry.bus_id.empty());
        require(indices.insert(entry.index).second);
        require(modules.insert(entry.module_id).second);
        require(bus_ids.insert(entry.bus_id).second);
    }
    return 0;
}
