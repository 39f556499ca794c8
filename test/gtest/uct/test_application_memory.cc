/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory and cards that the program got from the driver library itself. */
#include "gtest/uct/peers.h"

#include "common/process_state.h"
#include "common/raw_card.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <optional>

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

extern "C" {
#include <config.h>
#include <ucm/api/ucm.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/log.h>
#include <ucs/memory/memory_type.h>
#include <ucs/memory/memtype_cache.h>
#include <ucs/sys/topo/base/topo.h>
}

namespace gaudi::test {

namespace {

void *at(uint64_t address)
{
    return reinterpret_cast<void *>(address);
}

/* Whether UCX's cache of memory types has an address. */
ucs_status_t look_up(uint64_t address, size_t length = 4)
{
    ucs_memory_info_t info;
    return ucs_memtype_cache_lookup(at(address), length, &info);
}

int open_first_card()
{
    return hl().hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, bus_id(0).c_str());
}

/* A new allocation of a page. @return Device VA. */
uint64_t map_page(int fd)
{
    return hl().hlthunk_device_memory_map(
        fd, hl().hlthunk_device_memory_alloc(fd, device_page(), 0, false, true),
        0);
}

/* The card maps what it reads, so that has to be writable. */
outcome write_text(raw_card &card, uint64_t address, std::string text)
{
    return card.write(address, text.data(), static_cast<uint32_t>(text.size()));
}

/* One line per UCM event of device memory. */
struct event_log {
    event_log()
    {
        EXPECT_EQ(UCS_OK, ucm_set_event_handler(UCM_EVENT_MEM_TYPE_ALLOC |
                                                    UCM_EVENT_MEM_TYPE_FREE,
                                                0, note, this));
    }
    ~event_log()
    {
        ucm_unset_event_handler(
            UCM_EVENT_MEM_TYPE_ALLOC | UCM_EVENT_MEM_TYPE_FREE, note, this);
    }

    static void note(ucm_event_type_t type, ucm_event_t *event, void *arg)
    {
        /* UCX asks about what comes, and is told what goes. */
        EXPECT_STREQ((type == UCM_EVENT_MEM_TYPE_ALLOC) ? "unknown" : "gaudi",
                     ucs_memory_type_names[event->mem_type.mem_type]);
        static_cast<event_log *>(arg)->lines.push_back(
            {type == UCM_EVENT_MEM_TYPE_ALLOC,
             reinterpret_cast<uintptr_t>(event->mem_type.address),
             event->mem_type.size});
    }

    struct line {
        bool appeared;
        uint64_t address;
        uint64_t size;
        bool operator==(const line &) const = default;
    };
    std::vector<line> take() { return std::exchange(lines, {}); }

    std::vector<line> lines;
};

using event_lines = std::vector<event_log::line>;

class application_memory : public ::testing::Test {
protected:
    application_memory()
    {
        (void)find_component(); /* has the driver loaded, and hooked */
    }

    void open()
    {
        md.emplace();
        tl.emplace(*md);
    }

    /* The name of the card that has some memory. */
    const char *card_of(uint64_t address)
    {
        return ucs_topo_sys_device_get_name(query(address, 1).sys_dev);
    }

    uct_md_mem_attr_t query(uint64_t address, size_t length)
    {
        return query_memory(*md, at(address), length);
    }

    ucs_status_t put(uint64_t address, const std::string &bytes)
    {
        return tl->put_short(bytes.data(), bytes.size(), address);
    }

    ucs_status_t get(uint64_t address, std::string &bytes)
    {
        return tl->get_short(bytes.data(), bytes.size(), address);
    }

    /* Bytes go to the card of the program, and nowhere else. */
    void expect_copies(raw_card &card, uint64_t address)
    {
        std::string seen(9, '.');
        EXPECT_EQ(UCS_OK, put(address, "to device"));
        EXPECT_EQ(completed, card.read(seen.data(), address, 9));
        EXPECT_EQ("to device", seen);
        EXPECT_EQ(completed, write_text(card, address, "from card"));
        EXPECT_EQ(UCS_OK, get(address, seen));
        EXPECT_EQ("from card", seen);
    }

