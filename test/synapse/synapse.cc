/* SPDX-License-Identifier: BSD-3-Clause */
#include "synapse/stand_in.h"

#include "hlthunk_shim/abi/hlthunk.h"
#include "synapse/hcl.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

constexpr uint64_t alignment = 128;
/* In front of the pool on Gaudi2, where SCAL carves all of its pools from one
 * allocation. */
constexpr uint64_t reserved   = 64 << 20;
constexpr uint64_t tail       = 4096;
constexpr unsigned directions = 3;

/* hl-thunk, by the library that the tests use. */
struct driver {
    driver()
    {
        const char *other = std::getenv("GAUDI_TEST_HLTHUNK");
        handle            = dlopen((other != nullptr) ? other
                                                      : GAUDI_BUILD_DIR
                                       "/lib/hlthunk-emu/libhl-thunk.so",
                        RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) {
            std::fprintf(stderr, "stand-in for SynapseAI: %s\n", dlerror());
            std::abort();
        }
    }

    template <typename Function>
    void find(const char *name, Function *&function) const
    {
        function = reinterpret_cast<Function *>(dlsym(handle, name));
        if (function == nullptr) {
            std::fprintf(stderr, "stand-in for SynapseAI: no %s\n", name);
            std::abort();
        }
    }

    void *handle;
};

struct driver_functions {
    driver_functions()
    {
        static const driver library;
#define DRIVER_SYMBOL(_result, _name, _parameters) library.find(#_name, _name);
#include "synapse/driver_symbols.def"
#undef DRIVER_SYMBOL
    }
#define DRIVER_SYMBOL(_result, _name, _parameters)                             \
    _result(*_name) _parameters = nullptr;
#include "synapse/driver_symbols.def"
#undef DRIVER_SYMBOL
};

/* Looked up for each call: the vendor's libraries are linked with hl-thunk, and
 * call what their names lead to by then. */
driver_functions hl()
{
    return driver_functions();
}

/* And have it from their own start on: in a forked child UCM's dlopen may find
 * the dynamic linker's lock taken (from 1.18 on, by dl_iterate_phdr). */
[[gnu::constructor]] void load_driver()
{
    (void)hl();
}

/* A copy of a queue, by its number: they are counted from 1 on. */
struct place {
    unsigned queue = 0;
    uint64_t copy  = 0;
};

struct copy {
    uint64_t dst;
    uint64_t src;
    uint64_t size;
    place after; /* the one before it in its stream, of another queue */
};

/* All streams share one queue for each direction, the framework's and ours:
 * streams_container.cpp, DEFAULT_STREAM_AFFINITY_MASK. The card takes few
 * copies at a time, a queue many. */
struct copy_queue {
    uint64_t started = 0; /* number of its newest copy */
    uint64_t ended   = 0;
    bool broken      = false;     /* the card has aborted one */
    std::deque<copy> waiting;     /* for the card */
    std::deque<uint64_t> running; /* as the driver numbers them */
};

struct event {
    bool recorded = false;
    place last; /* of the stream, when it was recorded */
};

struct host_range {
    uint64_t end;
    uint64_t va;
    bool is_own; /* of synHostMalloc */
};

struct acquired_device {
    int fd          = -1;
    uint64_t handle = 0; /* of all its memory */
    uint64_t mapped = 0;
    uint64_t start  = 0; /* of the pool */
    uint64_t size   = 0;
    hlthunk_hw_ip_info facts{};
    std::map<uint64_t, uint64_t> free; /* start to size */
    std::map<uint64_t, uint64_t> used;
    std::map<uint64_t, host_range> host; /* by start */
    copy_queue queues[directions];
    std::unordered_map<uintptr_t, place> streams; /* their newest copies */
    std::unordered_map<uintptr_t, event> events;
    gaudi::test::verbs_device hcl;
};

