/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/synapse/synapse_card.h"

#include "hlthunk_shim/memory.h"
#include "util/addresses.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include <strings.h>
#include <sys/mman.h>

namespace gaudi::shim {

namespace {

/* SynapseAI gives out multiples of 128 bytes. What is exported is pages. */
constexpr uint64_t granule = 4096;

/* Of Linux 5.14; older headers do not have it. */
constexpr int populate_write = 23;

bool is_host(uint64_t address)
{
    return !may_be_device_memory(address);
}

/* Memory of synHostMalloc is a shared anonymous mapping
 * (buffer_allocator.cpp in HabanaAI/Intel_Gaudi3_Software), which /proc shows
 * so. SynapseAI would unmap it for all. */
bool may_be_synapse_memory(uint64_t start, uint64_t end)
{
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        uint64_t first = 0;
        uint64_t last  = 0;
        char dash;
        std::istringstream fields(line);
        fields >> std::hex >> first >> dash >> last;
        if ((first < end) && (last > start) &&
            (line.find("/dev/zero") != std::string::npos)) {
            return true;
        }
    }
    return false;
}

/* Whether one of SynapseAI's own settings is so, in letters of either case
 * (GcfgItem::updateFromEnv in hl_gcfg of HabanaAI/Intel_Gaudi3_Software). */
bool is_set(const char *name, const char *word, const char *digit)
{
    const char *value = secure_getenv(name);
    return (value != nullptr) &&
           ((strcasecmp(value, word) == 0) || (std::strcmp(value, digit) == 0));
}

/* Whether HCL does not take the ports of what SynapseAI acquires
 * (device_scal.cpp there). The setting is private: SynapseAI passes over it
 * without the other one, which has two names (hlgcfg.cpp). */
bool leaves_ports()
{
    return is_set("INIT_HCCL_ON_ACQUIRE", "false", "0") &&
           (is_set("ENABLE_EXPERIMENTAL_FLAGS", "true", "1") ||
            is_set("EXP_FLAGS", "true", "1"));
}

/* Make sure that the driver can pin memory: SynapseAI ends the process when it
 * cannot. */
int populate(uint64_t start, uint64_t end)
{
    const uint64_t page  = dmabuf_page();
    const uint64_t first = start / page * page;
    return (madvise(reinterpret_cast<void *>(first),
                    util::round_up(end, page) - first, populate_write) == 0)
               ? 0
               : -EFAULT;
}

} // namespace

void sleep_longer(uint64_t &pause_us)
{
    constexpr uint64_t shortest_us = 5;
    constexpr uint64_t longest_us  = 1000;
    pause_us = std::clamp(pause_us + pause_us / 2, shortest_us, longest_us);
    std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
}

synapse_card::synapse_card(const library &lib,
                           std::shared_ptr<synapse_session> session,
                           const std::string &bus_id,
                           bool map_application_memory)
    : device(lib, session->fd(), bus_id, false), session_(std::move(session)),
      map_application_memory_(map_application_memory)
{}

int synapse_card::make(const library &lib,
                       std::shared_ptr<synapse_session> session,
                       bool map_application_memory,
                       std::function<void()> ending,
                       std::unique_ptr<card> &card_p)
{
    std::string bus_id;
    int ret = find_bus_id(lib, session->fd(), bus_id);
    if (ret != 0) {
        return ret;
    }
    std::unique_ptr<synapse_card> made(new synapse_card(
        lib, std::move(session), bus_id, map_application_memory));
    ret = made->find_out();
    if (ret != 0) {
        return ret;
    }
    /* SynapseAI chooses addresses, and allocates in any size. */
    made->capabilities_.page_bytes   = 0;
    made->capabilities_.window_bytes = 0;
    made->capabilities_.streams.fill(1);
    made->capabilities_.ports_read_host = false;
    if (const auto &memory = made->session_->memory()) {
        made->capabilities_.memory_bytes = memory->end - memory->start;
    }
    made->ending_ = std::move(ending);
    card_p        = std::move(made);
    return 0;
}

synapse_card::~synapse_card()
{
    if (ending_ != nullptr) {
        ending_();
    }
}

