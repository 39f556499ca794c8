/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/transfer/fixture.h"

#include "common/framework.h"
#include "common/ucx_logs.h"
#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/memory/device_pool.h"
#include "uct/gaudi/base/memory/registration_cache.h"
#include "uct/gaudi/base/ucx/config.h"

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

} // namespace

/* Copies when it is polled. */
class owner_double final : public base::owner_queue {
public:
    owner_double(std::shared_ptr<owner_process> of,
                 const base::owner_queue_options &wished)
        : of_(std::move(of)), number_(++of_->made),
          bytes_(wished.chunk_bytes * wished.chunks), most_(wished.chunks),
          data_(static_cast<char *>(std::aligned_alloc(4096, bytes_)))
    {
        ++of_->queues;
    }
    ~owner_double() override
    {
        EXPECT_TRUE(asked_.empty());
        --of_->queues;
        std::free(data_);
    }

    std::span<char> memory() const override { return {data_, bytes_}; }
    bool is_over() override
    {
        const bool is_late = (of_->looks > 0);
        of_->looks -= is_late ? 1 : 0;
        return !is_late && (number_ <= of_->over);
    }
    bool arm() override { return asked_.empty(); }
    void wait_for_oldest(uint64_t) override {}
    const char *name() const override { return "another process"; }
    unsigned poll(shim::dma_completion *completions, unsigned max) override
    {
        unsigned count = 0;
        while ((count < max) && !asked_.empty() &&
               (is_over() || !of_->is_stopped)) {
            const copy next = asked_.front();
            asked_.pop_front();
            completions[count++] = {next.cookie,
                                    is_over() ? -EKEYREVOKED : make(next)};
        }
        return count;
    }
    int wait_all(uint64_t) override { return 0; }
    unsigned outstanding() const override
    {
        return static_cast<unsigned>(asked_.size());
    }

private:
    struct copy {
        bool is_put;
        uint64_t address;
        uint64_t offset;
        uint64_t length;
        void *cookie;
    };

    int make(const copy &what)
    {
        auto *there = reinterpret_cast<void *>(what.address);
        void *chunk = data_ + what.offset;
        EXPECT_EQ(UCS_OK, what.is_put
                              ? of_->by->copy(there, chunk, what.length)
                              : of_->by->copy(chunk, there, what.length));
        return 0;
    }
    int ask(base::remote_memory &of, bool is_put, uint64_t address,
            uint64_t offset, uint64_t size, void *cookie) override
    {
        const auto &memory = static_cast<card_memory &>(of);
        EXPECT_GT(memory.holds, memory.releases) << "it has to be held";
        if (asked_.size() == most_) {
            return -EAGAIN;
        }
        asked_.push_back({is_put, address, offset, size, cookie});
        return 0;
    }

    const std::shared_ptr<owner_process> of_;
    const unsigned number_;
    const size_t bytes_;
    const size_t most_;
    char *data_;
    std::deque<copy> asked_;
};

card_memory::card_memory(base::card &owner, size_t bytes)
    : card_memory(allocate(owner, bytes))
{}

card_memory::card_memory(base::device_memory &memory)
    : counted_memory(memory.start, memory.end - memory.start), memory_(memory)
{
    EXPECT_EQ(UCS_OK,
              base::transfer_engine::create(*memory.owner, {}, process->by));
}

card_memory::~card_memory()
{
    EXPECT_EQ(holds, releases);
    map().free(memory_);
}

int card_memory::connect(const base::owner_queue_options &wished,
                         std::unique_ptr<base::owner_queue> &queue_p)
{
    ++process->asked;
    const auto end = std::chrono::steady_clock::now() + process->patience;
    while (std::chrono::steady_clock::now() < end) {}
    if (process->refuses == 0) {
        queue_p = std::make_unique<owner_double>(process, wished);
    }
    return process->refuses;
}

void card_memory::read(void *data, size_t bytes)
{
    EXPECT_EQ(UCS_OK, process->by->copy(data, here(), bytes));
}

void card_memory::write(const void *data, size_t bytes)
{
    EXPECT_EQ(UCS_OK, process->by->copy(here(), data, bytes));
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
    return has(address, length) ? UCS_OK : UCS_ERR_INVALID_ADDR;
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

device_buffer::device_buffer(base::card &owner, size_t size)
    : memory_(&allocate(owner, size))
{}

device_buffer::~device_buffer()
{
    map().free(*memory_);
}

registration::registration(void *address, size_t size)
{
    EXPECT_EQ(UCS_OK, base::registration_cache::instance().get(address, size,
                                                               false, handle_));
}

registration::~registration()
{
    EXPECT_EQ(UCS_OK, base::registration_cache::put(*handle_));
}

transfers::transfers()  = default;
transfers::~transfers() = default;

void transfers::SetUp()
{
    prepare_process();
    ASSERT_EQ(UCS_OK, base::card_table::instance().open(cards_));
    ASSERT_EQ(has_one_card() ? 1u : 2u, cards_.all().size());
    base::registration_cache::settings cached{};
    cached.use                = UCS_YES;
    cached.rcache.event_prio  = 1000;
    cached.rcache.max_regions = 1000;
    cached.rcache.max_size    = SIZE_MAX;
    if constexpr (requires { base::rcache_config{}.alignment; }) {
        cached.rcache.alignment = base::rcache_alignment;
    }
    ASSERT_EQ(UCS_OK,
              base::registration_cache::instance().open(cached, cards_));
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
    EXPECT_TRUE(base::registration_cache::instance().close());
    cards_ = {};
    EXPECT_THAT(take_logs(), ::testing::IsEmpty());
}

base::card &transfers::card(size_t index)
{
    return *base::card_table::instance().cards().all()[index];
}

std::unique_ptr<card_memory> transfers::far_memory(size_t bytes)
{
    return std::make_unique<card_memory>(card(has_one_card() ? 0 : 1), bytes);
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
