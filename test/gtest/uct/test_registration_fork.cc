/* Registrations, cached ones too, across a fork. */
#include "gtest/uct/fixture.h"

#include "common/process_state.h"

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

namespace fs = std::filesystem;

constexpr size_t size = 1 << 20;

/* UCM's lock is not made anew in a child. A thread that maps memory, as those
 * that start do, has it for moments. */
bool other_threads_sleep()
{
    for (const auto &entry : fs::directory_iterator("/proc/self/task")) {
        const auto thread =
            static_cast<pid_t>(std::stol(entry.path().filename()));
        if ((thread != gettid()) && !is_asleep(thread)) {
            return false;
        }
    }
    return true;
}

/* Result of a body that runs in a forked child: its exit code. */
int in_child(const std::function<int()> &body)
{
    EXPECT_TRUE(eventually(other_threads_sleep));
    return forked_process(body).wait().exit_code;
}

char *map_pages(size_t bytes)
{
    void *mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return (mapped == MAP_FAILED) ? nullptr : static_cast<char *>(mapped);
}

class registration_fork : public uct {
protected:
    void SetUp() override
    {
        uct::SetUp();
        device.emplace(md, size);
        fill_pattern(host.data(), size, 1);
    }

    void use(uint64_t seed)
    {
        registration memh(md, host.data(), size);
        send(seed);
    }

    void send(uint64_t seed)
    {
        fill_pattern(host.data(), size, seed);
        tl->put(host.data(), size, device->remote());
        expect_arrived(seed);
    }

    void expect_arrived(uint64_t seed)
    {
        EXPECT_TRUE(tl->holds(device->remote(), size, seed));
    }

    static uint64_t mappings() { return engine_hooks::counters().mappings; }
    static uint64_t host_maps() { return engine_hooks::counters().host_maps; }

    guarded_buffer host{size};
    std::optional<device_buffer> device;
};

} // namespace

TEST_F(registration_fork, the_cache_is_emptied)
{
    const uint64_t live = mappings();
    const uint64_t maps = host_maps();
    use(1);
    EXPECT_EQ(live + 1, mappings());
    EXPECT_EQ(0, in_child([] { return 0; }));
    EXPECT_EQ(0u, cache_statistic("host/regions"));
    use(2);
    EXPECT_EQ(maps + 2, host_maps());
    EXPECT_EQ(live + 1, mappings()) << "the first mapping has gone";
}

TEST_F(registration_fork, nothing_stays_pinned_until_the_next_registration)
{
    const uint64_t live = mappings();
    use(1);
    ASSERT_EQ(live + 1, mappings());
    EXPECT_EQ(0, in_child([] { return 0; }));
    EXPECT_TRUE(eventually([&] { return mappings() == live; }));
}

TEST_F(registration_fork, nor_does_memory_that_was_unmapped)
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
    const uint64_t misses = cache_statistic("host/misses");
    munmap(memory, size);
    EXPECT_TRUE(eventually([&] { return mappings() == live; }));
    EXPECT_EQ(0u, cache_statistic("host/regions"));
    EXPECT_EQ(misses, cache_statistic("host/misses"));
}

TEST_F(registration_fork, the_cache_can_be_kept)
{
    device.reset();
    reopen_md({{"RCACHE_PURGE_ON_FORK", "n"}});
    device.emplace(md, size);
    const uint64_t maps = host_maps();
    use(1);
    EXPECT_EQ(0, in_child([] { return 0; }));
    use(2);
    EXPECT_EQ(maps + 1, host_maps());
}

TEST_F(registration_fork, what_is_in_use_stays_registered)
{
    const uint64_t maps = host_maps();
    const uint64_t live = mappings();
    {
        registration memh(md, host.data(), size);
        send(1);
        EXPECT_EQ(0, in_child([] { return 0; }));
        send(2);
        EXPECT_EQ(maps + 1, host_maps());
    }
    EXPECT_EQ(live, mappings()) << "it was not cached any more";
}

TEST_F(registration_fork, a_transfer_under_way_ends_well)
{
    counted_completion done;
    engine_hooks::pause(true);
    {
        registration memh(md, host.data(), size);
        tl->start_put(host.data(), size, device->remote(), &done);
    }
    EXPECT_EQ(0, in_child([&] {
                  /* The parent's pages are none of the child's. */
                  fill_pattern(host.data(), size, 77);
                  return 0;
              }));
    engine_hooks::pause(false);
    tl->flush();
    EXPECT_EQ(1u, done.calls);
    expect_arrived(1);
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
    EXPECT_EQ(
        0, in_child([&] {
            /* Unmapped with the parent's handlers of memory events in
             * place, then forked again, by a child that has no part in
             * them. */
            munmap(extra, size);
            const pid_t grandchild = fork();
            if (grandchild == 0) {
                _exit(0);
            }
            int status;
            GAUDI_CHILD_REQUIRE(waitpid(grandchild, &status, 0) == grandchild);
            GAUDI_CHILD_REQUIRE(uct_md_mem_dereg(md, memh) == UCS_OK);
            GAUDI_CHILD_REQUIRE(register_memory(md, &status, 1, memh,
                                                UCT_MD_MEM_FLAG_HIDE_ERRORS) ==
                                UCS_ERR_UNSUPPORTED);
            uct_md_close(md);
            return 0;
        }));
    EXPECT_EQ(before + 1, mappings());
    EXPECT_EQ(UCS_OK, uct_md_mem_dereg(md, memh));
    EXPECT_EQ(before, mappings());
    munmap(extra, size);
}

TEST_F(registration_fork, the_child_has_a_cache_of_its_own)
{
    use(1);
    registration held(md, host.data(), size);
    EXPECT_EQ(0, in_child([&] {
                  const opened_domain own;
                  transport mine(own);
                  device_buffer memory(own, size);
                  for (uint64_t seed = 1; seed < 4; ++seed) {
                      registration memh(own, host.data(), size);
                      fill_pattern(host.data(), size, seed);
                      mine.start_put(host.data(), size, memory.remote());
                      mine.flush();
                      GAUDI_CHILD_REQUIRE(
                          mine.holds(memory.remote(), size, seed));
                  }
                  GAUDI_CHILD_REQUIRE(engine_hooks::counters().host_maps != 0);
                  return 0;
              }));
    expect_arrived(1);
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