    void expect_refused(uint64_t address, const char *why,
                        ucs_status_t status = UCS_ERR_INVALID_ADDR)
    {
        EXPECT_EQ(status, put(address, "nowhere"));
        EXPECT_THAT(take_logs(),
                    ::testing::ElementsAre(::testing::HasSubstr(why)));
    }

    void expect_unknown(uint64_t address)
    {
        expect_refused(address, "are in no allocation");
    }

    checked_log log;
    std::optional<opened_domain> md;
    std::optional<transport> tl;
};

TEST_F(application_memory, mapped_before_the_open_is_copied_and_told_exactly)
{
    GAUDI_NEEDS(lone_driver);
    raw_card card(2);
    const uint64_t va = card.allocate_mapped(100000);
    open();
    const auto attr = query(va + 77, 10);
    EXPECT_STREQ("gaudi", ucs_memory_type_names[attr.mem_type]);
    EXPECT_EQ(va, reinterpret_cast<uintptr_t>(attr.base_address));
    EXPECT_EQ(100000u, attr.alloc_length);
    EXPECT_STREQ("gaudi2", ucs_topo_sys_device_get_name(attr.sys_dev));
    expect_copies(card, va + 4097);
    expect_unknown(va + 100000 - 1);
}

TEST_F(application_memory, mapped_after_the_open_is_copied)
{
    GAUDI_NEEDS(own_submissions);
    raw_card card(1);
    open();
    const uint64_t va = card.allocate_mapped(device_page());
    expect_copies(card, va);
    EXPECT_EQ(va, reinterpret_cast<uintptr_t>(
                      query(va + device_page() - 1, 1).base_address));
}

TEST_F(application_memory, events_tell_address_and_size_around_the_driver_calls)
{
    GAUDI_NEEDS(own_card);
    event_log events;
    raw_card card;
    const uint64_t handle = card.allocate(12345);
    EXPECT_THAT(events.take(), ::testing::IsEmpty());
    const uint64_t va = card.map(handle);
    EXPECT_EQ((event_lines{{true, va, 12345}}), events.take());
    EXPECT_EQ(0, hl().hlthunk_memory_unmap(card.fd(), va));
    EXPECT_EQ((event_lines{{false, va, 12345}}), events.take());
    EXPECT_EQ(0, hl().hlthunk_device_memory_free(card.fd(), handle));

    /* The same address, with another size. */
    const uint64_t again = card.map(card.allocate(999), va);
    EXPECT_EQ(va, again);
    EXPECT_EQ((event_lines{{true, va, 999}}), events.take());
    ASSERT_EQ(0, hl().hlthunk_close(card.fd()));
    card.release();
    EXPECT_EQ((event_lines{{false, va, 999}}), events.take());
}

TEST_F(application_memory, a_refused_unmap_announces_it_again)
{
    GAUDI_NEEDS(own_card);
    raw_card card;
    open();
    const uint64_t va = card.allocate_mapped(device_page());
    const int dmabuf  = hl().hlthunk_device_mapped_memory_export_dmabuf_fd(
         card.fd(), va, device_page(), 0, O_RDWR | O_CLOEXEC);
    ASSERT_GE(dmabuf, 0);
    event_log events;
    EXPECT_EQ(-EINVAL, hl().hlthunk_memory_unmap(card.fd(), va));
    EXPECT_EQ(
        (event_lines{{false, va, device_page()}, {true, va, device_page()}}),
        events.take());
    expect_copies(card, va);
    close(dmabuf);
    EXPECT_EQ(0, hl().hlthunk_memory_unmap(card.fd(), va));
    expect_unknown(va);
}

/* A card that finds an address unmapped is reset: who has a key must not lead
 * it there when the driver is asked, which refuses here. */
TEST_F(application_memory, keys_end_before_memory_is_unmapped)
{
    GAUDI_NEEDS(own_card);
    raw_card card;
    const opened_domain ipc_md("gaudi_ipc");
    transport ipc(ipc_md);
    const uint64_t va = card.allocate_mapped(device_page());
    const int dmabuf  = hl().hlthunk_device_mapped_memory_export_dmabuf_fd(
         card.fd(), va, device_page(), 0, O_RDWR | O_CLOEXEC);
    ASSERT_GE(dmabuf, 0);
    {
        const registration memory(ipc_md, at(va), device_page());
        const unpacked_key key(pack_key(ipc_md, memory.memh));
        const uct_ep_h loop = ipc.make_ep();
        const endpoint own{loop, key.rkey()};
        EXPECT_EQ(UCS_OK, own.put_short("x", 1, va));
        EXPECT_EQ(-EINVAL, hl().hlthunk_memory_unmap(card.fd(), va));
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, own.put_short("x", 1, va));
        uct_ep_destroy(loop);
    }
    close(dmabuf);
    EXPECT_EQ(0, hl().hlthunk_memory_unmap(card.fd(), va));
}

