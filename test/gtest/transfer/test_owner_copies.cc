/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory of another process that this one has copied by the process that
 * has it: what an engine does with its queue. */
#include "gtest/transfer/fixture.h"

#include "common/process_state.h"
#include "common/ucx_logs.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>

namespace gaudi::test {

namespace {

constexpr size_t length = (3 << 20) + 1;

class lent_memory;

/* Copies when it is polled. */
class owner_double final : public base::owner_queue {
public:
    owner_double(lent_memory &of, const base::owner_queue_options &wished);
    ~owner_double() override;

    std::span<char> memory() const override { return {data_, bytes_}; }
    bool is_over() override;
    bool arm() override { return asked_.empty(); }
    void wait_for_oldest(uint64_t) override {}
    const char *name() const override { return "another process"; }
    unsigned poll(shim::dma_completion *completions, unsigned max) override;
    int wait_all(uint64_t) override { return 0; }
    unsigned outstanding() const override
    {
        return static_cast<unsigned>(asked_.size());
    }

private:
    struct copy {
        bool is_flush;
        bool is_put;
        uint64_t address;
        uint64_t offset;
        uint64_t length;
        void *cookie;
    };

    int ask(base::remote_memory &, bool is_put, uint64_t address,
            uint64_t offset, uint64_t size, void *cookie) override
    {
        if (asked_.size() == most_) {
            return -EAGAIN;
        }
        asked_.push_back({false, is_put, address, offset, size, cookie});
        return 0;
    }
    int flush(base::remote_memory &, void *cookie) override
    {
        if (asked_.size() == most_) {
            return -EAGAIN;
        }
        asked_.push_back({true, false, 0, 0, 0, cookie});
        return 0;
    }

    lent_memory &of_;
    const unsigned number_;
    const size_t bytes_;
    const size_t most_;
    char *data_;
    std::deque<copy> asked_;
};

/* Of a card that ours do not reach. */
class lent_memory final : public counted_memory {
public:
    explicit lent_memory(std::unique_ptr<card_memory> memory)
        : counted_memory(memory->start, memory->size), there(std::move(memory))
    {
        EXPECT_EQ(UCS_OK, base::transfer_engine::create({}, by));
    }
    ~lent_memory() override
    {
        EXPECT_EQ(holds, releases);
        EXPECT_EQ(0u, queues);
    }

    const util::process_memory *host() override { return nullptr; }
    int va_on(base::card &, uint64_t, size_t, uint64_t &) override
    {
        ++imports;
        return -EPERM;
    }
    const base::route_list &routes(const base::card *from) override
    {
        ways = remote_memory::routes(from);
        ways.add({shim::wire::host, true});
        return ways;
    }
    uint64_t owner() const override
    {
        return reinterpret_cast<uintptr_t>(this);
    }
    int connect(const base::owner_queue_options &wished,
                std::unique_ptr<base::owner_queue> &queue_p) override
    {
        ++asked;
        const auto end = std::chrono::steady_clock::now() + patience;
        while (std::chrono::steady_clock::now() < end) {}
        if (refuses != 0) {
            return refuses;
        }
        queue_p = std::make_unique<owner_double>(*this, wished);
        return 0;
    }

