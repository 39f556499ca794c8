/* SPDX-License-Identifier: BSD-3-Clause */
/* What a process copies for others, when they ask for it by hand, and for what
 * makes no sense. */
#include "common/needs.h"
#include "common/process_state.h"
#include "common/ucx_logs.h"
#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/memory/application/application_memory.h"
#include "uct/gaudi/ipc/serving/copy_client.h"
#include "util/file_mapping.h"
#include "gtest/ipc/exporter.h"
#include "gtest/ipc/fixture.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gaudi::test {

namespace {} // namespace

namespace {

constexpr size_t data_bytes = 1 << 16;
constexpr uint32_t slots    = 16;

/* What a client asks for. */
struct wish {
    uint64_t address;
    uint64_t offset;
    uint64_t length;
    uint64_t stamp;
    uint32_t cell;
    uint32_t kind;
    uint32_t link = 0;
};

/* A file with a ring, as a client makes it. */
util::unique_fd make_ring(const std::function<void(ipc::copy_ring &)> &change,
                          bool sealed = true, size_t more = 0)
{
    const size_t total = ipc::copy_ring::file_size(slots, data_bytes) + more;
    util::unique_fd file =
        sealed ? util::make_lasting_file("ring", total)
               : util::unique_fd(memfd_create("ring", MFD_CLOEXEC));
    if (!sealed) {
        EXPECT_EQ(0, ftruncate(file.get(), static_cast<off_t>(total)));
    }
    util::file_mapping mapping;
    EXPECT_TRUE(mapping.map(file.get(), 0, total));
    auto &ring      = *reinterpret_cast<ipc::copy_ring *>(mapping.start());
    ring.magic      = ipc::copy_ring::right_magic;
    ring.version    = ipc::wire_version;
    ring.slots      = slots;
    ring.data_bytes = data_bytes;
    ring.client     = ipc::own_process();
    change(ring);
    return file;
}

/* Who has brought a ring. */
struct raw_client {
    explicit raw_client(const ipc::foreign_page &of, int kind = EFD_NONBLOCK)
        : event(eventfd(0, EFD_CLOEXEC | kind))
    {
        const auto file = make_ring([](auto &) {});
        ipc::file_pair answer;
        EXPECT_EQ(UCS_OK, of.process().get_files(of.copy_service(), answer,
                                                 {file.get(), event.get()}));
        EXPECT_TRUE(mapping.map(file.get(), 0,
                                ipc::copy_ring::file_size(slots, data_bytes)));
        bell = std::move(answer[0]);
    }
    ~raw_client()
    {
        ring().client_gone = 1;
        ring_bell();
    }

    [[nodiscard]] ipc::copy_ring &ring() const
    {
        return *reinterpret_cast<ipc::copy_ring *>(mapping.start());
    }
    [[nodiscard]] char *data() const
    {
        return mapping.start() + ipc::copy_ring::data_offset(slots);
    }
    void ring_bell() const { (void)eventfd_write(bell.get(), 1); }

    void post(const wish &asked)
    {
        ipc::copy_request &slot = ring().requests()[posted % slots];
        slot.address            = asked.address;
        slot.offset             = asked.offset;
        slot.length             = asked.length;
        slot.stamp              = asked.stamp;
        slot.cell               = asked.cell;
        slot.kind               = asked.kind;
        slot.link               = asked.link;
        ring().posted           = ++posted;
        ring_bell();
    }

    /* @return What became of it; nothing when it does not end. */
    std::optional<int64_t> run(const wish &asked)
    {
        post(asked);
        ipc::copy_request &slot = ring().requests()[(posted - 1) % slots];
        return eventually([&] { return slot.ended == posted; })
                   ? std::make_optional(slot.result)
                   : std::nullopt;
    }

    util::unique_fd event;
    util::unique_fd bell;
    util::file_mapping mapping;
    uint64_t posted = 0;
};

struct wire_keys {
    ipc::wire_key of[2];
};

/* The page of the process of a key. */
ucs_status_t find_page(const ipc::wire_key &key,
                       std::shared_ptr<ipc::foreign_page> &of)
{
    return ipc::foreign_pages::instance().find(key.process, key.page, of);
}

class copy_service : public keys_test {
protected:
    void SetUp() override
    {
        keys_test::SetUp();
        key = other.key(at, mebi);
        ASSERT_EQ(UCS_OK, find_page(key, of));
    }
    void TearDown() override
    {
        expect_to_serve();
        of.reset();
        keys_test::TearDown();
    }

    [[nodiscard]] wish
    request(const std::function<void(wish &)> &change = {}) const
    {
        wish asked{at, 0, data_bytes, key.stamp, key.cell, 0};
        if (change) {
            change(asked);
        }
        return asked;
    }

    /* Whoever asks for what is right. */
    void expect_to_serve() const
    {
        raw_client good(*of);
        EXPECT_EQ(0, good.run(request()));
        EXPECT_EQ(0x5a, good.data()[data_bytes - 1]);
    }

