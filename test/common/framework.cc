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
    if (started || (std::getenv("GAUDI_TEST_FRAMEWORK") == nullptr)) {
        return;
    }
    started        = true;
    synDeviceId id = 0;
    acquired       = (synapse().synInitialize() == synSuccess) &&
               (synapse().synDeviceAcquire(&id, nullptr) == synSuccess);
}

bool has_framework()
{
    return acquired;
}

} // namespace gaudi::test
