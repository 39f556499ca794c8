/* SPDX-License-Identifier: BSD-3-Clause */
/* A forked child has no part in what its parent has on the card. */
#include "common/needs.h"
#include "gtest/uct/fixture.h"

#include "common/process_state.h"

#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <link.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

constexpr size_t size = 1 << 20;

using address_range = std::pair<uintptr_t, uintptr_t>;

/* The mappings of this process, or those of them with a flag of smaps. */
std::vector<address_range> mappings(const std::string &flag = "")
{
    std::vector<address_range> found;
    std::ifstream smaps("/proc/self/smaps");
    std::string line;
    address_range current;
    while (std::getline(smaps, line)) {
        unsigned long start;
        unsigned long end;
        if (std::sscanf(line.c_str(), "%lx-%lx ", &start, &end) == 2) {
            current = {start, end};
            if (flag.empty()) {
                found.push_back(current);
            }
        } else if (!flag.empty() && line.starts_with("VmFlags:") &&
                   (line.find(" " + flag + " ") != std::string::npos)) {
            found.push_back(current);
        }
    }
    return found;
}

/* Open file descriptors of cards. */
unsigned count_card_fds()
{
    unsigned count = 0;
    for (int fd = 0; fd < 1024; ++fd) {
        char target[256]       = {};
        const std::string link = "/proc/self/fd/" + std::to_string(fd);
        if ((readlink(link.c_str(), target, sizeof(target) - 1) > 0) &&
            (std::strstr(target, "accel") != nullptr)) {
            ++count;
        }
    }
    return count;
}

class forking : public uct {
protected:
    forking() { fill_pattern(host.data(), size, 1); }

    /* The parent's transfers still work, through staging and without. */
    void expect_working_parent()
    {
        for (uint64_t seed : {11, 12}) {
            fill_pattern(host.data(), size, seed);
            std::optional<registration> registered;
            if (seed == 12) {
                registered.emplace(md, host.data(), size);
            }
            tl->put(host.data(), size, device->remote());
            EXPECT_TRUE(tl->holds(device->remote(), size, seed));
        }
    }

    std::vector<char> host = std::vector<char>(size);
    std::optional<device_buffer> device{std::in_place, md, size};
};

/* Open a card, use it, and close it. */
void use_a_card()
{
    const opened_domain own;
    ASSERT_TRUE(has_card(own));
    transport mine(own);
    device_buffer memory(own, size);
    std::vector<char> from(size);
    fill_pattern(from.data(), size, 5);
    mine.start_put(from.data(), size, memory.remote());
    mine.flush();
    ASSERT_TRUE(mine.holds(memory.remote(), size, 5));
}

} // namespace

TEST_F(forking, the_child_gets_errors_and_the_parent_notices_nothing)
{
    const hlthunk_emu_counters before = engine_hooks::counters();
    std::array<char, 64> bytes{};
    auto *address = reinterpret_cast<uct_iface_addr_t *>(bytes.data());
    ASSERT_EQ(UCS_OK, uct_iface_get_address(tl->iface, address));
    EXPECT_TRUE(uct_iface_is_reachable(tl->iface, nullptr, address));
    EXPECT_TRUE(passes_forked([&] {
        counted_completion done;
        int fd;
        uct_iface_attr_t attr;
        uct_mem_h memh;
        for (const ucs_status_t status :
             {tl->put_short(host.data(), 8, device->remote()),
              tl->get_short(host.data(), 8, device->remote()),
              tl->put_zcopy(host.data(), size, device->remote(), &done),
              uct_iface_flush(tl->iface, 0, nullptr),
              uct_ep_flush(tl->ep, 0, nullptr), uct_ep_fence(tl->ep, 0),
              uct_iface_event_fd_get(tl->iface, &fd),
              uct_iface_event_arm(tl->iface, UCT_EVENT_SEND_COMP),
              uct_iface_query(tl->iface, &attr),
              uct_iface_get_address(tl->iface, address),
              register_memory(md, host.data(), size, memh)}) {
            ASSERT_EQ(UCS_ERR_UNSUPPORTED, status);
        }
        ASSERT_TRUE(tl->progress() == 0);
        /* It is another process to its parent. */
        ASSERT_TRUE(!uct_iface_is_reachable(tl->iface, nullptr, address));
        /* The address is still no host memory. */
        ucs_memory_type_t type;
        ASSERT_EQ(UCS_OK,
                  uct_md_detect_memory_type(md, device->data(), 1, &type));
    }));
    EXPECT_EQ(before.jobs, engine_hooks::counters().jobs);
    expect_working_parent();
}

TEST_F(forking, the_child_cannot_open_ucx)
{
    uct_component_h component = find_component();
    uct_md_config_t *config;
    ASSERT_EQ(UCS_OK, uct_md_config_read(component, nullptr, nullptr, &config));
    const auto refuses = [&] {
        uct_md_h fresh;
        ASSERT_EQ(UCS_ERR_UNSUPPORTED, query(component));
        ASSERT_EQ(UCS_ERR_UNSUPPORTED,
                  uct_md_open(component, "gaudi_copy", config, &fresh));
    };
    EXPECT_TRUE(passes_forked([&] {
        refuses();
        ASSERT_TRUE(passes_forked(refuses)); /* its own child */
    }));
    uct_config_release(config);
    expect_working_parent();
}