TEST_F(application_memory, what_the_module_does_itself_is_announced_once)
{
    open();
    event_log events;
    {
        const device_buffer buffer(*md, device_page());
        EXPECT_EQ(1u, events.take().size());
    }
    EXPECT_EQ(1u, events.take().size());
}

TEST_F(application_memory, a_range_across_two_allocations_is_refused)
{
    GAUDI_NEEDS(own_card);
    raw_card card;
    open();
    const uint64_t first = card.allocate_mapped(device_page());
    const uint64_t next =
        card.map(card.allocate(device_page()), first + device_page());
    ASSERT_EQ(first + device_page(), next);
    expect_unknown(next - 3);
    const auto attr = query(next - 3, 6);
    EXPECT_STREQ("gaudi", ucs_memory_type_names[attr.mem_type]);
    EXPECT_EQ(UCS_SYS_DEVICE_ID_UNKNOWN, attr.sys_dev);
}

TEST_F(application_memory, the_same_address_on_two_cards_goes_to_neither)
{
    GAUDI_NEEDS(own_card);
    raw_card first(0);
    raw_card second(1);
    open();
    const uint64_t va = first.allocate_mapped(device_page());
    expect_copies(first, va);
    const uint64_t handle = second.allocate(device_page());
    ASSERT_EQ(va, second.map(handle, va));
    ASSERT_EQ(completed, write_text(first, va, "untouched"));
    ASSERT_EQ(completed, write_text(second, va, "untouched"));

    expect_refused(va, "on several cards");
    EXPECT_EQ(UCS_SYS_DEVICE_ID_UNKNOWN, query(va, 9).sys_dev);
    uct_mem_h memh;
    EXPECT_EQ(
        UCS_ERR_INVALID_ADDR,
        register_memory(*md, at(va), 9, memh, UCT_MD_MEM_FLAG_HIDE_ERRORS));
    (void)take_logs();
    std::string seen(9, '.');
    for (raw_card *card : {&first, &second}) {
        EXPECT_EQ(completed, card->read(seen.data(), va, 9));
        EXPECT_EQ("untouched", seen);
    }

    /* One of them goes: what is left is known, to UCX as well. */
    EXPECT_EQ(0, hl().hlthunk_memory_unmap(first.fd(), va));
    EXPECT_EQ(UCS_OK, look_up(va, 9));
    expect_copies(second, va);
}

TEST_F(application_memory, memory_that_goes_while_registered_is_harmless)
{
    GAUDI_NEEDS(own_card);
    raw_card card;
    open();
    const uint64_t va = card.allocate_mapped(device_page());
    uct_mem_h memh;
    ASSERT_EQ(UCS_OK, register_memory(*md, at(va), 100, memh));
    EXPECT_EQ(0, hl().hlthunk_memory_unmap(card.fd(), va));
    expect_unknown(va);
    EXPECT_EQ(UCS_OK, uct_md_mem_dereg(*md, memh));
}

/* The driver keeps a block of memory that somebody has a dma-buf of, which is
 * logged when the cards close: a moment at which the program maps some more. */
struct mapping_in_the_log {
    explicit mapping_in_the_log(const raw_card &by)
        : card(by), handle(by.allocate(device_page()))
    {
        current = this;
        ucs_log_push_handler(note);
        ucs_global_opts.log_component.log_level = UCS_LOG_LEVEL_DEBUG;
    }
    ~mapping_in_the_log()
    {
        ucs_global_opts.log_component.log_level = level;
        ucs_log_pop_handler();
        current = nullptr;
    }

