/* SPDX-License-Identifier: BSD-3-Clause */
#include "hlthunk_shim/engine/cs_engine.h"

#include "hlthunk_shim/abi/lin_dma.h"
#include "hlthunk_shim/hlthunk/card_kinds.h"
#include "hlthunk_shim/hlthunk/library.h"
#include "hlthunk_shim/memory.h"
#include "util/warning.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

namespace gaudi::shim {

namespace {

/* One command buffer: the copies, behind those of an internal engine a barrier,
 * and the packet that starts it. Forty packets are 160 GiB, more than any card
 * has. */
constexpr size_t buffer_bytes     = 1024;
constexpr size_t packets_capacity = 40;
constexpr size_t upper_offset     = 992;
static_assert(packets_capacity * sizeof(lin_dma) + sizeof(nop) <= upper_offset);
static_assert(upper_offset + sizeof(cp_dma) <= buffer_bytes);

/* What a driver call returned that gives 0 for a failure, and errno then.
 * @return 0 or -errno. */
int check_value(uint64_t value)
{
    return (value != 0) ? 0 : ((errno != 0) ? -errno : -ENOMEM);
}

class cs_engine final : public dma_engine {
public:
    explicit cs_engine(card &of) : dma_engine(of.bus_id()), card_(of)
    {
        for (size_t i = 0; i < slots_.size(); ++i) {
            slots_[i].buffer = i;
        }
    }

    ~cs_engine() override
    {
        if (is_any_forgotten_) {
            buffers_.abandon();
        }
    }

    int allocate(uint64_t size, uint64_t wished,
                 allocation &allocation_p) override;
    int free_memory(uint64_t handle) override
    {
        return card_.judge(
            lib().hlthunk_device_memory_free(card_.fd(), handle));
    }
    int map_host(void *host, uint64_t size,
                 registration &registration_p) override;
    int unmap(uint64_t address) override
    {
        return card_.judge(lib().hlthunk_memory_unmap(card_.fd(), address));
    }

    int attach(dma_direction direction, unsigned stream) override;
    void detach() override;
    int start(dma_direction direction, unsigned stream, uint64_t dst,
              uint64_t src, uint64_t length, ticket &job_p) override;
    int look(ticket job, uint32_t timeout_us) override;
    void forget(ticket) override
    {
        const std::lock_guard<std::mutex> guard(lock_);
        is_any_forgotten_ = true;
    }
    int query(ticket of, uint32_t timeout_us) override
    {
        const auto seq   = static_cast<uint64_t>(of);
        const int result = ask(seq, timeout_us);
        return (result < 0) ? keep_failure(seq, result) : result;
    }
    ticket blocking_ticket() override;

private:
    /* A place in the driver's ring, by the six low bits of sequence numbers. */
    struct slot {
        std::atomic<uint64_t> seq{0};  /* 0: none is known to run */
        std::atomic<uint64_t> done{0}; /* the last that its owner saw end */
        size_t buffer = 0;

        [[nodiscard]] bool is_free() const
        {
            const uint64_t now = seq.load(std::memory_order_relaxed);
            return (now == 0) || (now == done.load(std::memory_order_acquire));
        }
    };

    [[nodiscard]] const library &lib() const { return card_.lib(); }
    [[nodiscard]] slot &slot_of(uint64_t seq)
    {
        return slots_[seq % max_cs_in_flight];
    }
    [[nodiscard]] ticket find_blocking();
    [[nodiscard]] int keep_failure(uint64_t seq, int result);
    void fill(hl_cs_chunk &chunk, size_t buffer, dma_direction direction,
              uint64_t dst, uint64_t src, uint64_t length);
    [[nodiscard]] int ask(uint64_t seq, uint32_t timeout_us);
    [[nodiscard]] int judge(int answer, uint32_t status);
    [[nodiscard]] int note_silence(int error);

    card &card_;

    /* Held until the number of a job is noted: others could otherwise go once
     * around the driver's ring meanwhile. No spin lock: the library tries again
     * for as long as a card is in reset. */
    std::mutex lock_;
    uint64_t next_    = 1; /* number */
    uint64_t refused_ = 0; /* since the last job; each may have used a number */
    std::array<slot, max_cs_in_flight> slots_;
    hl_cs_chunk chunk_{};   /* of the next job */
    pinned_buffer buffers_; /* while there is a queue */
    unsigned queues_       = 0;
    bool is_any_forgotten_ = false; /* copy, which may use its buffer */

    /* Copies that failed, and have not been collected. */
    std::mutex failed_lock_; /* inside lock_ */
    std::map<uint64_t, int> failed_;
    std::atomic<size_t> failed_count_{0};

