/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/engine/synapse_engine.h"

#include "hlthunk_shim/hlthunk/library.h"
#include "hlthunk_shim/memory.h"
#include "hlthunk_shim/synapse/mapped_ranges.h"
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

/* How often a card that ends no copy is asked how it is, and when it is given
 * up: twice the time after which the driver resets a card for a job of its own;
 * SCAL's it does not watch. */
using clock            = stall_detector::clock;
constexpr auto doubt   = std::chrono::milliseconds(100);
constexpr auto longest = std::chrono::seconds(60);

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

/* Sleep, longer each time. */
void sleep_longer(uint64_t &pause_us)
{
    constexpr uint64_t shortest_us = 5;
    constexpr uint64_t longest_us  = 1000;
    pause_us = std::clamp(pause_us + pause_us / 2, shortest_us, longest_us);
    std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
}

class synapse_engine final : public dma_engine {
public:
    synapse_engine(card &of, std::shared_ptr<synapse_session> session,
                   bool map_application_memory, std::function<void()> ending)
        : dma_engine(of.bus_id()), card_(of), session_(std::move(session)),
          map_application_memory_(map_application_memory),
          ending_(std::move(ending))
    {}
    ~synapse_engine() override
    {
        if (ending_ != nullptr) {
            ending_();
        }
    }

    int allocate(uint64_t size, uint64_t wished,
                 allocation &allocation_p) override;
    int free_memory(uint64_t handle) override
    {
        return judge(api().synDeviceFree(device_id, handle, 0));
    }
    int prepare_host(void *host, uint64_t size) override;
    int map_host(void *host, uint64_t size,
                 registration &registration_p) override;
    int unmap(uint64_t address) override;
    void note_import(uint64_t address, uint64_t size) override
    {
        const std::lock_guard<std::mutex> guard(mapping_lock_);
        imports_.add(address, size);
    }
    int find_exported(uint64_t &address, uint64_t &offset,
                      uint64_t size) override;
    std::optional<memory_block> application_block() const override;
    const char *why_no_ports() const override;

    /* Queues of one direction share a stream, in which SynapseAI keeps order.
     */
    int attach(dma_direction, unsigned stream) override
    {
        return (stream == 0) ? 0 : -EINVAL;
    }
    void detach() override {}
    int start(dma_direction direction, unsigned stream, uint64_t dst,
              uint64_t src, uint64_t length, ticket &job_p) override;
    int look(ticket job, uint32_t timeout_us) override;
    void forget(ticket) override {}
    int query(ticket of, uint32_t timeout_us) override;

private:
    [[nodiscard]] const synapse_functions &api() const
    {
        return session_->api();
    }
    [[nodiscard]] bool reaches(uint64_t start, uint64_t length) const;
    [[nodiscard]] int find_direction(uint64_t dst, uint64_t src,
                                     uint64_t length,
                                     synDmaDir &direction_p) const;
    [[nodiscard]] int judge(synStatus status);
    [[nodiscard]] bool is_broken();
    [[nodiscard]] bool is_hopeless();
    void end();

    card &card_;
    const std::shared_ptr<synapse_session> session_;
    const bool map_application_memory_;
    const std::function<void()> ending_;
    std::mutex mapping_lock_; /* one of host_ at a time; held across SynapseAI's
                                 calls for that */
    mapped_ranges host_;
    mapped_ranges imports_;
    stall_detector stalled_; /* no copy ends */
    stall_detector unasked_; /* and nobody has asked how the card is */
};

/* Nothing is asked of SynapseAI, or given back, any more: it all went with the
 * device, or the next call would not come back. */
void synapse_engine::end()
{
    session_->end();
    card_.lose();
}

/* What a status of a call is. @return 0 or -errno; -ENODEV after the end of the
 * card, which it may tell. */