    static ucs_log_func_rc_t note(const char *, unsigned, const char *,
                                  ucs_log_level_t level,
                                  const ucs_log_component_config_t *,
                                  const char *message, va_list)
    {
        if (level < UCS_LOG_LEVEL_DEBUG) {
            return UCS_LOG_FUNC_RC_CONTINUE;
        }
        if ((std::strstr(message, "the last dma-buf of them is closed") !=
             nullptr) &&
            (current->va == 0)) {
            current->va = 1; /* this is logged, too */
            current->va = current->card.map(current->handle);
        }
        return UCS_LOG_FUNC_RC_STOP;
    }

    static inline mapping_in_the_log *current = nullptr;
    const ucs_log_level_t level = ucs_global_opts.log_component.log_level;
    const raw_card &card;
    const uint64_t handle;
    uint64_t va = 0;
};

TEST_F(application_memory,
       mapped_while_the_cards_close_is_of_no_card_until_then)
{
    GAUDI_NEEDS(own_card);
    raw_card card;
    open();
    int fd        = -1;
    size_t offset = 0;
    {
        const device_buffer exported(*md, 1000);
        ASSERT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_dmabuf_export)(
                              exported.address, 1000, &fd, &offset));
    }
    tl.reset();
    uint64_t va = 0;
    {
        mapping_in_the_log mapping(card);
        md.reset();
        va = mapping.va;
    }
    close(fd);
    ASSERT_GT(va, 1u) << "was not logged";
    ucx_gaudi_mem_attr_t attr{};
    attr.field_mask = UCX_GAUDI_MEM_ATTR_FIELD_BASE;
    EXPECT_EQ(UCS_ERR_INVALID_ADDR,
              GAUDI_CALL(ucx_gaudi_mem_query)(at(va), 1, &attr));
    open();
    expect_copies(card, va);
}

/* --- adoption ------------------------------------------------------------- */

TEST_F(application_memory, a_card_of_the_program_is_used_and_stays_open)
{
    GAUDI_NEEDS(own_card);
    raw_card card(3);
    open();
    {
        const device_buffer buffer(*md, 1000);
        std::string seen(4, '.');
        ASSERT_EQ(UCS_OK, put(buffer.remote(), "ours"));
        EXPECT_EQ(completed, card.read(seen.data(), buffer.remote(), 4));
        EXPECT_EQ("ours", seen);
        EXPECT_STREQ("gaudi3", card_of(buffer.remote()));
    }
    raw_card free_one(0); /* was not taken besides */
    EXPECT_GE(free_one.fd(), 0);
    tl.reset();
    md.reset();
    EXPECT_EQ(0u, card.counters().allocations) << "all given back";
    const uint64_t va = card.allocate_mapped(device_page());
    EXPECT_EQ(completed, write_text(card, va, "x"));
}

TEST_F(application_memory, two_memory_domains_share_an_adopted_card)
{
    GAUDI_NEEDS(own_card);
    raw_card card;
    const uint64_t va = card.allocate_mapped(device_page());
    opened_domain other;
    open();
    other.close();
    expect_copies(card, va);
}

TEST_F(application_memory, after_hlthunk_close_copies_end_with_an_error)
{
    GAUDI_NEEDS(own_card);
    raw_card card;
    open();
    const uint64_t va = card.allocate_mapped(device_page());
    expect_copies(card, va);

    std::vector<char> host(1 << 20);
    counted_completion done;
    card.pause(true);
    ASSERT_EQ(UCS_INPROGRESS,
              tl->put_zcopy(host.data(), host.size(), va, &done));
    ASSERT_EQ(0, hl().hlthunk_close(card.fd()));
    card.release();
    tl->flush();
    EXPECT_EQ(1u, done.calls);
    EXPECT_NE(UCS_OK, done.status);
    (void)take_logs();
    expect_unknown(va);
    EXPECT_EQ(UCS_ERR_NO_ELEM, look_up(va, 1)) << "announced as gone";
}

