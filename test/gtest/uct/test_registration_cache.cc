/* SPDX-License-Identifier: BSD-3-Clause */
/* Registrations of host memory that outlive their users, and processes. */
#include "gtest/uct/fixture.h"

#include "common/process_state.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include <config.h>
#include <ucm/api/ucm.h>
}

namespace gaudi::test {

namespace {

constexpr size_t page = 4096;

/* Pages of its own, at an address that can be taken again. */
class pages {
public:
    /** With the pattern of a seed. */
    explicit pages(size_t count, uint64_t seed = 1, void *at = nullptr)
        : size_(count * page)
    {
        const int fixed = (at == nullptr) ? 0 : MAP_FIXED_NOREPLACE;
        void *mapped    = mmap(at, size_, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
        if (mapped == MAP_FAILED) {
            std::abort();
        }
        data_ = static_cast<char *>(mapped);
        fill(seed);
    }
    ~pages() { munmap(data_, size_); }
    pages(const pages &)            = delete;
    pages &operator=(const pages &) = delete;

    [[nodiscard]] char *data() const { return data_; }
    [[nodiscard]] size_t size() const { return size_; }
    void fill(uint64_t seed) const { fill_pattern(data_, size_, seed); }

private:
    char *data_;
    size_t size_;
};

/* The same address, other contents. */
void map_anew(std::unique_ptr<pages> &host)
{
    void *const address = host->data();
    host.reset();
    host = std::make_unique<pages>(4, 2, address);
}

class registration_cache : private with_mapped_host_memory, public uct {
protected:
    void with(const variables &changes)
    {
        device.reset();
        reopen_md(changes);
        device.emplace(md, device_size);
    }

    /* Send memory to the card and look at what arrived. */
    void send(char *data, size_t size, uint64_t seed)
    {
        tl->put(data, size, device->remote());
        EXPECT_TRUE(tl->holds(device->remote(), size, seed));
    }

    void send(const pages &host, uint64_t seed)
    {
        send(host.data(), host.size(), seed);
    }

    /* The same, with a handle. */
    void send(const pages &host, uint64_t seed, const registration &memh)
    {
        counted_completion done;
        ASSERT_EQ(UCS_INPROGRESS,
                  tl->put_zcopy(host.data(), host.size(), device->remote(),
                                &done, memh.memh));
        tl->flush();
        EXPECT_EQ(UCS_OK, done.status);
        EXPECT_TRUE(tl->holds(device->remote(), host.size(), seed));
    }

    static uint64_t mappings() { return engine_hooks::counters().mappings; }
    static uint64_t host_maps() { return engine_hooks::counters().host_maps; }