int synapse_engine::judge(synStatus status)
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
bool synapse_engine::is_broken()
{
    const auto ask   = card_.lib().hlthunk_get_device_status_info;
    const int status = (ask != nullptr) ? ask(card_.fd()) : device_operational;
    if (status == device_operational) {
        return false;
    }
    if (status != -EBADF) {
        card_.tell_loss((status < 0) ? "removed" : "reset");
    }
    end();
    return true;
}

/* Whether a copy that runs will never end. */
bool synapse_engine::is_hopeless()
{
    const auto lasted = stalled_.note();
    if (unasked_.note() >= doubt) {
        unasked_.reset();
        if (is_broken()) {
            return true;
        }
    }
    if (lasted > longest) {
        card_.tell_loss("given up (SynapseAI does not end a copy)");
        end();
        return true;
    }
    return false;
}

/* --- memory ----------------------------------------------------------------*/

int synapse_engine::allocate(uint64_t size, uint64_t, allocation &allocation_p)
{
    if (size > UINT64_MAX - granule) {
        return -ENOMEM;
    }
    uint64_t start = 0;
    const synStatus status =
        api().synDeviceMalloc(device_id, size + granule, 0, 0, &start);
    const int ret = judge(status);
    if (ret != 0) {
        /* What it says when there is no memory. */
        return (status == synFail) && (ret != -ENODEV) ? -ENOMEM : ret;
    }
    if (start == 0) {
        return -ENOMEM;
    }
    allocation made(card_, start);
    made.add({card_, util::round_up(start, granule)});
    allocation_p = std::move(made);
    return 0;
}

std::optional<memory_block> synapse_engine::application_block() const
{
    const auto &memory = session_->memory();
    return memory.has_value() ? std::optional(memory_block{
                                    memory->start, memory->end - memory->start})
                              : std::nullopt;
}

const char *synapse_engine::why_no_ports() const
{
    return leaves_ports() ? nullptr
                          : "HCL takes the ports when SynapseAI acquires a "
                            "card, unless INIT_HCCL_ON_ACQUIRE=false and "
                            "ENABLE_EXPERIMENTAL_FLAGS=true";
}

/* Parts of what is mapped already need no mapping of their own, and the end of
 * one must not be the end of the others': SynapseAI does not count. */
int synapse_engine::map_host(void *host, uint64_t size,
                             registration &registration_p)
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
        host_.add(start, size); /* what fails leaves nothing mapped */
        const int ret = judge(api().synHostMap(device_id, size, host));
        if (ret != 0) {
            (void)host_.leave(start);
            return ret;
        }
    }
    registration_p = {card_, start};
    return 0;
}

int synapse_engine::prepare_host(void *host, uint64_t size)
{
    const auto start = reinterpret_cast<uintptr_t>(host);
    return (!map_application_memory_ ||
            may_be_synapse_memory(start, start + size))
               ? -EOPNOTSUPP
               : populate(start, start + size);
}

int synapse_engine::find_exported(uint64_t &address, uint64_t &offset,
                                  uint64_t size)
{
    const auto &memory   = session_->memory();
    const uint64_t start = address + offset;
    /* A part of SynapseAI's whole pool; how large that is, nothing tells. */
    if (!memory.has_value() || (memory->exportable == 0) ||
        !card_.capabilities().exports_parts) {
        return -EOPNOTSUPP;
    }
    /* The pool may begin and end within a page. */
    if ((start < memory->start / granule * granule) ||
        (size > util::round_up(memory->end, granule) - start)) {
        return -EINVAL;
    }
    address = memory->exportable;
    offset  = start - address;
    return 0;
}