void synapse_card::end() const
{
    session_->end();
    lose();
}

int synapse_card::judge(synStatus status) const
{
    if (status == synSuccess) {
        return 0;
    }
    if (session_->is_end(status)) {
        if (!is_broken()) {
            end(); /* the framework has released it */
        }
        return -ENODEV;
    }
    return to_error(status);
}

/* Whether the card is in reset, or gone: the events of its jobs tell nothing of
 * that. If so, that is the end. */
bool synapse_card::is_broken() const
{
    const auto ask   = lib_.hlthunk_get_device_status_info;
    const int status = (ask != nullptr) ? ask(fd_) : device_operational;
    if (status == device_operational) {
        return false;
    }
    if (status != -EBADF) {
        tell_loss(*this, (status < 0) ? "removed" : "reset");
    }
    end();
    return true;
}

bool synapse_card::is_hopeless(patience &with) const
{
    if (!with.is_over()) {
        return false;
    }
    if (is_broken()) {
        return true;
    }
    if (with.is_exhausted()) {
        tell_loss(*this, "given up (SynapseAI does not end a copy)");
        end();
        return true;
    }
    return false;
}

int synapse_card::look(const job_event &event) const
{
    if (is_closed()) {
        return -ENODEV;
    }
    const synStatus status = session_->api().synEventQuery(event.event);
    if (status == synBusy) {
        return 0;
    }
    const int ret = judge(status);
    return (ret == 0) ? 1 : ret;
}

int synapse_card::query(ticket of, uint32_t timeout_us)
{
    const job_event *event = session_->find(of);
    const auto deadline =
        patience::clock::now() + std::chrono::microseconds(timeout_us);
    patience trust;
    for (uint64_t pause_us = 0; event != nullptr;) {
        const int ret = look(*event);
        if (!synapse_session::is_current(of, *event)) {
            break;
        }
        if (ret != 0) {
            return ret;
        }
        if (timeout_us == 0) {
            return 0;
        }
        if (is_hopeless(trust)) {
            return -ENODEV;
        }
        if (patience::clock::now() >= deadline) {
            return 0;
        }
        sleep_longer(pause_us);
    }
    return 1; /* it was collected */
}

/* --- memory ----------------------------------------------------------------*/

int synapse_card::allocate(uint64_t size, uint64_t,
                           allocation &allocation_p) const
{
    if (is_lost()) {
        return -ENODEV;
    }
    if (size > UINT64_MAX - granule) {
        return -ENOMEM;
    }
    uint64_t start         = 0;
    const synStatus status = session_->api().synDeviceMalloc(
        device_id, size + granule, 0, 0, &start);
    const int ret = judge(status);
    if (ret != 0) {
        /* What it says when there is no memory. */
        return (status == synFail) && (ret != -ENODEV) ? -ENOMEM : ret;
    }
    if (start == 0) {
        return -ENOMEM;
    }
    allocation made(*this, start);
    made.add({*this, util::round_up(start, granule)});
    allocation_p = std::move(made);
    return 0;
}

int synapse_card::free_memory(uint64_t handle) const
{
    return judge(session_->api().synDeviceFree(device_id, handle, 0));
}

std::optional<memory_block> synapse_card::application_block() const
{
    const auto &memory = session_->memory();
    return memory.has_value() ? std::optional(memory_block{
                                    memory->start, memory->end - memory->start})
                              : std::nullopt;
}

const char *synapse_card::why_no_ports() const
{
    return leaves_ports() ? nullptr
                          : "HCL takes the ports when SynapseAI acquires a "
                            "card, unless INIT_HCCL_ON_ACQUIRE=false and "
                            "ENABLE_EXPERIMENTAL_FLAGS=true";
}

/* Parts of what is mapped already need no mapping of their own, and the end of
 * one must not be the end of the others': SynapseAI does not count. */
