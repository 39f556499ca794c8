#include "common/framework.h"

#include "synapse/synapse_library.h"

#include <cstdlib>
#include <cstring>

namespace gaudi::test {

namespace {

bool acquired = false;

bool is_set(const char *variable, const char *value)
{
    const char *text = std::getenv(variable);
    return (text != nullptr) && (std::strcmp(text, value) == 0);
}

} // namespace

void start_framework()
{
    static bool started = false;
    if (is_set("UCX_GAUDI_ENGINE", "synapse")) {
        (void)synapse(); /* where dlopen finds it */
    }
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

bool has_one_card()
{
    return is_set("HLTHUNK_EMU_ASIC", "gaudi3");
}

child_environment with_cards_of_ucx(child_environment settings)
{
    if (runs_beside_framework()) {
        settings.emplace_back("GAUDI_TEST_FRAMEWORK", "");
        settings.emplace_back("UCX_GAUDI_ENGINE", "synapse");
    }
    return settings;
}

bool has_framework()
{
    return acquired;
}

} // namespace gaudi::test