TEST_F(application_memory, a_copy_to_what_is_unmapped_meanwhile_fails_once)
{
    GAUDI_NEEDS(own_card);
    const wished_faults only_the_job("packet=abort");
    raw_card card;
    open();
    const uint64_t va = card.allocate_mapped(device_page());
    std::vector<char> host(4096);
    counted_completion done;
    counted_completion flushed;
    card.pause(true);
    tl->start_put(host.data(), host.size(), va, &done);
    ASSERT_EQ(0, hl().hlthunk_memory_unmap(card.fd(), va));
    card.pause(false);
    ASSERT_EQ(UCS_INPROGRESS, uct_ep_flush(tl->ep, 0, &flushed));
    tl->flush();
    EXPECT_EQ(1u, done.calls);
    EXPECT_EQ(UCS_ERR_IO_ERROR, done.status);
    EXPECT_EQ(1u, flushed.calls);
    EXPECT_THAT(take_logs(), ::testing::ElementsAre(
                                 ::testing::HasSubstr("4096 bytes failed")));
    EXPECT_EQ(1u, card.counters().jobs_aborted);

    /* The transport goes on. */
    expect_copies(card, card.allocate_mapped(device_page()));
}

TEST_F(application_memory, a_reopened_card_is_found_again)
{
    GAUDI_NEEDS(own_submissions);
    open();
    for (int round = 0; round < 3; ++round) {
        raw_card card(5);
        const uint64_t va = card.allocate_mapped(device_page());
        expect_copies(card, va);
        EXPECT_STREQ("gaudi5", card_of(va));
    }
}

TEST_F(application_memory, a_card_closed_behind_our_back_is_noticed)
{
    GAUDI_NEEDS(own_submissions);
    {
        raw_card card(4);
        open();
        const uint64_t va = card.allocate_mapped(device_page());
        expect_copies(card, va);
        ASSERT_EQ(0, close(card.fd()));
        const int number = card.fd();
        card.release();
        /* The number is a file's, which nobody may write to. */
        const int file = ::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        ASSERT_EQ(number, (file == number) ? file : dup2(file, number));
        opened_domain other;
        expect_unknown(va);
        other.close();
        EXPECT_EQ(0, lseek(number, 0, SEEK_END));
        close(number);
        if (file != number) {
            close(file);
        }
    }
    raw_card again(4);
    ASSERT_GE(again.fd(), 0);
    expect_copies(again, again.allocate_mapped(device_page()));
}

TEST_F(application_memory, memory_of_ours_on_a_lost_card_is_refused_and_freed)
{
    GAUDI_NEEDS(own_card);
    auto card = std::make_unique<raw_card>(0);
    open();
    {
        const device_buffer buffer(*md, 1000);
        card.reset();
        expect_refused(buffer.remote(), "were on a card that is lost",
                       UCS_ERR_NO_DEVICE);
    }
    std::vector<char> host(4096);
    const registration registered(*md, host.data(), host.size());
}

TEST_F(application_memory, a_card_that_we_opened_first_is_shared)
{
    GAUDI_NEEDS(own_card);
    open();
    const auto before = engine_hooks::counters();
    for (int round = 0; round < 2; ++round) {
        const int fd = open_first_card();
        ASSERT_GE(fd, 0) << "ours, duplicated";
        EXPECT_EQ(-EBUSY, open_first_card()) << "once at a time";
        hlthunk_emu_counters counters;
        EXPECT_EQ(0,
                  emulator::instance().hlthunk_emu_get_counters(fd, &counters));
        const uint64_t va = map_page(fd);
        ASSERT_NE(0u, va);
        std::string seen(4, '.');
        EXPECT_EQ(UCS_OK, put(va, "mine"));
        EXPECT_EQ(UCS_OK, get(va, seen));
        EXPECT_EQ("mine", seen);
        EXPECT_EQ(0, hl().hlthunk_close(fd));
        expect_unknown(va);
    }
    EXPECT_EQ(before.allocations, engine_hooks::counters().allocations)
        << "freed with the duplicate";
    const int by_module = emulator::instance().hlthunk_open_by_module_id(0);
    ASSERT_GE(by_module, 0);

    tl.reset();
    md.reset();
    EXPECT_NE(0u, hl().hlthunk_device_memory_alloc(by_module, device_page(), 0,
                                                   false, true))
        << "the card stays open for the program";
    EXPECT_EQ(0, hl().hlthunk_close(by_module));
    raw_card free_one(0);
    EXPECT_GE(free_one.fd(), 0);
}