int synapse_card::map_host(void *host, uint64_t size,
                           registration &registration_p) const
{
    const auto start = reinterpret_cast<uintptr_t>(host);
    const std::lock_guard<std::mutex> guard(mapping_lock_);
    if (!host_.join(start, start + size)) {
        if (host_.overlaps(start, start + size)) {
            return -EOPNOTSUPP;
        }
        /* What the driver refuses, SynapseAI ends the process for. */
        if (is_broken()) {
            return -ENODEV;
        }
        const int ret =
            judge(session_->api().synHostMap(device_id, size, host));
        if (ret != 0) {
            return ret;
        }
        host_.add(start, size);
    }
    registration_p = {*this, start};
    return 0;
}

int synapse_card::register_staging(void *host, uint64_t size,
                                   registration &registration_p) const
{
    return is_lost() ? -ENODEV : map_host(host, size, registration_p);
}

int synapse_card::register_host(void *host, uint64_t size,
                                registration &registration_p) const
{
    if (is_lost()) {
        return -ENODEV;
    }
    const auto start = reinterpret_cast<uintptr_t>(host);
    if (!map_application_memory_ ||
        may_be_synapse_memory(start, start + size)) {
        return -EOPNOTSUPP;
    }
    const int ret = populate(start, start + size);
    return (ret == 0) ? map_host(host, size, registration_p) : ret;
}

int synapse_card::import_dmabuf(int dmabuf, uint64_t size,
                                registration &registration_p) const
{
    if (is_lost()) {
        return -ENODEV;
    }
    registration imported;
    const int ret = device::import_dmabuf(dmabuf, size, imported);
    if (ret == 0) {
        imports_.add(imported.address(), size);
        registration_p = std::move(imported);
    }
    return ret;
}

int synapse_card::export_dmabuf(uint64_t address, uint64_t offset,
                                uint64_t size, int &fd_p) const
{
    const auto &memory   = session_->memory();
    const uint64_t start = address + offset;
    /* A part of SynapseAI's whole pool; how large that is, nothing tells. */
    if (!memory.has_value() || (memory->exportable == 0) ||
        !capabilities_.exports_parts) {
        return -EOPNOTSUPP;
    }
    /* The pool may begin and end within a page. */
    if ((start < memory->start / granule * granule) ||
        (size > util::round_up(memory->end, granule) - start)) {
        return -EINVAL;
    }
    return device::export_dmabuf(memory->exportable, start - memory->exportable,
                                 size, fd_p);
}

int synapse_card::unmap(uint64_t address) const
{
    const auto &memory = session_->memory();
    if (is_host(address)) {
        const std::lock_guard<std::mutex> guard(mapping_lock_);
        const uint64_t start = host_.leave(address);
        if (start == 0) {
            return 0;
        }
        if (is_broken()) {
            return -ENODEV;
        }
        return judge(session_->api().synHostUnmap(
            device_id, reinterpret_cast<const void *>(start)));
    }
    if (imports_.covers(address, address + 1)) {
        const int ret = device::unmap(address);
        if (ret == 0) {
            (void)imports_.leave(address);
        }
        return ret;
    }
    /* Device memory of SynapseAI's goes by free_memory. */
    const bool known = !memory.has_value() ||
                       ((address >= memory->start) && (address < memory->end));
    return known ? 0 : -EINVAL;
}

/* --- work ------------------------------------------------------------------*/

/* Whether an address range is the card's. */
bool synapse_card::reaches(uint64_t start, uint64_t length) const
{
    const uint64_t end = start + length;
    const auto &memory = session_->memory();
    const uint64_t first =
        memory.has_value() ? memory->start : capabilities_.memory_start;
    const uint64_t last =
        memory.has_value() ? memory->end : capabilities_.memory_end;
    return (end > start) &&
           (((start >= first) && (end <= last)) || imports_.covers(start, end));
}

int synapse_card::find_direction(uint64_t dst, uint64_t src, uint64_t length,
                                 synDmaDir &direction_p) const
{
    if (is_host(dst) && is_host(src)) {
        return -EINVAL;
    }
    for (const uint64_t side : {dst, src}) {
        if (!(is_host(side) ? host_.covers(side, side + length)
                            : reaches(side, length))) {
            return -EFAULT;
        }
    }
    direction_p = is_host(src)   ? HOST_TO_DRAM
                  : is_host(dst) ? DRAM_TO_HOST
                                 : DRAM_TO_DRAM;
    return 0;
}

} // namespace gaudi::shim
