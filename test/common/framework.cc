#include "common/framework.h"

#include "synapse/synapse_library.h"

#include <cstdlib>

namespace gaudi::test {

namespace {

bool acquired = false;

} // namespace

void start_framework()
{
    static bool started = false;
    if (started || !runs_beside_framework()) {
        return;
    }
    started        = true;
    synDeviceId id = 0;
    acquired       = (synapse().synInitialize() == synSuccess) &&
               (synapse().synDeviceAcquire(&id, nullptr) == synSuccess);
}

bool runs_beside_framework()
{
    const char *text = std::getenv("GAUDI_TEST_FRAMEWORK");
    return (text != nullptr) && (*text != '\0');
}

bool has_framework()
{
    return acquired;
}

} // namespace gaudi::test
