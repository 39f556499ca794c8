/* SPDX-License-Identifier: BSD-3-Clause */
/* What the service copies of this process's memory, for good clients beside
 * others, and of cards that stop or close meanwhile. */
#include "common/needs.h"
#include "common/ucx_logs.h"
#include "uct/gaudi/base/memory/application/application_memory.h"
#include "gtest/ipc/exporter.h"
#include "gtest/ipc/raw_client.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

namespace gaudi::test {

namespace {

using ipc::request_body;
using ipc::request_kind;

/* Of memory of this process, whose card stops when it is told so. */
class served_copies : public keys_test {
protected:
    void SetUp() override
    {
        keys_test::SetUp();
        own = base::card_table::instance().cards().first();
    }
    void allocate()
    {
        ASSERT_EQ(UCS_OK, base::allocate(*own, mebi, false, memory));
        ipc::wire_key key;
        memh    = register_with_key(md, reinterpret_cast<void *>(memory->start),
                                    mebi, key);
        process = key.process;
        get     = {.word    = key.word,
                   .address = key.address,
                   .length  = data_bytes,
                   .kind    = request_kind::get};
    }
    void pause(bool paused) const
    {
        ASSERT_EQ(0, emulator::instance().hlthunk_emu_pause(own->device().fd(),
                                                            paused));
    }
    void free() const { base::memory_map::instance().free(*memory); }
    void deregister() const { EXPECT_EQ(UCS_OK, uct_md_mem_dereg(md, memh)); }
    /* The service has started what was posted before. */
    static void await_start(uint64_t of)
    {
        raw_client next(of);
        EXPECT_EQ(-EKEYREVOKED, next.run({}));
    }