    static constexpr size_t device_size = 1 << 20;
    std::optional<device_buffer> device{std::in_place, md, device_size};
};

} // namespace

TEST_F(registration_cache, a_hit_makes_no_driver_call)
{
    pages host(4);
    const uint64_t maps = host_maps();
    const uint64_t live = mappings();
    for (unsigned round = 0; round < 100; ++round) {
        registration memh(md, host.data() + round, host.size() - round);
        send(host, 1);
    }
    EXPECT_EQ(maps + 1, host_maps());
    EXPECT_EQ(live + 1, mappings());
    EXPECT_EQ(1u, cache_statistic("host/misses"));
    EXPECT_EQ(99u, cache_statistic("host/hits"));
    EXPECT_EQ(1u, cache_statistic("host/regions"));
    EXPECT_EQ(host.size(), cache_statistic("host/bytes"));
}

TEST_F(registration_cache, what_cannot_be_mapped_spoils_no_neighbour)
{
    pages host(3);
    ASSERT_EQ(0, mprotect(host.data(), page, PROT_READ));
    registration half(md, host.data(), 2 * page);
    const uint64_t maps = host_maps();
    {
        /* Merged with the first one it could not be mapped. */
        registration good(md, host.data() + page, 2 * page);
        fill_pattern(host.data() + page, 2 * page, 2);
        send(host.data() + page, 2 * page, 2);
        EXPECT_EQ(maps + 1, host_maps());
    }
    fill_pattern(host.data() + page, page, 1, page);
    send(host.data(), 2 * page, 1);
    EXPECT_EQ(maps + 1, host_maps()) << "it is staged";
}

TEST_F(registration_cache, what_could_not_be_mapped_is_tried_again)
{
    pages host(2);
    ASSERT_EQ(0, mprotect(host.data(), host.size(), PROT_READ));
    const uint64_t maps = host_maps();
    {
        registration memh(md, host.data(), host.size());
        send(host, 1);
    }
    EXPECT_EQ(maps, host_maps());
    EXPECT_EQ(0u, cache_statistic("host/regions"));
    ASSERT_EQ(0, mprotect(host.data(), host.size(), PROT_READ | PROT_WRITE));
    registration memh(md, host.data(), host.size());
    send(host, 1);
    EXPECT_EQ(maps + 1, host_maps());
}

TEST_F(registration_cache, memory_mapped_anew_is_never_served_from_the_old)
{
    auto host = std::make_unique<pages>(4);
    {
        registration memh(md, host->data(), host->size());
        send(*host, 1);
    }
    const uint64_t maps = host_maps();
    const uint64_t live = mappings();
    map_anew(host);
    send(*host, 2);
    EXPECT_EQ(maps, host_maps()) << "not registered: it is staged";
    {
        registration memh(md, host->data(), host->size());
        EXPECT_EQ(live - 1, mappings()) << "the old one is unmapped";
        send(*host, 2);
    }
    EXPECT_EQ(maps + 1, host_maps());
    EXPECT_EQ(2u, cache_statistic("host/misses"));
    EXPECT_EQ(1u, cache_statistic("host/invalidations"));
}

TEST_F(registration_cache, memory_unmapped_while_registered_is_forgotten)
{
    auto host = std::make_unique<pages>(4);
    registration memh(md, host->data(), host->size());
    send(*host, 1);
    const uint64_t maps = host_maps();
    map_anew(host);
    send(*host, 2);
    send(*host, 2, memh);
    EXPECT_EQ(maps, host_maps()) << "it is staged";
}

TEST_F(registration_cache, a_range_that_leaves_its_registration_is_staged)
{
    pages host(4);
    registration half(md, host.data(), 2 * page);
    send(host, 1);
}

TEST_F(registration_cache, a_transfer_keeps_its_mapping_to_the_end)
{
    pages host(4);
    const uint64_t live = mappings();
    counted_completion done;
    {
        registration memh(md, host.data(), host.size());
        engine_hooks::pause(true);
        tl->start_put(host.data(), host.size(), device->remote(), &done);
    }
    drop_idle_registrations(md);
    EXPECT_TRUE(eventually([&] { return mappings() <= live + 1; }));
    EXPECT_EQ(live + 1, mappings());
    engine_hooks::pause(false);
    tl->flush();
    EXPECT_EQ(UCS_OK, done.status);
    EXPECT_EQ(live, mappings());
}

TEST_F(registration_cache, regions_make_room_for_others)
{
    with({{"RCACHE_MAX_REGIONS", "4"}});
    pages host(20);
    const uint64_t live = mappings();
    for (size_t i = 0; i < 20; i += 2) {
        fill_pattern(host.data() + i * page, page, i);
        registration memh(md, host.data() + i * page, page);
        send(host.data() + i * page, page, i);
        EXPECT_GE(4u, cache_statistic("host/regions"));
        EXPECT_GE(live + 4, mappings());
    }
    EXPECT_EQ(6u, cache_statistic("host/evictions"));
    EXPECT_EQ(0u, cache_statistic("host/invalidations"));
}

TEST_F(registration_cache, it_can_be_left_out)
{
    with({{"RCACHE", "n"}});
    pages host(4);
    const uint64_t maps = host_maps();
    const uint64_t live = mappings();
    for (unsigned round = 1; round <= 3; ++round) {
        {
            registration memh(md, host.data(), host.size());
            send(host, 1);
            EXPECT_EQ(maps + round - 1, host_maps()) << "without its handle";
            send(host, 1, memh);
            send(host, 1, memh);
            EXPECT_EQ(maps + round, host_maps());
        }
        EXPECT_EQ(live, mappings());
    }
    EXPECT_EQ(0u, cache_statistic("host/misses"));
}

namespace {

/* UCX_MEM_EVENTS=n, for a time. */
class without_memory_events {
public:
    without_memory_events() : saved_(ucm_global_opts)
    {
        ucm_global_opts.enable_events = 0;
    }
    ~without_memory_events() { ucm_global_opts = saved_; }
    without_memory_events(const without_memory_events &)            = delete;
    without_memory_events &operator=(const without_memory_events &) = delete;

private:
    ucm_global_config_t saved_;
};

} // namespace

TEST_F(registration_cache, without_memory_events_there_is_none)
{
    without_memory_events scope;
    with({});
    auto host           = std::make_unique<pages>(4);
    const uint64_t live = mappings();
    {
        registration memh(md, host->data(), host->size());
        send(*host, 1, memh);
        EXPECT_EQ(live + 1, mappings());
    }
    EXPECT_EQ(live, mappings());
    EXPECT_EQ(0u, cache_statistic("host/misses"));

    map_anew(host);
    registration memh(md, host->data(), host->size());
    send(*host, 2);
}

TEST_F(registration_cache, who_insists_on_it_gets_an_error_without_events)
{
    device.reset();
    tl.reset();
    uct_md_close(md);
    {
        without_memory_events scope;
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, open_md(md, {{"RCACHE", "y"}}));
    }
    EXPECT_THAT(take_logs(), ::testing::Contains(::testing::StartsWith(
                                 "gaudi: no registration cache can be made")));
    ASSERT_EQ(UCS_OK, open_md(md, {{"RCACHE", "y"}}));
    tl = std::make_unique<transport>(md);
}

TEST_F(registration_cache, is_one_for_all_domains)
{
    opened_domain second;
    pages host(4);
    const uint64_t maps = host_maps();
    for (uct_md_h domain : {md, uct_md_h{second}, md}) {
        registration memh(domain, host.data(), host.size());
        send(host, 1);
    }
    EXPECT_EQ(maps + 1, host_maps());
    second.close();
    EXPECT_EQ(2u, cache_statistic("host/hits"));
}

/* Of its own: its cards stay open while registrations are left. */
GAUDI_CHILD(closes_with_registrations_left)
{
    load_module();
    collect_logs();
    uct_md_h own;
    uct_mem_h memh;
    char byte;
    EXPECT_EQ(UCS_OK, open_md(own));
    uct_md_close(own);
    const unsigned fds = count_open_fds();
    EXPECT_EQ(UCS_OK, open_md(own));
    EXPECT_EQ(UCS_OK, register_memory(own, &byte, 1, memh));
    uct_md_close(own);
    const auto logs = take_logs();
    GAUDI_CHILD_REQUIRE(logs.size() == 1);
    EXPECT_THAT(logs[0], ::testing::HasSubstr("1 registrations"));
    uct_md_h again;
    EXPECT_EQ(UCS_OK, open_md(again));
    EXPECT_EQ(UCS_OK, uct_md_mem_dereg(again, memh));
    uct_md_close(again);
    EXPECT_EQ(fds, count_open_fds()) << "the cards are closed, too";
    GAUDI_CHILD_REQUIRE_NO_FAILURE();
    _exit(0); /* libucs leaks what was left, which a sanitizer would tell */
}

TEST_F(registration_cache, closing_with_registrations_left_is_survived)
{
    EXPECT_TRUE(child_passes("closes_with_registrations_left"));
}

/* --- across a fork ---------------------------------------------------------
 */

namespace {

char *map_pages(size_t bytes)
{
    void *mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return (mapped == MAP_FAILED) ? nullptr : static_cast<char *>(mapped);
}

class registration_fork : public registration_cache {
protected:
    void use(uint64_t seed)
    {
        registration memh(md, host.data(), size);
        send(seed);
    }