std::mutex lock;
bool initialised        = false;
bool is_old             = false;
bool in_reset           = false;
unsigned refused_copies = 0;
synStatus refusal       = synFail;
size_t event_limit      = SIZE_MAX;
uintptr_t next_handle   = 0;
std::unique_ptr<acquired_device> device;

/* No pointers, and no two alike. */
uintptr_t make_handle()
{
    return (++next_handle << 4) | 5;
}

#define STAND_IN_NEEDS_DEVICE(_status)                                         \
    const std::lock_guard<std::mutex> guard(lock);                             \
    if (!initialised) {                                                        \
        return synUninitialized;                                               \
    }                                                                          \
    if (device == nullptr) {                                                   \
        return (_status);                                                      \
    }

/* Its own failures end the process. */
[[noreturn]] void die(const char *what)
{
    std::fprintf(stderr,
                 "stand-in for SynapseAI: %s: SynapseAI kills the "
                 "process now\n",
                 what);
    kill(getpid(), SIGKILL);
    std::abort();
}

void release_device()
{
    acquired_device &old = *device;
    old.hcl.reset();
    scal_memory_pool_infoV2 none{};
    none.name = "";
    scal_stand_in_set(-1, &none);
    for (const auto &[start, range] : old.host) {
        hl().hlthunk_memory_unmap(old.fd, range.va);
        if (range.is_own) {
            munmap(reinterpret_cast<void *>(start), range.end - start);
        }
    }
    hl().hlthunk_memory_unmap(old.fd, old.mapped);
    hl().hlthunk_device_memory_free(old.fd, old.handle);
    hl().hlthunk_close(old.fd);
    device.reset();
    in_reset = false;
}

/* The card of a descriptor, and all of its memory. */
synStatus take_device(int fd, synDeviceId *id)
{
    *id = 0xffffffff;
    if (fd < 0) {
        return synNoDeviceFound;
    }
    auto made = std::make_unique<acquired_device>();
    made->fd  = fd;
    hlthunk_dram_usage_info usage{};
    if ((hl().hlthunk_get_hw_ip_info(fd, &made->facts) != 0) ||
        (hl().hlthunk_get_dram_usage(fd, &usage) != 0)) {
        hl().hlthunk_close(fd);
        return synFail;
    }
    const bool gaudi3     = (made->facts.device_id >= 0x1060);
    const uint64_t before = gaudi3 ? 0 : reserved;
    const uint64_t page   = made->facts.dram_page_size;
    const uint64_t all    = usage.dram_free_mem / page * page;
    if (all <= before + tail) {
        hl().hlthunk_close(fd);
        return synFail;
    }
    made->handle = hl().hlthunk_device_memory_alloc(fd, all, 0, true, true);
    made->mapped = (made->handle != 0)
                       ? hl().hlthunk_device_memory_map(fd, made->handle, 0)
                       : 0;
    if (made->mapped == 0) {
        hl().hlthunk_close(fd);
        return synFail;
    }
    made->start = made->mapped + before;
    made->size  = all - before - tail;
    made->free.emplace(made->start, made->size);

    scal_memory_pool_infoV2 pool{};
    pool.name                          = gaudi::shim::scal_device_pool;
    pool.device_base_address           = made->start;
    pool.totalSize                     = made->size;
    pool.freeSize                      = made->size;
    pool.device_base_allocated_address = made->mapped;
    scal_stand_in_set(fd, &pool);
    made->hcl = gaudi::test::start_hcl(fd);
    device    = std::move(made);
    *id       = 0;
    return synSuccess;
}

/* Host memory as the card has it. */
bool translate(uint64_t host, uint64_t size, uint64_t &va)
{
    auto next = device->host.upper_bound(host);
    if (next == device->host.begin()) {
        return false;
    }
    const auto &[start, range] = *std::prev(next);
    if (host + size > range.end) {
        return false;
    }
    va = range.va + (host - start);
    return true;
}

bool has_ended(const place &which)
{
    return device->queues[which.queue].ended >= which.copy;
}