    base::card *own             = nullptr;
    base::device_memory *memory = nullptr;
    uct_mem_h memh              = nullptr;
    uint64_t process            = 0;
    request_body get;
};

TEST_F(served_copies, end_before_their_key_does)
{
    GAUDI_NEEDS(own_card);
    for (const bool is_freed : {false, true}) {
        allocate();
        raw_client client(process);
        EXPECT_EQ(0, client.run(get));
        pause(true);
        client.post(get);
        await_start(process);
        std::atomic<bool> is_over{false};
        std::atomic<pid_t> tid{0};
        std::thread ending([&] {
            tid = gettid();
            is_freed ? free() : deregister();
            is_over = true;
        });
        EXPECT_TRUE(eventually([&] { return (tid != 0) && is_blocked(tid); }));
        EXPECT_FALSE(is_over);
        raw_client second(process);
        EXPECT_EQ(-EKEYREVOKED, second.run(get)) << "nothing new is started";
        const ipc::link_request &last = client.slot(client.posted - 1);
        EXPECT_NE(client.posted, last.ended);
        pause(false);
        ending.join();
        EXPECT_TRUE(eventually([&] { return last.ended == client.posted; }));
        EXPECT_EQ(0, last.result);
        is_freed ? deregister() : free();
    }
}

struct wire_keys {
    ipc::wire_key of[2];
};

/* Memory of the program on a card that it shares with UCX, while a framework
 * acquires another one. */
GAUDI_CHILD(closes_its_card)
{
    constexpr uint64_t block = uint64_t{48} << 20;
    collect_logs();
    uct_md_h md   = open_md_of_child();
    auto &cards   = base::card_table::instance();
    const int own = cards.lend({});
    GAUDI_CHILD_REQUIRE(own >= 0);
    wire_keys keys;
    uct_mem_h handles[2];
    for (unsigned i = 0; i < 2; ++i) {
        const uint64_t handle =
            hl().hlthunk_device_memory_alloc(own, block, 0, true, false);
        const uint64_t va = hl().hlthunk_device_memory_map(own, handle, 0);
        GAUDI_CHILD_REQUIRE(va != 0);
        base::application::allocated(own, handle, block);
        base::application::mapped(own, handle, va);
        handles[i] = register_with_key(md, reinterpret_cast<void *>(va), mebi,
                                       keys.of[i]);
    }
    const int frameworks = emulator::instance().hlthunk_open_by_module_id(7);
    GAUDI_CHILD_REQUIRE(frameworks >= 0);
    cards.application_opened(frameworks, true);
    if (keys.of[0].address > keys.of[1].address) {
        std::swap(keys.of[0], keys.of[1]);
    }
    tell_parent(to_line(keys));

    wait_for_parent();
    (void)emulator::instance().hlthunk_emu_pause(own, true);
    tell_parent("paused");
    wait_for_parent();
    std::thread closing([&] { cards.application_closing(own); });
    wait_for_parent();
    (void)emulator::instance().hlthunk_emu_pause(own, false);
    closing.join();
    tell_parent("closed");
    for (uct_mem_h each : handles) {
        GAUDI_CHILD_REQUIRE(uct_md_mem_dereg(md, each) == UCS_OK);
    }
    uct_md_close(md);
    (void)take_logs();
    return 0;
}

/* A thread that has it may wait for them. */
TEST_F(served_copies, do_not_wait_for_the_card_table)
{
    GAUDI_NEEDS(own_card);
    child_process child("closes_its_card",
                        {{{"UCX_GAUDI_IPC_ROUTES", "host"}}, -1});
    wire_keys keys{};
    ASSERT_TRUE(from_line(child.read_line(), keys));
    const auto request = [&](unsigned of, request_kind kind) {
        return request_body{.word    = keys.of[of].word,
                            .address = keys.of[of].address,
                            .length  = data_bytes,
                            .kind    = kind};
    };
    process = keys.of[0].process;
    raw_client client(process);
    EXPECT_EQ(0, client.run(request(0, request_kind::get)));
    child.write_line("");
    ASSERT_EQ("paused", child.read_line());
    client.post(request(0, request_kind::get));
    await_start(process);
    child.write_line("");
    raw_client second(process);
    ASSERT_TRUE(eventually([&] {
        return second.run(request(0, request_kind::check)) == -EKEYREVOKED;
    }));
    /* Its memory is gone, too, but not yet the key. */
    EXPECT_EQ(0, second.run(request(1, request_kind::check)));
    EXPECT_EQ(-EFAULT, second.run(request(1, request_kind::get)));
    child.write_line("");
    EXPECT_EQ("closed", child.read_line());
    EXPECT_EQ(0, child.wait().exit_code);
}

/* Another card has something else at the same addresses. Nobody answers these
 * ports. */
TEST_F(served_copies, write_memory_of_a_card_over_its_own_ports_alone)
{
    GAUDI_NEEDS(second_card);
    exporter_process both{{{{"UCX_GAUDI_IPC_ROUTES", "ports"},
                            {"UCX_GAUDI_DEVICES", "2,3"},
                            {"HLTHUNK_EMU_PORTS", "y"},
                            {"HLTHUNK_EMU_PORT_RETRIES", "1"}},
                           -1}};
    const uint64_t there       = both.allocate(mebi, 1);
    const ipc::wire_key packed = both.key(there, mebi);
    raw_client client(packed.process);
    shim::port_offer offer{.kind =
                               static_cast<uint32_t>(shim::generation::gaudi2),
                           .own   = 7,
                           .count = shim::ports_of_card};
    for (uint32_t port = 0; port < offer.count; ++port) {
        offer.ends[port].port = port;
    }
    for (const auto &[card, ends] : {std::pair(0u, -EIO), {1u, -EFAULT}}) {
        offer.peer = static_cast<uint32_t>(both.ask_number("module", card));
        client.send(ipc::ports_message{
            .number = card,
            .card   = static_cast<uint32_t>(both.ask_number("card", card)),
            .error  = 0,
            .offer  = offer});
        const auto answer = client.receive<ipc::ports_message>();
        ASSERT_TRUE(answer.has_value());
        EXPECT_EQ(0, answer->error);
        EXPECT_EQ(ends, client.run({.word    = packed.word,
                                    .address = there,
                                    .length  = 64,
                                    .kind    = request_kind::write,
                                    .number  = card}));
    }
    EXPECT_EQ("none", both.ask("warning"));
}

struct victim {
    ipc::wire_key key;
    ipc::interface_address interface;
};

/* Random words, all over its segment; it has a key, of memory that nobody else
 * uses. */
GAUDI_CHILD(scribbles)
{
    const auto of = from_parent<victim>();
    std::mt19937_64 random(static_cast<unsigned>(getpid()));
    tell_parent("ready");
    for (;;) {
        const raw_client client(of.key.process,
                                random() % 4 ? of.interface.number : 0);
        for (unsigned left = random() % 20000; left > 0; --left) {
            size_t place = random() % (ipc::chunk_offset + 4096);
            if (random() % 4 == 0) {
                place = random() % sizeof(ipc::link_control);
            } else if (random() % 4 == 0) {
                place = ipc::request_offset + random() % 4096;
            }
            const uint64_t values[] = {random(),
                                       0,
                                       1,
                                       2,
                                       UINT64_MAX,
                                       random() % 70,
                                       (random() % 70000) | 0xa50000000000,
                                       of.key.word,
                                       of.key.address + random() % 70000,
                                       random() % 70000};
            auto *word = reinterpret_cast<uint64_t *>(client.segment.start() +
                                                      place / 8 * 8);
            std::atomic_ref<uint64_t>(*word).store(
                values[random() % std::size(values)]);
            if (left % 1000 == 0) {
                client.ring_bell();
            }
        }
    }
}

TEST_F(served_copies, are_right_beside_clients_that_scribble)
{
    victim of{};
    static char mine[65536];
    static char theirs[65536];
    std::memset(mine, 0x33, sizeof(mine));
    ipc::wire_key my_key;
    inbox box;
    uct_mem_h handles[] = {
        register_with_key(md, mine, sizeof(mine), my_key),
        register_with_key(md, theirs, sizeof(theirs), of.key)};
    of.interface     = box.address();
    uint64_t others  = 0;
    uint64_t sum     = 0;
    uint64_t numbers = 0;
    const auto take  = [&](uint8_t id, void *data, size_t length) {
        if ((id == 99) && (length == 8)) {
            uint64_t number;
            std::memcpy(&number, data, length);
            /* Who scribbles may say the same. */
            numbers += (number == numbers) ? 1 : 0;
        } else {
            ++others;
        }
        for (size_t i = 0; i < length; ++i) { /* all can be read */
            sum += static_cast<uint8_t *>(data)[i];
        }
    };
    const auto out = open_link(box.address());
    raw_client client(my_key.process);
    std::vector<std::unique_ptr<told_child>> children;
    for (unsigned i = 0; i < 2; ++i) {
        children.push_back(
            std::make_unique<told_child>("scribbles", of, "ready"));
    }
    uint64_t sent  = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    do {
        ASSERT_EQ(UCS_OK, out->send(99, sent++, nullptr, 0));
        EXPECT_TRUE(eventually([&] {
            box.box->poll(100, take);
            return numbers == sent;
        }));
        (void)box.arm();
        std::memset(client.data(), 0, data_bytes);
        ASSERT_EQ(0, client.run({.word    = my_key.word,
                                 .address = my_key.address,
                                 .length  = data_bytes,
                                 .kind    = request_kind::get}));
        ASSERT_EQ(0, std::memcmp(client.data(), mine, data_bytes));
    } while (std::chrono::steady_clock::now() < end);
    for (auto &each : children) {
        each->kill(SIGKILL);
        each->wait();
    }
    EXPECT_GT(others + sum, 0u);
    EXPECT_TRUE(std::all_of(mine, std::end(mine),
                            [](char each) { return each == 0x33; }));
    for (const std::string &line : take_logs()) {
        EXPECT_THAT(line, ::testing::HasSubstr("make no sense"));
    }
    for (uct_mem_h each : handles) {
        EXPECT_EQ(UCS_OK, uct_md_mem_dereg(md, each));
    }
}

} // namespace

} // namespace gaudi::test