/* What it had is announced as gone by whoever notices, to handlers that may do
 * anything. */
TEST_F(application_memory, a_shared_card_that_is_closed_holds_up_nobody)
{
    GAUDI_NEEDS(own_card);
    open();
    const int fd = open_first_card();
    ASSERT_GE(fd, 0);
    const auto before = engine_hooks::counters();
    ASSERT_NE(0u, map_page(fd));

    /* Opening an interface looks for cards, under the lock of the table. */
    struct opening {
        uct_md_h md;
        std::future<ucs_status_t> other;
        std::future_status seen = std::future_status::deferred;
    } asked{*md, {}};
    const auto ask = [](ucm_event_type_t, ucm_event_t *, void *arg) {
        auto &what = *static_cast<opening *>(arg);
        what.other = std::async(std::launch::async, [&what] {
            return transport::try_open(what.md, {});
        });
        what.seen  = what.other.wait_for(std::chrono::seconds(10));
    };
    ASSERT_EQ(UCS_OK,
              ucm_set_event_handler(UCM_EVENT_MEM_TYPE_FREE, 0, ask, &asked));
    EXPECT_EQ(0, hl().hlthunk_close(fd));
    ucm_unset_event_handler(UCM_EVENT_MEM_TYPE_FREE, ask, &asked);
    EXPECT_EQ(std::future_status::ready, asked.seen);
    ASSERT_TRUE(asked.other.valid());
    EXPECT_EQ(UCS_OK, asked.other.get());
    EXPECT_EQ(before.allocations, engine_hooks::counters().allocations);
    EXPECT_EQ(before.mappings, engine_hooks::counters().mappings);
}

TEST_F(application_memory, without_a_name_the_program_gets_a_free_card_first)
{
    open();
    const int fd = hl().hlthunk_open(HLTHUNK_DEVICE_DONT_CARE, nullptr);
    ASSERT_GE(fd, 0);
    char text[13];
    EXPECT_EQ(0, hl().hlthunk_get_pci_bus_id_from_fd(fd, text, sizeof(text)));
    EXPECT_EQ(bus_id(1), text);
    EXPECT_EQ(0, hl().hlthunk_close(fd));
}

TEST_F(application_memory, what_the_driver_does_not_free_stays_known)
{
    GAUDI_NEEDS(own_card);
    open();
    raw_card card(1);
    const uint64_t handle = card.allocate(device_page());
    const uint64_t va     = card.map(handle);
    EXPECT_NE(0, hl().hlthunk_device_memory_free(card.fd(), handle))
        << "it is mapped";
    EXPECT_EQ(0, hl().hlthunk_memory_unmap(card.fd(), va));
    const uint64_t again = card.map(handle);
    EXPECT_EQ(device_page(), query(again, 1).alloc_length);
}

/* --- UCX's own module ----------------------------------------------------- */

/* A card that it opens for itself; less than 0: it gets none. */
int open_as_ucx(const std::string &bus_id)
{
    using function = int (*)(void *, const char *);
    void *module   = dlopen(GAUDI_UPSTREAM_MODULE, RTLD_NOW | RTLD_LOCAL);
    auto open      = reinterpret_cast<function>(dlsym(module, "upstream_open"));
    return open(reinterpret_cast<void *>(hl().hlthunk_open), bus_id.c_str());
}

