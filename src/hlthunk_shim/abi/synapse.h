/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The part of SynapseAI's C ABI that this project calls, and of SCAL's below
 * it.
 *
 * Names, values and order of members are those of the public headers
 * synapse_api.h, synapse_api_types.h, synapse_common_types.h and scal.h in
 * HabanaAI/HCL; they are the same from 1.16 to 1.21. Those headers redefine
 * size_t for C programs, so none of them is included anywhere.
 */
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

/** Statuses that something is made of here; there are more. */
enum synStatus : uint32_t {
    synSuccess                      = 0,
    synInvalidArgument              = 1,
    synCbFull                       = 2,
    synOutOfHostMemory              = 3,
    synOutOfDeviceMemory            = 4,
    synObjectNotInitialized         = 6,
    synNoDeviceFound                = 8,
    synFailedToAllocateDeviceMemory = 14,
    synDeviceReset                  = 17,
    synUnsupported                  = 18,
    synDeviceAlreadyAcquired        = 20,
    synBusy                         = 22,
    synAllResourcesTaken            = 23,
    synUnavailable                  = 24,
    synFail                         = 26,
    synOutOfResources               = 27,
    synUninitialized                = 28,
    synAlreadyInitialized           = 29,
    synSynapseTerminated            = 31,
    synAssertAsync                  = 32,
    synInvalidEventHandle           = 33,
    synMappingNotFound              = 34,
    synTimeout                      = 42,
    synNullPtr                      = 44
};

enum synDmaDir : uint32_t {
    HOST_TO_DRAM = 0,
    DRAM_TO_HOST = 1,
    DRAM_TO_DRAM = 2
};

enum synDeviceType : uint32_t { synDeviceGaudi2 = 4, synDeviceGaudi3 = 5 };

using synDeviceId     = uint32_t;
using synStreamHandle = struct InternalStreamHandle *;
using synEventHandle  = struct EventInterfaceExternal *;

struct synDeviceInfoV2 {
    uint64_t sramBaseAddress;
    uint64_t dramBaseAddress; /**< the driver's, not where buffers are */
    uint32_t sramSize;
    uint64_t dramSize; /**< of global_hbm, but for what the runtime has */
    uint64_t tpcEnabledMask;
    uint8_t dramEnabled;
    uint32_t deviceId; /**< the module id */
    uint32_t fd;       /**< of the compute node */
    synDeviceType deviceType;
    uint8_t deviceIndex;
    /** What the driver gave for the allocation that global_hbm lies in; not
     *  written before 1.18. */
    uint64_t globalHbmBaseAddress;
};

using scal_handle_t      = struct scal_opaque *;
using scal_pool_handle_t = struct scal_pool_opaque *;

struct scal_memory_pool_infoV2 {
    scal_handle_t scal;
    const char *name;
    unsigned idx;
    uint64_t device_base_address; /**< where the pool begins */
    void *host_base_address;
    uint32_t core_base_address;
    uint64_t totalSize; /**< bytes */
    uint64_t freeSize;
    /** What the driver gave for the allocation that the pool lies in. */
    uint64_t device_base_allocated_address;
};

} // extern "C"

namespace gaudi::shim {

static_assert(sizeof(synDeviceInfoV2) == 72);
static_assert(offsetof(synDeviceInfoV2, fd) == 48);
static_assert(offsetof(synDeviceInfoV2, globalHbmBaseAddress) == 64);
static_assert(sizeof(scal_memory_pool_infoV2) == 72);
static_assert(offsetof(scal_memory_pool_infoV2, totalSize) == 48);

/** The pool of SCAL that synDeviceMalloc allocates from. */
inline constexpr char scal_device_pool[] = "global_hbm";

} // namespace gaudi::shim
