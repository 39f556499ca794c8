/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/transfer/fixture.h"

#include "common/framework.h"
#include "common/ucx_logs.h"
#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/memory/device_pool.h"
#include "uct/gaudi/base/memory/memory.h"
#include "uct/gaudi/base/ucx/config.h"
#include "gtest/transfer/card_child.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <deque>

namespace gaudi::test {

namespace {

constexpr std::chrono::seconds deadline{60};

base::memory_map &map()
{
    return base::memory_map::instance();
}

base::device_memory &allocate(base::card &owner, size_t size)
{
    base::device_memory *memory = nullptr;
    EXPECT_EQ(UCS_OK, base::allocate(owner, size, false, memory));
    return *memory;
}

/* Of a card of this process. */
class own_card_memory final : public card_memory {
public:
    explicit own_card_memory(base::device_memory &memory)
        : card_memory(memory.start, memory.end - memory.start), memory_(memory)
    {
        EXPECT_EQ(UCS_OK,
                  base::transfer_engine::create(*memory.owner, {}, engine_));
    }
    ~own_card_memory() override
    {
        EXPECT_EQ(holds, releases);
        engine_.reset();
        map().free(memory_);
    }

    void read(void *data, size_t bytes) override
    {
        EXPECT_EQ(UCS_OK, engine_->copy(data, here(), bytes));
    }
    void write(const void *data, size_t bytes) override
    {
        EXPECT_EQ(UCS_OK, engine_->copy(here(), data, bytes));
    }

private:
    int flush() override { return memory_.owner->device().flush(); }
    int start_on(base::card &user, uint64_t &start_p) override
    {
        if (&user == memory_.owner) {
            start_p = start;
            return 0;
        }
        return memory_.backing->va_on(user, start, size, start_p);
    }
    [[nodiscard]] void *here() const { return reinterpret_cast<void *>(start); }

    base::device_memory &memory_;
    std::unique_ptr<base::transfer_engine> engine_;
};

/* Flushes when it is polled, and copies nothing. */
class flush_queue final : public base::owner_queue {
public:
    explicit flush_queue(const base::owner_queue_options &wished)
        : unused_(wished.chunk_bytes * wished.chunks)
    {}

    std::span<char> memory() const override { return unused_; }
    bool is_over() override { return false; }
    bool arm() override { return asked_.empty(); }
    void wait_for_oldest(uint64_t) override {}
    const char *name() const override { return "another process"; }
    int flush(base::remote_memory &of, void *cookie) override
    {
        asked_.emplace_back(&static_cast<card_memory &>(of), cookie);
        return 0;
    }
    unsigned poll(shim::dma_completion *completions, unsigned max) override
    {
        unsigned count = 0;
        for (; (count < max) && !asked_.empty(); asked_.pop_front()) {
            const auto [memory, cookie] = asked_.front();
            completions[count++]        = {cookie, memory->flush()};
        }
        return count;
    }
    int wait_all(uint64_t) override { return 0; }
    unsigned outstanding() const override
    {
        return static_cast<unsigned>(asked_.size());
    }

private:
    int ask(base::remote_memory &, bool, uint64_t, uint64_t, uint64_t,
            void *) override
    {
        return -EOPNOTSUPP;
    }