    void send(uint64_t seed)
    {
        fill_pattern(host.data(), size, seed);
        registration_cache::send(host.data(), size, seed);
    }

    static constexpr size_t size = device_size;
    guarded_buffer host{size};
};

} // namespace

TEST_F(registration_fork, the_cache_is_emptied)
{
    const uint64_t live = mappings();
    const uint64_t maps = host_maps();
    use(1);
    EXPECT_EQ(live + 1, mappings());
    EXPECT_TRUE(passes_forked([] {}));
    EXPECT_EQ(0u, cache_statistic("host/regions"));
    EXPECT_EQ(live, mappings());
    use(2);
    EXPECT_EQ(maps + 2, host_maps());
    EXPECT_EQ(live + 1, mappings());
}

TEST_F(registration_fork, memory_that_was_unmapped_stays_pinned_until_a_miss)
{
    const uint64_t live = mappings();
    char *memory        = map_pages(size);
    ASSERT_NE(nullptr, memory);
    {
        registration memh(md, memory, size);
        ASSERT_EQ(UCS_OK, uct_md_mem_advise(md, memh.memh, memory, size,
                                            UCT_MADV_WILLNEED));
    }
    ASSERT_EQ(live + 1, mappings());
    munmap(memory, size);
    EXPECT_EQ(live + 1, mappings());
    char any;
    registration next(md, &any, 1);
    EXPECT_EQ(live, mappings());
    EXPECT_EQ(1u, cache_statistic("host/regions"));
}

TEST_F(registration_fork, much_memory_that_was_unmapped_does_not_stay_pinned)
{
    const uint64_t live        = mappings();
    constexpr size_t much      = size_t{65} << 20;
    constexpr unsigned regions = 2; /* the second munmap finds the first's */
    char *memory[regions];
    for (char *&each : memory) {
        each = map_pages(much);
        ASSERT_NE(nullptr, each);
        registration memh(md, each, much);
        ASSERT_EQ(UCS_OK, uct_md_mem_advise(md, memh.memh, each, much,
                                            UCT_MADV_WILLNEED));
    }
    EXPECT_EQ(live + regions, mappings());
    for (char *each : memory) {
        munmap(each, much);
    }
    EXPECT_TRUE(eventually([&] { return mappings() < live + regions; }));
}

TEST_F(registration_fork, what_is_in_use_stays_registered)
{
    const uint64_t maps = host_maps();
    const uint64_t live = mappings();
    {
        registration memh(md, host.data(), size);
        send(1);
        EXPECT_TRUE(passes_forked([] {}));
        send(2);
        EXPECT_EQ(maps + 1, host_maps());
    }
    EXPECT_EQ(live, mappings()) << "it was not cached any more";
}

TEST_F(registration_fork, a_transfer_under_way_ends_well)
{
    counted_completion done;
    fill_pattern(host.data(), size, 1);
    engine_hooks::pause(true);
    {
        registration memh(md, host.data(), size);
        tl->start_put(host.data(), size, device->remote(), &done);
    }
    EXPECT_TRUE(passes_forked([&] {
        /* The parent's pages are none of the child's. */
        fill_pattern(host.data(), size, 77);
    }));
    engine_hooks::pause(false);
    tl->flush();
    EXPECT_EQ(1u, done.calls);
    EXPECT_TRUE(tl->holds(device->remote(), size, 1));
    use(2);
}

TEST_F(registration_fork, the_child_leaves_what_the_parent_has)
{
    char *extra = map_pages(size);
    ASSERT_NE(nullptr, extra);
    const uint64_t before = mappings();
    uct_mem_h memh;
    ASSERT_EQ(UCS_OK, register_memory(md, extra, size, memh));
    ASSERT_EQ(UCS_OK,
              uct_md_mem_advise(md, memh, extra, size, UCT_MADV_WILLNEED));
    EXPECT_TRUE(passes_forked([&] {
        /* Unmapped with the parent's handlers of memory events in
         * place, then forked again, by a child that has no part in
         * them. */
        munmap(extra, size);
        const pid_t grandchild = fork();
        if (grandchild == 0) {
            _exit(0);
        }
        int status;
        ASSERT_TRUE(waitpid(grandchild, &status, 0) == grandchild);
        ASSERT_EQ(UCS_OK, uct_md_mem_dereg(md, memh));
        ASSERT_EQ(
            UCS_ERR_UNSUPPORTED,
            register_memory(md, &status, 1, memh, UCT_MD_MEM_FLAG_HIDE_ERRORS));
        uct_md_close(md);
    }));
    EXPECT_EQ(before + 1, mappings());
    EXPECT_EQ(UCS_OK, uct_md_mem_dereg(md, memh));
    EXPECT_EQ(before, mappings());
    munmap(extra, size);
}

TEST_F(registration_fork, threads_that_register_meanwhile_hang_no_child)
{
    std::atomic<bool> stop{false};
    std::thread other([&] {
        while (!stop) {
            char *memory = map_pages(65536);
            {
                registration memh(md, memory, 65536);
            }
            munmap(memory, 65536);
        }
    });
    for (unsigned round = 0; round < 30; ++round) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);
            /* Nothing but what a child of a threaded program may do. */
            const pid_t grandchild = fork();
            if (grandchild == 0) {
                _exit(0);
            }
            int status;
            _exit(waitpid(grandchild, &status, 0) == grandchild ? 0 : 1);
        }
        int status = 0;
        EXPECT_EQ(child, waitpid(child, &status, 0));
        EXPECT_TRUE(WIFEXITED(status)) << "round " << round;
    }
    stop = true;
    other.join();
}

} // namespace gaudi::test