/* Note what has ended in a queue. */
void collect(copy_queue &on)
{
    while (!on.running.empty() && !on.broken) {
        uint32_t status = gaudi::shim::cs_busy;
        const int ret = hl().hlthunk_wait_for_cs(device->fd, on.running.front(),
                                                 0, &status);
        const bool ended = (ret == 0) || (ret == -EIO) || (ret == -ENODEV) ||
                           (ret == -EBUSY) || (ret == -ETIMEDOUT);
        if (!ended || ((ret == 0) && (status == gaudi::shim::cs_busy))) {
            break; /* SCAL asks the driver nothing, so no answer ends a copy */
        }
        on.broken = (ret < 0) || (status != gaudi::shim::cs_completed);
        on.running.pop_front();
        on.ended += on.broken ? 0 : 1;
    }
}

/* Have the card take what it has room for. */
void start(copy_queue &on)
{
    constexpr size_t at_a_time = 16;
    const auto engine          = static_cast<unsigned>(&on - device->queues);
    while (!on.waiting.empty() && (on.running.size() < at_a_time) &&
           has_ended(on.waiting.front().after)) {
        const copy next = on.waiting.front();
        uint64_t number = 0;
        if (hl().hlthunk_emu_copy(device->fd, next.dst, next.src, next.size,
                                  engine, &number) != 0) {
            on.broken = true;
            return;
        }
        on.waiting.pop_front();
        on.running.push_back(number);
    }
}

void advance()
{
    std::for_each_n(device->queues, directions, collect);
    std::for_each_n(device->queues, directions, start);
}

synStatus map(const void *buffer, uint64_t size, bool is_own)
{
    const auto start   = reinterpret_cast<uintptr_t>(buffer);
    const uint64_t end = start + size;
    uint64_t va;
    if (translate(start, size, va)) {
        return synSuccess; /* and nothing is counted */
    }
    const auto after = device->host.lower_bound(end);
    if ((after != device->host.begin()) &&
        (std::prev(after)->second.end > start)) {
        return synInvalidArgument;
    }
    va = hl().hlthunk_host_memory_map(device->fd, const_cast<void *>(buffer), 0,
                                      size);
    if (va == 0) {
        die("host memory cannot be mapped");
    }
    device->host[start] = {end, va, is_own};
    return synSuccess;
}

} // namespace

#pragma GCC visibility push(default)

extern "C" {

synStatus synInitialize()
{
    const std::lock_guard<std::mutex> guard(lock);
    initialised = true;
    return synSuccess;
}

synStatus synDestroy()
{
    const std::lock_guard<std::mutex> guard(lock);
    if (!initialised) {
        return synUninitialized;
    }
    if (device != nullptr) {
        release_device();
    }
    initialised = false;
    return synSuccess;
}

synStatus synDeviceAcquire(synDeviceId *id, const char *bus_id)
{
    /* Not open under the lock: what watches the driver may ask something. */
    {
        const std::lock_guard<std::mutex> guard(lock);
        if (!initialised) {
            return synUninitialized;
        }
        if (id == nullptr) {
            return synInvalidArgument;
        }
        if (device != nullptr) {
            return synDeviceAlreadyAcquired;
        }
    }
    const bool any = (bus_id == nullptr) || (*bus_id == '\0');
    const int fd =
        hl().hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, any ? nullptr : bus_id);
    const std::lock_guard<std::mutex> guard(lock);
    return take_device(fd, id);
}

synStatus synDeviceRelease(synDeviceId)
{
    STAND_IN_NEEDS_DEVICE(synNoDeviceFound);
    release_device();
    return synSuccess;
}