    mutable std::vector<char> unused_;
    std::deque<std::pair<card_memory *, void *>> asked_;
};

} // namespace

bool card_memory::wants_flush() const
{
    const base::held_cards cards = base::card_table::instance().cards();
    return cards.first()->device().capabilities().answers_early;
}

int card_memory::connect(const base::owner_queue_options &wished,
                         std::unique_ptr<base::owner_queue> &queue_p)
{
    queue_p = std::make_unique<flush_queue>(wished);
    return 0;
}

void prepare_process()
{
    static const bool once = [] {
        setenv("HLTHUNK_EMU_DEVICES", "2", 1);
        setenv("UCX_GAUDI_DRIVER", emulator_path().c_str(), 1);
        setenv("UCX_GAUDI_DEVICES", "all", 1);
        collect_logs();
        EXPECT_TRUE(base::init_config());
        start_framework();
        return true;
    }();
    (void)once;
}

uint64_t moved_bytes(base::card &by)
{
    hlthunk_emu_counters counters{};
    EXPECT_EQ(0, emulator::instance().hlthunk_emu_get_counters(by.device().fd(),
                                                               &counters));
    return counters.host_to_device_bytes + counters.device_to_host_bytes +
           counters.device_to_device_bytes + counters.host_to_host_bytes;
}

counted_completion::counted_completion() : uct_completion_t()
{
    count  = 1;
    status = UCS_OK;
    func   = [](uct_completion_t *self) {
        ++static_cast<counted_completion *>(self)->calls;
    };
}

ucs_status_t counted_memory::check(uint64_t address, size_t length)
{
    ++checks;
    return has(address, length) ? check_status : UCS_ERR_INVALID_ADDR;
}

bool counted_memory::has(uint64_t address, size_t length) const
{
    return (address >= start) && (address - start <= size) &&
           (length <= size - (address - start));
}

ucs_status_t counted_memory::hold()
{
    if (hold_status == UCS_OK) {
        ++holds;
    }
    return hold_status;
}

void counted_memory::release()
{
    ++releases;
    EXPECT_LE(releases, holds);
}

child_memory::~child_memory()
{
    EXPECT_EQ(holds, releases);
}

int child_memory::va_on(base::card &, uint64_t, size_t, uint64_t &)
{
    ADD_FAILURE() << "host memory has no address on a card";
    return -EINVAL;
}

std::unique_ptr<card_memory> card_memory::create(base::card &owner,
                                                 size_t bytes)
{
    return std::make_unique<own_card_memory>(allocate(owner, bytes));
}

int card_memory::va_on(base::card &user, uint64_t address, size_t length,
                       uint64_t &va_p)
{
    EXPECT_LE(address - start + length, size);
    EXPECT_GT(holds, releases) << "it has to be held";
    uint64_t first;
    const int ret = (refusal != 0) ? refusal : start_on(user, first);
    if (ret == 0) {
        va_p = first + (address - start);
    }
    return ret;
}

device_buffer::device_buffer(base::card &owner, size_t size)
    : memory_(&allocate(owner, size))
{}

device_buffer::~device_buffer()
{
    map().free(*memory_);
}

registration::registration(void *address, size_t size)
    : memory_(*map().register_host(address, size))
{}

registration::~registration()
{
    map().deregister_host(&memory_);
}

transfers::transfers()  = default;
transfers::~transfers() = default;

void transfers::SetUp()
{
    prepare_process();
    ASSERT_EQ(UCS_OK, base::card_table::instance().open(cards_));
    ASSERT_EQ(has_one_card() ? 1u : 2u, cards_.all().size());
    ASSERT_EQ(UCS_OK, base::transfer_engine::create(card(0), {}, engine));
    ASSERT_EQ(UCS_OK, base::transfer_engine::create(card(0), {}, other_));
    base::transfer_engine::open(domain);
}

void transfers::TearDown()
{
    if (engine != nullptr) {
        engine->close(domain);
    }
    engine.reset();
    other_.reset();
    child_.reset();
    cards_ = {};
    EXPECT_THAT(take_logs(), ::testing::IsEmpty());
}

base::card &transfers::card(size_t index)
{
    return *base::card_table::instance().cards().all()[index];
}

std::unique_ptr<card_memory> transfers::far_memory(size_t bytes)
{
    if (!has_one_card()) {
        /* Which this one's cards use in place. */
        return card_memory::create(card(goes_over_host() ? 0 : 1), bytes);
    }
    if (child_ == nullptr) {
        child_ = std::make_unique<card_child>();
    }
    return child_->allocate(bytes);
}

uint64_t transfers::far_moved_bytes()
{
    if (!has_one_card()) {
        return moved_bytes(card(1));
    }
    return (child_ != nullptr) ? child_->moved_bytes() : 0;
}

void transfers::pause(base::card &which, bool paused)
{
    EXPECT_EQ(
        0, emulator::instance().hlthunk_emu_pause(which.device().fd(), paused));
}

void transfers::remake(const base::transfer_options &options)
{
    engine->close(domain);
    engine.reset();
    ASSERT_EQ(UCS_OK, base::transfer_engine::create(card(0), options, engine));
    base::transfer_engine::open(domain);
}

void transfers::remake_without_card(const base::transfer_options &options)
{
    engine->close(domain);
    engine.reset();
    ASSERT_EQ(UCS_OK, base::transfer_engine::create(options, engine));
    base::transfer_engine::open(domain);
}

void transfers::wait_for(const counted_completion &completion)
{
    const auto end = std::chrono::steady_clock::now() + deadline;
    while (completion.calls == 0) {
        engine->progress();
        ASSERT_LT(std::chrono::steady_clock::now(), end);
    }
}

void transfers::flush()
{
    const auto end = std::chrono::steady_clock::now() + deadline;
    while (engine->flush(nullptr, nullptr) == UCS_INPROGRESS) {
        engine->progress();
        ASSERT_LT(std::chrono::steady_clock::now(), end);
    }
}

void transfers::write_device(void *device, const void *data, size_t size)
{
    ASSERT_EQ(UCS_OK, other_->copy(device, data, size));
}

void transfers::read_device(void *data, const void *device, size_t size)
{
    ASSERT_EQ(UCS_OK, other_->copy(data, device, size));
}

void transfers::expect_log(const std::string &text)
{
    EXPECT_THAT(take_logs(),
                ::testing::ElementsAre(::testing::HasSubstr(text)));
}

} // namespace gaudi::test