    stall_detector silent_; /* the driver does not tell how jobs are */
};

int cs_engine::allocate(uint64_t size, uint64_t wished,
                        allocation &allocation_p)
{
    errno = 0;
    /* Page size 0 is the card's own; "shared" only allows an export. */
    const uint64_t handle =
        lib().hlthunk_device_memory_alloc(card_.fd(), size, 0, false, true);
    int ret = card_.judge(check_value(handle));
    if (ret != 0) {
        return ret;
    }
    allocation made(card_, handle);
    errno = 0;
    const uint64_t va =
        lib().hlthunk_device_memory_map(card_.fd(), handle, wished);
    ret = card_.judge(check_value(va));
    if (ret == 0) {
        made.add({card_, va});
        allocation_p = std::move(made);
    }
    return ret;
}

int cs_engine::map_host(void *host, uint64_t size, registration &registration_p)
{
    errno = 0;
    const uint64_t va =
        lib().hlthunk_host_memory_map(card_.fd(), host, 0, size);
    const int ret = card_.judge(check_value(va));
    if (ret == 0) {
        registration_p = {card_, va};
    }
    return ret;
}

/* --- jobs ------------------------------------------------------------------*/

int cs_engine::attach(dma_direction direction, unsigned stream)
{
    const unsigned count = card_.queues(direction).count;
    if (stream >= count) {
        return (count == 0) ? -ENOTSUP : -EINVAL;
    }
    const std::lock_guard<std::mutex> guard(lock_);
    const int ret = (buffers_.data() == nullptr)
                        ? pinned_buffer::create(
                              card_, slots_.size() * buffer_bytes, buffers_)
                        : 0;
    queues_ += (ret == 0) ? 1 : 0;
    return ret;
}

void cs_engine::detach()
{
    const std::lock_guard<std::mutex> guard(lock_);
    if ((--queues_ == 0) && !is_any_forgotten_) {
        buffers_ = {};
    }
}

void cs_engine::fill(hl_cs_chunk &chunk, size_t buffer, dma_direction direction,
                     uint64_t dst, uint64_t src, uint64_t length)
{
    char *const data     = buffers_.data() + buffer * buffer_bytes;
    auto *packets        = reinterpret_cast<lin_dma *>(data);
    const size_t count   = build_lin_dma(packets, dst, src, length);
    chunk.cs_chunk_flags = chunk_flag_user_cb;
    chunk.cb_handle      = buffers_.address() + buffer * buffer_bytes;
    chunk.cb_size        = static_cast<uint32_t>(count * sizeof(lin_dma));
    if (direction == dma_direction::device_to_device) {
        auto *last  = reinterpret_cast<nop *>(packets + count);
        auto *first = reinterpret_cast<cp_dma *>(data + upper_offset);
        *last       = make_barrier();
        *first =
            make_cp_dma(chunk.cb_handle, chunk.cb_size + uint32_t{sizeof(nop)});
        chunk.cb_handle += upper_offset;
        chunk.cb_size = sizeof(cp_dma);
    }
}

int cs_engine::start(dma_direction direction, unsigned stream, uint64_t dst,
                     uint64_t src, uint64_t length, ticket &job_p)
{
    if (length > packets_capacity * lin_dma_max_bytes) {
        return -EMSGSIZE;
    }
    const std::lock_guard<std::mutex> guard(lock_);
    if (card_.is_lost()) {
        return -ENODEV;
    }
    slot &expected = slot_of(next_);
    if (((refused_ != 0) || !expected.is_free()) &&
        (find_blocking() != ticket::none)) {
        return -EAGAIN;
    }
    fill(chunk_, expected.buffer, direction, dst, src, length);
    chunk_.queue_index = card_.queues(direction).first + stream;
    hlthunk_cs_in in{};
    hlthunk_cs_out out{};
    in.chunks_execute     = &chunk_;
    in.num_chunks_execute = 1;
    const int ret =
        card_.judge(lib().hlthunk_command_submission(card_.fd(), &in, &out));
    if (ret != 0) {
        ++refused_;
        return ret;
    }
    slot &given = slot_of(out.seq);
    std::swap(given.buffer, expected.buffer);
    given.seq.store(out.seq, std::memory_order_relaxed);
    next_    = out.seq + 1;
    refused_ = 0;
    job_p    = ticket{out.seq};
    return 0;
}

/* A failure that somebody else has seen is known before the driver forgets it:
 * it is looked for behind the question. */
int cs_engine::look(ticket job, uint32_t timeout_us)
{
    const auto seq = static_cast<uint64_t>(job);
    int result     = ask(seq, timeout_us);
    if (result == 0) {
        return 0;
    }
    std::atomic<uint64_t> &done = slot_of(seq).done;
    if ((result == 1) && (failed_count_.load(std::memory_order_acquire) == 0)) {
        done.store(seq, std::memory_order_release);
        return 1;
    }
    const std::lock_guard<std::mutex> guard(failed_lock_);
    done.store(seq, std::memory_order_release);
    if (const auto found = failed_.find(seq); found != failed_.end()) {
        result = found->second;
        failed_.erase(found);
        failed_count_.store(failed_.size());
    }
    return result;
}

/* Until its owner collects it: once the card is lost, the driver has nothing
 * more to say than that. @return What was seen first. */
int cs_engine::keep_failure(uint64_t seq, int result)
{
    const std::lock_guard<std::mutex> guard(failed_lock_);
    const slot &at = slot_of(seq);
    if ((at.seq != seq) || at.is_free()) {
        return result; /* it was collected */
    }
    const int first = failed_.emplace(seq, result).first->second;
    failed_count_.store(failed_.size());
    return first;
}

ticket cs_engine::blocking_ticket()
{
    const std::unique_lock<std::mutex> guard(lock_, std::try_to_lock);
    return guard.owns_lock() ? find_blocking() : ticket::none;
}

/* Make places free whose jobs have ended, whoever owns them: an owner that does
 * not poll must not keep others from submitting, and the driver forgets how a
 * job ended once it has 64 newer ones. Under the lock.
 * @return The job that still runs where the next one would go. */
ticket cs_engine::find_blocking()
{
    const uint64_t last =
        next_ + std::min<uint64_t>(refused_, max_cs_in_flight - 1);
    for (uint64_t seq = next_; seq <= last; ++seq) {
        slot &at = slot_of(seq);
        if (at.is_free()) {
            continue;
        }
        const int result = ask(at.seq, 0);
        if (result == 0) {
            return ticket{at.seq.load()};
        }
        if (result < 0) {
            (void)keep_failure(at.seq, result);
        }
        at.seq = 0;
    }
    return ticket::none;
}

int cs_engine::ask(uint64_t seq, uint32_t timeout_us)
{
    if (card_.is_closed()) {
        return -ENODEV;
    }
    uint32_t status = cs_busy;
    const int ret =
        lib().hlthunk_wait_for_cs(card_.fd(), seq, timeout_us, &status);
    return judge(ret, status);
}

/* What an answer about a job means.
 * @return 1 done, 0 still running, or -errno as it ended. */
int cs_engine::judge(int answer, uint32_t status)
{
    const int ret = card_.judge(answer);
    if ((ret == -ENODEV) || (ret == -EIO) || (ret == -ETIMEDOUT)) {
        return ret;
    }
    if (ret < 0) {
        return note_silence(ret);
    }
    silent_.reset();
    /* v1.10 gives 0 here, newer libraries the status once more (hlthunk.h of
     * either), so that only what they have written tells them apart. */
    switch (status) {
    case cs_completed:
        return 1;
    case cs_busy:
        return 0;
    case cs_timed_out:
        return card_.judge(-ETIMEDOUT);
    default:
        return card_.judge(-EIO);
    }
}

/* That a question failed says nothing of the job: its memory may still be
 * written. The driver ends no job without resetting the card, so that a card
 * that gives no answer for long is lost. */
int cs_engine::note_silence(int error)
{
    constexpr std::chrono::seconds longest{10};
    const auto lasted = silent_.note();
    if (lasted == lasted.zero()) {
        util::warn("card %s does not tell how its jobs are (%s): it is asked "
                   "again for %d s",
                   bus_id().c_str(), std::strerror(-error),
                   static_cast<int>(longest.count()));
    } else if (lasted > longest) {
        card_.tell_loss("given up");
        return -ENODEV;
    }
    return 0;
}

} // namespace

int open_card(const library &lib, const std::string &bus_id,
              std::unique_ptr<card> &card_p)
{
    std::unique_ptr<card> made;
    const int ret = card::open(lib, bus_id, made);
    if (ret == 0) {
        made->set_engine(std::make_unique<cs_engine>(*made));
        card_p = std::move(made);
    }
    return ret;
}

int adopt_card(const library &lib, int fd, std::unique_ptr<card> &card_p)
{
    std::unique_ptr<card> made;
    const int ret = card::adopt(lib, fd, made);
    if (ret != 0) {
        return ret;
    }
    if (!is_supported(made->kind()) ||
        !may_be_device_memory(made->capabilities().memory_start)) {
        return -ENOTSUP;
    }
    made->set_engine(std::make_unique<cs_engine>(*made));
    card_p = std::move(made);
    return 0;
}

} // namespace gaudi::shim