synStatus synDeviceGetInfoV2(synDeviceId, synDeviceInfoV2 *info)
{
    STAND_IN_NEEDS_DEVICE(synFail);
    if (info == nullptr) {
        return synInvalidArgument;
    }
    info->sramBaseAddress = device->facts.sram_base_address;
    info->dramBaseAddress = device->facts.dram_base_address;
    info->sramSize        = device->facts.sram_size;
    info->dramSize        = device->size;
    info->tpcEnabledMask  = device->facts.tpc_enabled_mask_ext;
    info->dramEnabled     = 1;
    info->deviceId        = device->facts.module_id;
    info->fd              = static_cast<uint32_t>(device->fd);
    info->deviceType =
        (device->facts.device_id >= 0x1060) ? synDeviceGaudi3 : synDeviceGaudi2;
    info->deviceIndex = 0;
    if (!is_old) {
        info->globalHbmBaseAddress = device->mapped;
    }
    return synSuccess;
}

synStatus synDeviceMalloc(synDeviceId, uint64_t size, uint64_t, uint32_t,
                          uint64_t *buffer)
{
    STAND_IN_NEEDS_DEVICE(synFail);
    *buffer             = 0;
    const uint64_t need = (size + alignment - 1) / alignment * alignment;
    if (need == 0) {
        return synSuccess;
    }
    for (auto piece = device->free.begin(); piece != device->free.end();
         ++piece) {
        const auto [start, bytes] = *piece;
        if (bytes < need) {
            continue;
        }
        device->free.erase(piece);
        if (bytes > need) {
            device->free.emplace(start + need, bytes - need);
        }
        device->used.emplace(start, need);
        *buffer = start;
        return synSuccess;
    }
    return synFail;
}

synStatus synDeviceFree(synDeviceId, uint64_t buffer, uint32_t)
{
    STAND_IN_NEEDS_DEVICE(synFail);
    const auto found = device->used.find(buffer);
    if (found == device->used.end()) {
        return synFail;
    }
    uint64_t start = found->first;
    uint64_t size  = found->second;
    device->used.erase(found);
    auto after = device->free.lower_bound(start);
    if ((after != device->free.end()) && (start + size == after->first)) {
        size += after->second;
        after = device->free.erase(after);
    }
    if ((after != device->free.begin()) &&
        (std::prev(after)->first + std::prev(after)->second == start)) {
        std::prev(after)->second += size;
    } else {
        device->free.emplace(start, size);
    }
    return synSuccess;
}

synStatus synHostMalloc(synDeviceId, uint64_t size, uint32_t flags,
                        void **buffer)
{
    STAND_IN_NEEDS_DEVICE(synFail);
    *buffer = nullptr;
    if (flags != 0) {
        return synFail;
    }
    if (size == 0) {
        return synSuccess;
    }
    void *data = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        return synOutOfHostMemory;
    }
    madvise(data, size, MADV_DONTFORK);
    *buffer = data;
    return map(data, size, true);
}

synStatus synHostMap(synDeviceId, uint64_t size, const void *buffer)
{
    STAND_IN_NEEDS_DEVICE(synInvalidArgument);
    return map(buffer, size, false);
}

static synStatus unmap(const void *buffer)
{
    const auto found = device->host.find(reinterpret_cast<uintptr_t>(buffer));
    if (found == device->host.end()) {
        return synSuccess;
    }
    if (hl().hlthunk_memory_unmap(device->fd, found->second.va) != 0) {
        die("host memory cannot be unmapped");
    }
    if (found->second.is_own) {
        munmap(reinterpret_cast<void *>(found->first),
               found->second.end - found->first);
    }
    device->host.erase(found);
    return synSuccess;
}

synStatus synHostUnmap(synDeviceId, const void *buffer)
{
    STAND_IN_NEEDS_DEVICE(synInvalidArgument);
    return unmap(buffer);
}

synStatus synHostFree(synDeviceId, const void *buffer, uint32_t)
{
    STAND_IN_NEEDS_DEVICE(synFail);
    return unmap(buffer);
}

synStatus synStreamCreateGeneric(synStreamHandle *made, synDeviceId, uint32_t)
{
    STAND_IN_NEEDS_DEVICE(synFail);
    const uintptr_t handle  = make_handle();
    device->streams[handle] = {};
    *made                   = reinterpret_cast<synStreamHandle>(handle);
    return synSuccess;
}