    const std::unique_ptr<card_memory> there;
    std::unique_ptr<base::transfer_engine> by; /* of the other process */
    int refuses     = 0;                       /* -errno */
    bool is_stopped = false;                   /* it copies nothing now */
    unsigned asked  = 0;                       /* for connections, */
    std::chrono::milliseconds patience{0};     /* which takes so long */
    unsigned over    = 0;                      /* connections up to this one, */
    unsigned looks   = 0;                      /* after so many looks at any */
    unsigned made    = 0;
    unsigned queues  = 0; /* that there are */
    unsigned imports = 0;
    base::route_list ways;
};

owner_double::owner_double(lent_memory &of,
                           const base::owner_queue_options &wished)
    : of_(of), number_(++of.made), bytes_(wished.chunk_bytes * wished.chunks),
      most_(wished.chunks),
      data_(static_cast<char *>(std::aligned_alloc(4096, bytes_)))
{
    ++of.queues;
}

owner_double::~owner_double()
{
    EXPECT_TRUE(asked_.empty());
    --of_.queues;
    std::free(data_);
}

bool owner_double::is_over()
{
    const bool is_late = (of_.looks > 0);
    of_.looks -= is_late ? 1 : 0;
    return !is_late && (number_ <= of_.over);
}

unsigned owner_double::poll(shim::dma_completion *completions, unsigned max)
{
    unsigned count = 0;
    while ((count < max) && !asked_.empty() && (is_over() || !of_.is_stopped)) {
        const copy next = asked_.front();
        asked_.pop_front();
        int result = -EKEYREVOKED;
        if (!is_over()) {
            auto *there = reinterpret_cast<void *>(next.address);
            void *chunk = data_ + next.offset;
            EXPECT_EQ(UCS_OK, next.is_put
                                  ? of_.by->copy(there, chunk, next.length)
                                  : of_.by->copy(chunk, there, next.length));
            result = 0;
        }
        completions[count++] = {next.cookie, result};
    }
    return count;
}

class owner_copies : public transfers {
protected:
    void TearDown() override
    {
        engine->close(domain);
        engine.reset(); /* and its connections */
        ASSERT_EQ(UCS_OK, base::transfer_engine::create(card(0), {}, engine));
        base::transfer_engine::open(domain);
        far.reset();
        next.reset();
        transfers::TearDown();
    }

    void expect_far(uint64_t seed, size_t size)
    {
        std::vector<char> seen(size);
        far->there->read(seen.data(), size);
        EXPECT_TRUE(has_pattern(seen.data(), size, seed));
    }

    /* Fill the far memory. */
    void fill_far(uint64_t seed)
    {
        std::vector<char> text(length);
        fill_pattern(text.data(), length, seed);
        far->there->write(text.data(), length);
    }