int synapse_engine::unmap(uint64_t address)
{
    const auto &memory = session_->memory();
    if (is_host(address)) {
        const std::lock_guard<std::mutex> guard(mapping_lock_);
        const uint64_t start = host_.leave(address);
        if (start == 0) {
            return 0;
        }
        return is_broken()
                   ? -ENODEV
                   : judge(api().synHostUnmap(
                         device_id, reinterpret_cast<const void *>(start)));
    }
    if (imports_.covers(address, address + 1)) {
        /* The next import may be given the address at once. */
        const std::lock_guard<std::mutex> guard(mapping_lock_);
        const int ret =
            card_.judge(card_.lib().hlthunk_memory_unmap(card_.fd(), address));
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
bool synapse_engine::reaches(uint64_t start, uint64_t length) const
{
    const uint64_t end = start + length;
    const auto &memory = session_->memory();
    const uint64_t first =
        memory.has_value() ? memory->start : card_.capabilities().memory_start;
    const uint64_t last =
        memory.has_value() ? memory->end : card_.capabilities().memory_end;
    return (end > start) &&
           (((start >= first) && (end <= last)) || imports_.covers(start, end));
}

int synapse_engine::find_direction(uint64_t dst, uint64_t src, uint64_t length,
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

int synapse_engine::start(dma_direction direction, unsigned, uint64_t dst,
                          uint64_t src, uint64_t length, ticket &job_p)
{
    if (card_.is_lost()) {
        return -ENODEV;
    }
    synDmaDir way{};
    int ret = find_direction(dst, src, length, way);
    if (ret != 0) {
        return ret;
    }
    job_event *event       = nullptr;
    const synStatus status = session_->take(event);
    if (status != synSuccess) {
        return (status == synAllResourcesTaken) ? -EAGAIN : judge(status);
    }
    const synStreamHandle stream = session_->stream(direction);
    ret = judge(api().synMemCopyAsync(stream, src, length, dst, way));
    if (ret != 0) {
        session_->give_back(*event);
        return ret;
    }
    job_p = event->job.load(std::memory_order_relaxed);
    stalled_.reset();
    if (judge(api().synEventRecord(event->event, stream)) != 0) {
        /* The copy runs, and nothing will tell of its end. */
        end();
    }
    return 0;
}

int synapse_engine::look(ticket job, uint32_t timeout_us)
{
    const int result = query(job, timeout_us);
    if (result != 0) {
        stalled_.reset();
        session_->give_back(session_->event_of(job));
    }
    return result;
}

int synapse_engine::query(ticket of, uint32_t timeout_us)
{
    const job_event &event = session_->event_of(of);
    const auto deadline =
        (timeout_us == 0)
            ? clock::time_point()
            : clock::now() + std::chrono::microseconds(timeout_us);
    for (uint64_t pause_us = 0;;) {
        if (card_.is_closed()) {
            return -ENODEV;
        }
        const synStatus status = (event.job.load() == of)
                                     ? api().synEventQuery(event.event)
                                     : synSuccess; /* it was collected */
        if (event.job.load() != of) {
            return 1;
        }
        if (status != synBusy) {
            const int ret = judge(status);
            return (ret == 0) ? 1 : ret;
        }
        if (is_hopeless()) {
            return -ENODEV;
        }
        if ((timeout_us == 0) || (clock::now() >= deadline)) {
            return 0;
        }
        sleep_longer(pause_us);
    }
}

} // namespace

int adopt_card(const library &lib, std::shared_ptr<synapse_session> session,
               bool map_application_memory, std::function<void()> ending,
               std::unique_ptr<card> &card_p)
{
    std::unique_ptr<card> made;
    const int ret = card::adopt(lib, session->fd(), made);
    if (ret != 0) {
        return ret;
    }
    /* SynapseAI chooses addresses, and allocates in any size. */
    capabilities known = made->capabilities();
    known.page_bytes   = 0;
    known.window_bytes = 0;
    known.streams.fill(1);
    known.ports_read_host = false;
    if (const auto &memory = session->memory()) {
        known.memory_bytes = memory->end - memory->start;
    }
    made->set_capabilities(known);
    made->set_engine(std::make_unique<synapse_engine>(
        *made, std::move(session), map_application_memory, std::move(ending)));
    card_p = std::move(made);
    return 0;
}

} // namespace gaudi::shim