synStatus synEventCreate(synEventHandle *made, synDeviceId, uint32_t)
{
    STAND_IN_NEEDS_DEVICE(synFail);
    *made = nullptr;
    if (device->events.size() >= event_limit) {
        return synAllResourcesTaken; /* DeviceScal::createEvent */
    }
    const uintptr_t handle = make_handle();
    device->events[handle] = {};
    *made                  = reinterpret_cast<synEventHandle>(handle);
    return synSuccess;
}

synStatus synEventRecord(synEventHandle which, synStreamHandle on)
{
    STAND_IN_NEEDS_DEVICE(synFail);
    const auto found = device->events.find(reinterpret_cast<uintptr_t>(which));
    const auto from  = device->streams.find(reinterpret_cast<uintptr_t>(on));
    if (found == device->events.end()) {
        return synInvalidEventHandle;
    }
    if (from == device->streams.end()) {
        return synInvalidArgument;
    }
    found->second = {true, from->second};
    return synSuccess;
}

/* SynapseAI looks at a counter of the card, which a reset leaves as it is. */
synStatus synEventQuery(synEventHandle which)
{
    STAND_IN_NEEDS_DEVICE(synFail);
    const auto found = device->events.find(reinterpret_cast<uintptr_t>(which));
    if (found == device->events.end()) {
        return synInvalidEventHandle;
    }
    const event &asked = found->second;
    if (!asked.recorded) {
        return synFail;
    }
    if (in_reset) {
        return synBusy;
    }
    advance();
    return has_ended(asked.last) ? synSuccess : synBusy;
}

synStatus synMemCopyAsync(synStreamHandle on, uint64_t src, uint64_t size,
                          uint64_t dst, synDmaDir direction)
{
    STAND_IN_NEEDS_DEVICE(synFail);
    const auto found = device->streams.find(reinterpret_cast<uintptr_t>(on));
    if ((found == device->streams.end()) || (src == 0) || (dst == 0) ||
        (direction > DRAM_TO_DRAM)) {
        return synInvalidArgument;
    }
    if (refused_copies > 0) {
        --refused_copies;
        return refusal;
    }
    if (size == 0) {
        return synSuccess;
    }
    if (((direction == HOST_TO_DRAM) && !translate(src, size, src)) ||
        ((direction == DRAM_TO_HOST) && !translate(dst, size, dst))) {
        return synMappingNotFound;
    }
    if (in_reset) {
        return synSuccess;
    }
    copy_queue &queue = device->queues[direction];
    place &last       = found->second;
    queue.waiting.push_back(
        {dst, src, size, (last.queue == direction) ? place{} : last});
    last = {direction, ++queue.started};
    advance();
    return synSuccess;
}

void syn_stand_in_reset()
{
    const std::lock_guard<std::mutex> guard(lock);
    in_reset = true;
}

void syn_stand_in_be_old(bool old)
{
    const std::lock_guard<std::mutex> guard(lock);
    is_old = old;
}

void syn_stand_in_refuse_copies(unsigned count, synStatus status)
{
    const std::lock_guard<std::mutex> guard(lock);
    refused_copies = count;
    refusal        = status;
}

void syn_stand_in_limit_events(size_t more)
{
    const std::lock_guard<std::mutex> guard(lock);
    const size_t there = (device != nullptr) ? device->events.size() : 0;
    event_limit        = (more < SIZE_MAX - there) ? there + more : SIZE_MAX;
}

unsigned syn_stand_in_mappings()
{
    const std::lock_guard<std::mutex> guard(lock);
    return (device != nullptr) ? static_cast<unsigned>(device->host.size()) : 0;
}

unsigned syn_stand_in_streams()
{
    const std::lock_guard<std::mutex> guard(lock);
    return (device != nullptr) ? static_cast<unsigned>(device->streams.size())
                               : 0;
}

} // extern "C"

#pragma GCC visibility pop