TEST_F(application_memory, a_card_that_ucx_opens_is_left_to_it)
{
    GAUDI_NEEDS(own_card);
    const int fd = open_as_ucx(bus_id(0));
    ASSERT_GE(fd, 0);
    open(); /* the first that is free */
    {
        const device_buffer buffer(*md, 1000);
        EXPECT_STREQ("gaudi1", card_of(buffer.remote()));
    }
    uct_md_mem_attr_t attr{};
    attr.field_mask = UCT_MD_MEM_ATTR_FIELD_MEM_TYPE;
    void *elsewhere = reinterpret_cast<void *>(UINT64_MAX - 8191);
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, uct_md_mem_query(*md, elsewhere, 1, &attr))
        << "it may be UCX's";
    EXPECT_EQ(0, hl().hlthunk_close(fd));
    EXPECT_EQ(UCS_OK, uct_md_mem_query(*md, elsewhere, 1, &attr));

    raw_card card(0);
    const uint64_t va = card.allocate_mapped(device_page());
    EXPECT_STREQ("gaudi0", card_of(va)) << "the program's, now";
    expect_copies(card, va);
}

TEST_F(application_memory, a_card_of_ours_is_not_lent_to_ucx)
{
    GAUDI_NEEDS(own_card);
    open();
    EXPECT_EQ(-EBUSY, open_as_ucx(bus_id(0)));
    const int fd = open_first_card();
    EXPECT_GE(fd, 0) << "but to the program";
    EXPECT_EQ(0, hl().hlthunk_close(fd));
}

/* --- mapped unseen -------------------------------------------------------- */

/* Whether four bytes that UCX puts somewhere are in the memory of a card. */
bool arrives(transport &tl, raw_card &card, uint64_t address,
             const std::string &text)
{
    std::string seen(text.size(), '.');
    return (tl.put_short(text.data(), text.size(), address) == UCS_OK) &&
           (card.read(seen.data(), address, 4) == completed) && (seen == text);
}

/* A program that had memory before the module came. */
TEST_IN_CHILD(unseen_memory,
              is_any_address_of_its_card_behind_all_that_is_known)
{
    GAUDI_NEEDS(own_card);
    raw_card card(1);
    const uint64_t va = card.allocate_mapped(2 * device_page());
    const opened_domain md;
    transport tl(md);

    /* Anything in the card's range is its memory. */
    const uint64_t middle = va + device_page() - 2;
    EXPECT_TRUE(arrives(tl, card, middle, "over"));
    ASSERT_EQ(UCS_OK, look_up(middle));
    const auto attr = query_memory(md, at(middle), 4);
    EXPECT_STREQ("gaudi1", ucs_topo_sys_device_get_name(attr.sys_dev));

    /* What is seen afterwards is known exactly, and wins on its card only. */
    const emulator looked_up_again;
    raw_card other(2, looked_up_again.driver.lib());
    const uint64_t exact = other.allocate_mapped(device_page());
    ASSERT_TRUE(exact == va); /* the cards count alike */
    EXPECT_TRUE(arrives(tl, other, exact, "seen"));

    /* Across its end nobody can tell. */
    collect_logs();
    ASSERT_EQ(UCS_ERR_INVALID_ADDR,
              tl.put_short("cross", 5, exact + device_page() - 2));
}

/* A program that had looked up what it calls before the module came. */
TEST_IN_CHILD(unseen_memory, is_what_the_program_maps_by_pointers_from_before)
{
    GAUDI_NEEDS(own_card);
    raw_card card(1);
    const opened_domain md;
    transport tl(md);
    const uint64_t va = card.allocate_mapped(device_page());
    ASSERT_EQ(UCS_OK, look_up(va));
    EXPECT_TRUE(arrives(tl, card, va, "seen"));
}

/* How much memory of the application UCX finds at an address; 0: none. */
size_t allocation_at(uct_md_h md, uint64_t va)
{
    uct_md_mem_attr_t attr{};
    attr.field_mask = UCT_MD_MEM_ATTR_FIELD_ALLOC_LENGTH;
    return (uct_md_mem_query(md, at(va), 1, &attr) == UCS_OK)
               ? attr.alloc_length
               : 0;
}

/* What a pointer from before unmaps is known until something is there again. */
TEST_IN_CHILD(unseen_memory, is_replaced_by_what_is_mapped_there_next)
{
    GAUDI_NEEDS(own_card);
    const shim::library &earlier = hl();
    const opened_domain md;
    const emulator looked_up_again;
    raw_card card(1, looked_up_again.driver.lib());
    const uint64_t small = card.allocate(device_page());
    const uint64_t large = card.allocate(2 * device_page());
    const uint64_t va    = card.map(small);
    ASSERT_TRUE(earlier.hlthunk_memory_unmap(card.fd(), va) == 0);
    ASSERT_TRUE(card.map(large, va) == va);
    ASSERT_TRUE(allocation_at(md, va) == 2 * device_page());
}

