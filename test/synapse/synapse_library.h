/**
 * The stand-in for SynapseAI in a test's own process.
 */
#pragma once

#include "synapse/stand_in.h"

#include <string>

namespace gaudi::test {

/** The folder that it lies in. */
std::string synapse_folder();

class synapse_library {
public:
    /** Loaded as a framework does; aborts when it cannot be. */
    static const synapse_library &instance();

#define GAUDI_STAND_IN_FUNCTIONS(_row)                                            \
    _row(synStatus, synInitialize, ()) _row(synStatus, synDestroy, ()) _row(      \
        synStatus, synDeviceAcquire,                                              \
        (synDeviceId *, const char *)) _row(synStatus,                            \
                                            synDeviceAcquireByModuleId,           \
                                            (synDeviceId *, uint32_t))            \
        _row(synStatus, synDeviceRelease, (synDeviceId)) _row(                    \
            synStatus, synDeviceGetInfoV2,                                        \
            (synDeviceId,                                                         \
             synDeviceInfoV2 *)) _row(synStatus, synDeviceMalloc,                 \
                                      (synDeviceId, uint64_t, uint64_t,           \
                                       uint32_t,                                  \
                                       uint64_t *)) _row(synStatus,               \
                                                         synDeviceFree,           \
                                                         (synDeviceId,            \
                                                          uint64_t, uint32_t))    \
            _row(synStatus, synHostMalloc,                                        \
                 (synDeviceId, uint64_t, uint32_t,                                \
                  void **)) _row(synStatus, synHostFree,                          \
                                 (synDeviceId, const void *,                      \
                                  uint32_t)) _row(synStatus, synHostMap,          \
                                                  (synDeviceId, uint64_t,         \
                                                   const void *))                 \
                _row(synStatus, synHostUnmap,                                     \
                     (synDeviceId,                                                \
                      const void                                                  \
                          *)) _row(synStatus, synStreamCreateGeneric,             \
                                   (synStreamHandle *, synDeviceId, uint32_t))    \
                    _row(synStatus, synEventCreate,                               \
                         (synEventHandle *, synDeviceId,                          \
                          uint32_t)) _row(synStatus, synEventDestroy,             \
                                          (synEventHandle))                       \
                        _row(synStatus, synEventRecord,                           \
                             (synEventHandle, synStreamHandle))                   \
                            _row(synStatus, synEventQuery, (synEventHandle))      \
                                _row(synStatus, synEventSynchronize,              \
                                     (synEventHandle))                            \
                                    _row(synStatus, synMemCopyAsync,              \
                                         (synStreamHandle, uint64_t, uint64_t,    \
                                          uint64_t,                               \
                                          synDmaDir)) _row(void,                  \
                                                           syn_stand_in_reset,    \
                                                           ())                    \
                                        _row(void, syn_stand_in_be_old,           \
                                             (bool))                              \
                                            _row(unsigned,                        \
                                                 syn_stand_in_blocking_calls,     \
                                                 ())                              \
                                                _row(                             \
                                                    void,                         \
                                                    syn_stand_in_refuse_copies,   \
                                                    (unsigned, synStatus))        \
                                                    _row(                         \
                                                        unsigned,                 \
                                                        syn_stand_in_mappings,    \
                                                        ())                       \
                                                        _row(                     \
                                                            unsigned,             \
                                                            syn_stand_in_streams, \
                                                            ())

#define GAUDI_STAND_IN_POINTER(_result, _name, _parameters)                    \
    _result(*_name) _parameters = nullptr;
    GAUDI_STAND_IN_FUNCTIONS(GAUDI_STAND_IN_POINTER)
#undef GAUDI_STAND_IN_POINTER

private:
    synapse_library();
};

/** Shorthand: its functions. */
inline const synapse_library &synapse()
{
    return synapse_library::instance();
}

} // namespace gaudi::test