    std::unique_ptr<lent_memory> far;
    std::unique_ptr<lent_memory> next; /* of another process */
};

} // namespace

/* No peer-to-peer from any card of ours: the other process's card copies, to
 * and from chunks that ours reads and writes. */
TEST_F(owner_copies, are_made_where_peer_to_peer_is_missing)
{
    far = std::make_unique<lent_memory>(card_memory::create(card(0), length));
    device_buffer near(card(0), length);
    std::vector<char> text(length);
    std::vector<char> seen(length);
    uint64_t seed = 0;
    for (const size_t size : {size_t{1}, size_t{4097}, length}) {
        fill_pattern(text.data(), size, ++seed);
        write_device(near.data(), text.data(), size);
        counted_completion done[2];
        ASSERT_EQ(UCS_INPROGRESS, engine->start(domain, far->at(0), near.data(),
                                                size, &done[0]));
        wait_for(done[0]);
        EXPECT_EQ(UCS_OK, done[0].status);
        expect_far(seed, size);

        fill_far(++seed);
        EXPECT_EQ(UCS_OK, engine->copy(near.data(), far->at(0), size));
        read_device(seen.data(), near.data(), size);
        EXPECT_TRUE(has_pattern(seen.data(), size, seed));

        fill_pattern(text.data(), size, ++seed);
        EXPECT_EQ(UCS_OK, engine->copy(far->at(0), text.data(), size));
        expect_far(seed, size);
        fill_far(++seed);
        ASSERT_EQ(UCS_INPROGRESS, engine->start(domain, seen.data(), far->at(0),
                                                size, &done[1]));
        wait_for(done[1]);
        EXPECT_TRUE(has_pattern(seen.data(), size, seed));
    }
    EXPECT_LT(0u, far->imports);
    EXPECT_EQ(1u, far->made);
}

TEST_F(owner_copies, that_are_refused_say_why)
{
    far = std::make_unique<lent_memory>(card_memory::create(card(0), length));
    char byte = 0;
    for (const auto &[error, status] :
         {std::pair{-EOPNOTSUPP, UCS_ERR_UNSUPPORTED},
          {-ENOMEM, UCS_ERR_NO_MEMORY},
          {-EMFILE, UCS_ERR_IO_ERROR}}) {
        far->refuses = error;
        EXPECT_EQ(status, engine->copy(&byte, far->at(0), 1));
        expect_log(std::strerror(-error));
    }
    far->refuses = 0;
    EXPECT_EQ(UCS_OK, engine->copy(&byte, far->at(0), 1));
    EXPECT_EQ(4u, far->asked);
}

/* Which takes long. */
TEST_F(owner_copies, that_get_no_answer_do_not_ask_at_each_operation)
{
    constexpr unsigned many = 50;
    far = std::make_unique<lent_memory>(card_memory::create(card(0), length));
    far->refuses  = -ETIMEDOUT;
    far->patience = std::chrono::milliseconds(50);
    char byte     = 0;
    for (unsigned i = 0; i < many; ++i) {
        EXPECT_EQ(UCS_ERR_TIMED_OUT, engine->copy(&byte, far->at(0), 1));
        expect_log(std::strerror(ETIMEDOUT));
    }
    EXPECT_GT(many / 2, far->asked);
    far->refuses = 0;
    EXPECT_TRUE(eventually([&] {
        const bool works = engine->copy(&byte, far->at(0), 1) == UCS_OK;
        (void)take_logs();
        return works;
    }));
}

/* A connection that is over stays as long as anything uses it. */
TEST_F(owner_copies, that_are_over_end_and_the_next_ones_connect_anew)
{
    far = std::make_unique<lent_memory>(card_memory::create(card(0), length));
    device_buffer near(card(0), length);
    std::vector<char> host(length);
    counted_completion done[4];
    far->is_stopped = true;
    EXPECT_EQ(UCS_INPROGRESS,
              engine->start(domain, far->at(0), near.data(), length, &done[0]));
    EXPECT_EQ(UCS_INPROGRESS,
              engine->start(domain, near.data(), far->at(0), length, &done[1]));
    EXPECT_EQ(UCS_INPROGRESS,
              engine->start(domain, far->at(0), host.data(), length, &done[2]));
    engine->progress();
    far->over       = 1;
    far->is_stopped = false;
    fill_pattern(host.data(), length, 5);
    EXPECT_EQ(UCS_INPROGRESS,
              engine->start(domain, far->at(0), host.data(), length, &done[3]));
    EXPECT_EQ(2u, far->queues);
    for (const counted_completion &each : done) {
        wait_for(each);
        EXPECT_EQ(1u, each.calls);
    }
    EXPECT_EQ(UCS_ERR_REJECTED, done[0].status);
    EXPECT_EQ(UCS_ERR_REJECTED, done[1].status);
    EXPECT_EQ(UCS_ERR_REJECTED, done[2].status);
    EXPECT_EQ(UCS_OK, done[3].status);
    expect_far(5, length);

    far->over = 2;
    EXPECT_EQ(UCS_OK, engine->copy(host.data(), far->at(0), 1));
    EXPECT_EQ(1u, far->queues);
    EXPECT_EQ(3u, far->made);
}

/* Channels are looked over when another process is met. */
TEST_F(owner_copies, may_be_over_while_that_is_found_out)
{
    char byte = 0;
    for (auto *const each : {&far, &next}) {
        *each =
            std::make_unique<lent_memory>(card_memory::create(card(0), length));
    }
    EXPECT_EQ(UCS_OK, engine->copy(far->at(0), &byte, 1));
    far->over  = 1;
    far->looks = 1;
    EXPECT_EQ(UCS_OK, engine->copy(&byte, next->at(0), 1));
    EXPECT_EQ(1u, far->queues); /* it is known yet */
    EXPECT_EQ(UCS_OK, engine->copy(&byte, far->at(0), 1));
    EXPECT_EQ(1u, far->queues);
    EXPECT_EQ(2u, far->made);
}

/* What another process does not get on with holds up nobody else. */
TEST_F(owner_copies, that_are_stuck_leave_room_for_others)
{
    far = std::make_unique<lent_memory>(card_memory::create(card(0), length));
    device_buffer near(card(0), length);
    device_buffer free(card(0), length);
    std::vector<char> host(length);
    std::vector<char> more(length);
    counted_completion stuck[2];
    counted_completion done;
    far->is_stopped = true;
    EXPECT_EQ(UCS_INPROGRESS, engine->start(domain, far->at(0), near.data(),
                                            length, &stuck[0]));
    EXPECT_EQ(UCS_INPROGRESS, engine->start(domain, host.data(), far->at(0),
                                            length, &stuck[1]));
    EXPECT_EQ(UCS_INPROGRESS,
              engine->start(domain, free.data(), more.data(), length, &done));
    wait_for(done);
    EXPECT_EQ(0u, stuck[0].calls + stuck[1].calls);
    far->is_stopped = false;
    wait_for(stuck[0]);
    wait_for(stuck[1]);
}

} // namespace gaudi::test