/* A library that calls by name what another one has, as the dynamic linker
 * fills it in: before the module comes, at the first call, or afterwards. */
struct linked_library {
    explicit linked_library(int when_bound)
        : handle(dlopen(GAUDI_LINKED_LIBRARY, when_bound | RTLD_LOCAL))
    {}

    /* @return Device VA. */
    [[nodiscard]] uint64_t map(int fd, uint64_t size) const
    {
        return reinterpret_cast<uint64_t (*)(int, uint64_t)>(
            dlsym(handle, "linked_map"))(fd, size);
    }

    void *handle;
};

class linked_libraries : public ::testing::TestWithParam<const char *> {
protected:
    static child_options options() { return {{{"IT_IS", GetParam()}}, -1}; }
};

TEST_P_IN_CHILD(linked_libraries, map_memory_that_is_known_exactly, options())
{
    GAUDI_NEEDS(own_card);
    const std::string it_is = std::getenv("IT_IS");
    const int when   = (it_is == "bound_at_its_call") ? RTLD_LAZY : RTLD_NOW;
    const bool early = (it_is != "loaded_late");
    ASSERT_TRUE(dlopen(emulator_path().c_str(), RTLD_NOW | RTLD_GLOBAL) !=
                nullptr);
    std::optional<linked_library> library;
    if (early) {
        library.emplace(when);
    }
    const opened_domain md;
    if (!early) {
        library.emplace(when);
    }
    ASSERT_TRUE(library->handle != nullptr);
    const emulator looked_up_now;
    raw_card card(1, looked_up_now.driver.lib()); /* lent */
    const uint64_t va = library->map(card.fd(), device_page());
    ASSERT_TRUE(va != 0);
    const auto attr = query_memory(md, at(va + 8), 1);
    ASSERT_TRUE(attr.base_address == at(va));
    ASSERT_TRUE(attr.alloc_length == device_page());
}

INSTANTIATE_TEST_SUITE_P(that_are, linked_libraries,
                         ::testing::Values("bound_already", "bound_at_its_call",
                                           "loaded_late"),
                         [](const auto &test) {
                             return std::string(test.param);
                         });

TEST_IN_CHILD(
    adoption, what_is_gone_is_announced_when_no_card_can_be_opened,
    {{{"UCX_GAUDI_DEVICES", "1"}, {"HLTHUNK_EMU_FAULTS", "open=EIO@1"}}, -1})
{
    GAUDI_NEEDS(own_card);
    load_module();
    (void)find_component(); /* has the driver loaded, and hooked */
    raw_card card(0);
    const uint64_t va = card.allocate_mapped(device_page());
    ASSERT_TRUE(close(card.fd()) == 0); /* which no hook sees */
    card.release();
    event_log log;
    ASSERT_EQ(UCS_ERR_BUSY, GAUDI_CALL(ucx_gaudi_open)(nullptr));
    const event_log::line gone{false, va, device_page()};
    ASSERT_TRUE(log.take() == std::vector{gone});
}

TEST_IN_CHILD(adoption, a_forked_child_leaves_the_programs_descriptors_alone)
{
    GAUDI_NEEDS(card_of_a_child);
    raw_card card(0);
    const opened_domain md;
    uct_component_h component = find_component();
    const unsigned fds        = count_open_fds();
    ASSERT_TRUE(passes_forked([&] {
        /* The program's descriptor is its own. */
        ASSERT_TRUE(fcntl(card.fd(), F_GETFD) >= 0);
        ASSERT_EQ(UCS_ERR_UNSUPPORTED, query(component));
    }));
    ASSERT_TRUE(count_open_fds() == fds);
    const uint64_t va = card.allocate_mapped(device_page());
    ASSERT_TRUE(write_text(card, va, "x") == completed);
}

} // namespace

} // namespace gaudi::test