TEST_F(forking, the_child_may_clean_up_what_it_inherited)
{
    counted_completion completion;
    registration registered(md, host.data(), size);
    engine_hooks::pause(true);
    tl->start_put(host.data(), size, device->remote(), &completion);
    const hlthunk_emu_counters before = engine_hooks::counters();
    EXPECT_TRUE(passes_forked([&] {
        ASSERT_EQ(UCS_OK, uct_md_mem_dereg(md, registered.memh));
        device.reset();
        tl.reset();
        uct_md_close(md);
        ASSERT_TRUE(completion.calls == 0);
    }));
    const hlthunk_emu_counters after = engine_hooks::counters();
    EXPECT_EQ(before.mappings, after.mappings);
    EXPECT_EQ(before.allocations, after.allocations);
    engine_hooks::pause(false);
    tl->flush();
    EXPECT_EQ(1u, completion.calls);
    EXPECT_TRUE(tl->holds(device->remote(), size, 1));
}

TEST_F(forking, the_child_lets_go_of_the_cards)
{
    GAUDI_NEEDS(own_descriptors);
    ASSERT_LT(0u, count_card_fds());
    EXPECT_TRUE(passes_forked([] { ASSERT_TRUE(count_card_fds() == 0); }));
    EXPECT_LT(0u, count_card_fds());
    expect_working_parent();
}

TEST_F(forking, pinned_memory_is_not_shared)
{
    const auto pinned = mappings("dc");
    ASSERT_FALSE(pinned.empty());
    EXPECT_TRUE(passes_forked([&] {
        for (const auto &[start, end] : mappings()) {
            for (const auto &[pinned_start, pinned_end] : pinned) {
                ASSERT_TRUE((end <= pinned_start) || (start >= pinned_end));
            }
        }
    }));
}

/* Writes make the parent's pages its own again, pinned or not. */
TEST_F(forking, transfers_go_on_while_a_child_lives)
{
    int gate[2];
    ASSERT_EQ(0, pipe2(gate, O_CLOEXEC));
    forked_process child([&] {
        close(gate[1]);
        char letter;
        return static_cast<int>(read(gate[0], &letter, 1));
    });
    expect_working_parent();
    close(gate[1]);
    EXPECT_EQ(0, child.wait().exit_code);
    close(gate[0]);
}

TEST_F(forking, a_program_started_by_the_child_has_no_card)
{
    EXPECT_TRUE(passes_forked([] {
        execl("/bin/sh", "sh", "-c",
              "for fd in /proc/self/fd/*; do readlink $fd; done | "
              "grep -q -e accel -e hlthunk && exit 1; exit 0",
              nullptr);
        FAIL();
    }));
}

TEST_F(forking, the_threads_of_the_parent_are_not_missed)
{
    /* A watcher thread exists, and is asleep on a job of the parent. */
    counted_completion completion;
    engine_hooks::pause(true);
    tl->start_put(host.data(), size, device->remote(), &completion);
    ASSERT_EQ(UCS_OK, uct_iface_event_arm(tl->iface, UCT_EVENT_SEND_COMP));
    EXPECT_TRUE(passes_forked([&] {
        ASSERT_TRUE(count_threads("ucx-gaudi-wait") == 0);
        tl.reset(); /* must not wait for the parent's watcher */
    }));
    engine_hooks::pause(false);
    tl->flush();
    EXPECT_EQ(1u, completion.calls);
}

TEST_IN_CHILD(forking_of_others, the_child_of_who_has_nothing_open_is_like_any,
              {with_cards_of_ucx({})})
{
    load_module();
    (void)find_component();
    ASSERT_TRUE(passes_forked(use_a_card));
    use_a_card();
    /* And of who has closed it all. */
    ASSERT_TRUE(passes_forked([] {
        use_a_card();
        ASSERT_TRUE(passes_forked(use_a_card));
    }));
    use_a_card();
}

/* The dynamic linker has a lock for that which a child finds taken. */
TEST_IN_CHILD(forking_of_others,
              the_child_opens_a_card_whatever_the_linker_was_asked,
              {with_cards_of_ucx({})})
{
    load_module();
    (void)hl();             /* the program has the driver library, */
    (void)find_component(); /* and UCX all of its modules, */
    watch_no_memory();      /* UCM's, too */
    struct {
        std::atomic<bool> looks{false};
        std::atomic<bool> is_over{false};
    } state;
    std::thread looking([&] {
        dl_iterate_phdr(
            [](dl_phdr_info *, size_t, void *arg) {
                auto *here  = static_cast<decltype(state) *>(arg);
                here->looks = true;
                here->looks.notify_all();
                here->is_over.wait(false);
                return 1;
            },
            &state);
    });
    state.looks.wait(false);
    forked_process child([] {
        const opened_domain own;
        GAUDI_CHILD_REQUIRE(has_card(own));
        return 0;
    });
    const int code = child.wait().exit_code;
    state.is_over  = true;
    state.is_over.notify_all();
    looking.join();
    ASSERT_EQ(0, code);
}

} // namespace gaudi::test