    /* Why a ring is refused, or not. */
    ucs_status_t bring(int file, int event)
    {
        ipc::file_pair answer;
        return of->process().get_files(of->copy_service(), answer,
                                       {file, event});
    }

    exporter_process other{{{{"UCX_GAUDI_IPC_ROUTES", "host"}}}};
    const uint64_t at = other.allocate(mebi, 0x5a);
    ipc::wire_key key{};
    std::shared_ptr<ipc::foreign_page> of;
};

} // namespace

TEST_F(copy_service, copies_to_and_from_what_there_is_a_key_for)
{
    raw_client client(*of);
    std::memset(client.data(), 7, data_bytes);
    EXPECT_EQ(0, client.run(request([](auto &asked) {
        asked.kind   = ipc::request_put;
        asked.offset = 1;
        asked.length = 100;
        asked.address += mebi / 2 - 3;
    })));
    for (unsigned i = 0; i < 2 * slots; ++i) {
        std::memset(client.data(), 0, data_bytes);
        EXPECT_EQ(0, client.run(request(
                         [](auto &asked) { asked.address += mebi / 2 - 4; })));
        EXPECT_NE(7, client.data()[0]);
        EXPECT_EQ(7, client.data()[1]);
        EXPECT_EQ(7, client.data()[100]);
        EXPECT_NE(7, client.data()[101]);
    }
}

TEST_F(copy_service, refuses_what_is_out_of_place)
{
    raw_client client(*of);
    char here                                                  = 0;
    const std::pair<std::function<void(wish &)>, int> wrongs[] = {
        {[](auto &asked) { asked.length = 0; }, -EFAULT},
        {[](auto &asked) { asked.kind = ipc::request_write + 1; }, -EFAULT},
        {[](auto &asked) { asked.kind = UINT32_MAX; }, -EFAULT},
        {[](auto &asked) { asked.length = data_bytes + 1; }, -EFAULT},
        {[](auto &asked) { asked.offset = 1; }, -EFAULT},
        {[](auto &asked) { asked.offset = UINT64_MAX; }, -EFAULT},
        {[](auto &asked) { asked.length = UINT64_MAX; }, -EFAULT},
        {[&](auto &asked) {
             asked.address = reinterpret_cast<uintptr_t>(&here);
         },
         -EKEYREVOKED},
        {[](auto &asked) { asked.address = 0; }, -EKEYREVOKED},
        {[](auto &asked) { asked.address -= 1; }, -EKEYREVOKED},
        {[](auto &asked) { asked.address += mebi - data_bytes + 1; },
         -EKEYREVOKED},
        {[](auto &asked) { asked.stamp = 0; }, -EKEYREVOKED},
        {[](auto &asked) { asked.stamp += 1; }, -EKEYREVOKED},
        {[](auto &asked) { asked.cell += 1; }, -EKEYREVOKED},
        {[](auto &asked) { asked.cell = UINT32_MAX; }, -EKEYREVOKED},
    };
    for (const auto &[change, error] : wrongs) {
        EXPECT_EQ(error, client.run(request(change)));
    }
    EXPECT_EQ(0, client.run(request()));
}

/* Another card has something else at the same addresses. Nobody answers these
 * ports. */
TEST_F(copy_service, writes_memory_of_a_card_over_its_own_ports_alone)
{
    GAUDI_NEEDS(second_card);
    exporter_process both{{{{"UCX_GAUDI_IPC_ROUTES", "ports"},
                            {"UCX_GAUDI_DEVICES", "2,3"},
                            {"HLTHUNK_EMU_PORTS", "y"},
                            {"HLTHUNK_EMU_PORT_RETRIES", "1"}}}};
    const uint64_t there       = both.allocate(mebi, 1);
    const ipc::wire_key packed = both.key(there, mebi);
    std::shared_ptr<ipc::foreign_page> page;
    ASSERT_EQ(UCS_OK, find_page(packed, page));
    raw_client client(*page);
    shim::port_offer letter{.kind =
                                static_cast<uint32_t>(shim::generation::gaudi2),
                            .own   = 7,
                            .count = shim::ports_of_card};
    for (uint32_t port = 0; port < letter.count; ++port) {
        letter.ends[port].port = port;
    }
    for (const auto &[card, ends] : {std::pair(0u, -EIO), {1u, -EFAULT}}) {
        letter.peer = static_cast<uint32_t>(both.ask_number("module", card));
        std::memcpy(client.data(), &letter, sizeof(letter));
        EXPECT_EQ(0,
                  client.run({both.ask_number("card", card), 0, sizeof(letter),
                              0, 0, ipc::request_ports, card}));
        EXPECT_EQ(ends, client.run({there, 0, 64, packed.stamp, packed.cell,
                                    ipc::request_write, card}));
    }
    EXPECT_EQ("none", both.ask("warning"));
}

TEST_F(copy_service, gives_up_who_counts_wrong)
{
    for (const uint64_t jump : {uint64_t{slots} + 1, UINT64_MAX, uint64_t{0}}) {
        raw_client client(*of);
        EXPECT_EQ(0, client.run(request()));
        client.ring().posted = (jump == 0) ? 0 : client.posted + jump;
        client.ring_bell();
        EXPECT_TRUE(eventually([&] { return client.ring().server_gone == 1; }));
        expect_to_serve();
    }
}

TEST_F(copy_service, refuses_what_is_no_ring)
{
    const util::unique_fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    const auto refused = [&](const util::unique_fd &file) {
        return bring(file.get(), event.get()) != UCS_OK;
    };
    using edit = void (*)(ipc::copy_ring &);
    for (const edit change : {
             +[](ipc::copy_ring &ring) { ring.magic += 1; },
             +[](ipc::copy_ring &ring) { ring.version += 1; },
             +[](ipc::copy_ring &ring) { ring.slots = 0; },
             +[](ipc::copy_ring &ring) { ring.slots = UINT32_MAX; },
             +[](ipc::copy_ring &ring) { ring.slots = 1000; },
             +[](ipc::copy_ring &ring) { ring.data_bytes = 0; },
             +[](ipc::copy_ring &ring) { ring.data_bytes += 4096; },
             +[](ipc::copy_ring &ring) { ring.data_bytes = UINT64_MAX; },
         }) {
        EXPECT_TRUE(refused(make_ring(change)));
    }
    EXPECT_TRUE(refused(make_ring([](auto &) {}, false)));
    EXPECT_TRUE(refused(make_ring([](auto &) {}, true, 4096)));
    EXPECT_TRUE(refused(util::make_lasting_file("ring", 1)));
    EXPECT_TRUE(refused(util::make_lasting_file("ring", 0)));
    const util::unique_fd huge(
        memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
    (void)ftruncate(huge.get(), 2 << 20);
    (void)fcntl(huge.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    EXPECT_TRUE(refused(huge)) << "there may be no huge page";
    EXPECT_FALSE(refused(make_ring([](auto &) {})));
}

TEST_F(copy_service, refuses_to_ring_what_could_hold_it_up)
{
    const auto file = make_ring([](auto &) {});
    int ends[2];
    ASSERT_EQ(0, pipe2(ends, O_CLOEXEC | O_NONBLOCK));
    close(ends[0]); /* who writes would get SIGPIPE */
    for (const int event : {-1, ends[1], file.get()}) {
        EXPECT_NE(UCS_OK, bring(file.get(), event));
    }
    close(ends[1]);
}

/* Its owner has made it wait afterwards. */
TEST_F(copy_service, goes_on_beside_an_event_that_is_full)
{
    raw_client client(*of, 0);
    ASSERT_EQ(0, eventfd_write(client.event.get(), UINT64_MAX - 1));
    client.ring().client_sleeps = 1;
    EXPECT_EQ(0, client.run(request()));
    expect_to_serve();
}

TEST_F(copy_service, ends_with_the_key)
{
    raw_client client(*of);
    EXPECT_EQ(0, client.run(request()));
    const auto next = other.key(at, mebi);
    other.deregister(key);
    EXPECT_EQ(-EKEYREVOKED, client.run(request()));
    key = next;
    EXPECT_EQ(0, client.run(request()));
}

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

using served_copies = keys_test;

/* Whoever has it may wait for them. */
TEST_F(served_copies, do_not_wait_for_the_card_table)
{
    GAUDI_NEEDS(own_card);
    child_process child("closes_its_card",
                        {{{"UCX_GAUDI_IPC_ROUTES", "host"}}, -1});
    wire_keys keys{};
    ASSERT_TRUE(from_line(child.read_line(), keys));
    std::shared_ptr<ipc::foreign_page> of;
    ASSERT_EQ(UCS_OK, find_page(keys.of[0], of));
    const auto request = [&](const ipc::wire_key &key) {
        return wish{key.address, 0, data_bytes, key.stamp, key.cell, 0};
    };
    raw_client client(*of);
    EXPECT_EQ(0, client.run(request(keys.of[0])));
    child.write_line("");
    ASSERT_EQ("paused", child.read_line());
    client.post(request(keys.of[0]));
    raw_client second(*of); /* what that has asked for was taken by then */
    EXPECT_EQ(-EFAULT, second.run({}));
    child.write_line("");
    ASSERT_TRUE(eventually(
        [&] { return of->cell(keys.of[0].cell) != keys.of[0].stamp; }));
    /* Its memory is gone, too, but not yet the key. */
    EXPECT_EQ(keys.of[1].stamp, of->cell(keys.of[1].cell));
    EXPECT_EQ(-EFAULT, second.run(request(keys.of[1])));
    child.write_line("");
    EXPECT_EQ("closed", child.read_line());
    EXPECT_EQ(0, child.wait().exit_code);
}

} // namespace gaudi::test
