/* A forked child has no part in what its parent has on the card. */
#include "gtest/uct/fixture.h"

#include "common/child.h"
#include "common/framework.h"
#include "common/process_state.h"

#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

constexpr size_t size     = 1 << 20;
constexpr unsigned life_s = 30;

/* Fork; the child runs a body, and its result is the child's exit code. */
class forked {
public:
    template <typename Body>
    explicit forked(Body &&body) : pid_(fork())
    {
        if (pid_ == 0) {
            alarm(life_s);
            _exit(body());
        }
    }
    ~forked()
    {
        if (pid_ > 0) {
            wait();
        }
    }
    forked(const forked &)            = delete;
    forked &operator=(const forked &) = delete;

    int wait()
    {
        int status = 0;
        EXPECT_EQ(pid_, waitpid(pid_, &status, 0));
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }

private:
    pid_t pid_;
};

/* Exit code of a child that only looks around: the line of what failed. */
#define EXPECT_IN_CHILD(_condition)                                            \
    do {                                                                       \
        if (!(_condition)) {                                                   \
            std::fprintf(stderr, "%s:%d: child: failed: %s\n", __FILE__,       \
                         __LINE__, #_condition);                               \
            return 1;                                                          \
        }                                                                      \
    } while (false)

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
    void SetUp() override
    {
        uct::SetUp();
        device = std::make_unique<device_buffer>(md, size);
        fill_pattern(host.data(), size, 1);
    }

    void TearDown() override
    {
        device.reset();
        uct::TearDown();
    }

    /* The parent's transfers still work, through staging and without. */
    void expect_working_parent()
    {
        std::vector<char> back(size);
        for (uint64_t seed : {11, 12}) {
            fill_pattern(host.data(), size, seed);
            std::unique_ptr<registration> registered;
            if (seed == 12) {
                registered =
                    std::make_unique<registration>(md, host.data(), size);
            }
            counted_completion completion;
            ASSERT_EQ(UCS_INPROGRESS,
                      tl->put_zcopy(host.data(), size, device->remote(),
                                    &completion));
            tl->flush();
            EXPECT_EQ(UCS_OK, completion.status);
            tl->read_back(back.data(), device->remote(), size);
            EXPECT_TRUE(has_pattern(back.data(), size, seed));
        }
    }

    std::unique_ptr<device_buffer> device;
    std::vector<char> host = std::vector<char>(size);
};

} // namespace

TEST_F(forking, the_child_gets_errors_and_the_parent_notices_nothing)
{
    const hlthunk_emu_counters before = engine_hooks::counters();
    forked child([&] {
        counted_completion completion;
        int fd;
        EXPECT_IN_CHILD(uct_ep_put_short(tl->ep, host.data(), 8,
                                         device->remote(), UCT_INVALID_RKEY) ==
                        UCS_ERR_UNSUPPORTED);
        EXPECT_IN_CHILD(uct_ep_get_short(tl->ep, host.data(), 8,
                                         device->remote(), UCT_INVALID_RKEY) ==
                        UCS_ERR_UNSUPPORTED);
        EXPECT_IN_CHILD(tl->put_zcopy(host.data(), size, device->remote(),
                                      &completion) == UCS_ERR_UNSUPPORTED);
        EXPECT_IN_CHILD(tl->progress() == 0);
        EXPECT_IN_CHILD(uct_iface_flush(tl->iface, 0, nullptr) == UCS_OK);
        EXPECT_IN_CHILD(uct_ep_flush(tl->ep, 0, nullptr) == UCS_OK);
        EXPECT_IN_CHILD(uct_iface_event_fd_get(tl->iface, &fd) !=
                        UCS_ERR_UNSUPPORTED);
        EXPECT_IN_CHILD(uct_iface_event_arm(tl->iface, UCT_EVENT_SEND_COMP) ==
                        UCS_OK);
        uct_mem_h memh;
        EXPECT_IN_CHILD(uct_md_mem_reg(md, host.data(), size,
                                       UCT_MD_MEM_ACCESS_ALL,
                                       &memh) == UCS_ERR_UNSUPPORTED);
        /* The address is still no host memory. */
        ucs_memory_type_t type;
        EXPECT_IN_CHILD(
            uct_md_detect_memory_type(md, device->data(), 1, &type) == UCS_OK);
        return 0;
    });
    EXPECT_EQ(0, child.wait());
    EXPECT_EQ(before.jobs, engine_hooks::counters().jobs);
    expect_working_parent();
}

TEST_F(forking, the_child_may_clean_up_what_it_inherited)
{
    counted_completion completion;
    registration registered(md, host.data(), size);
    engine_hooks::pause(true);
    ASSERT_EQ(UCS_INPROGRESS,
              tl->put_zcopy(host.data(), size, device->remote(), &completion));
    const hlthunk_emu_counters before = engine_hooks::counters();
    forked child([&] {
        EXPECT_IN_CHILD(uct_md_mem_dereg(md, registered.memh) == UCS_OK);
        device.reset();
        tl.reset();
        uct_md_close(md);
        EXPECT_IN_CHILD(completion.calls == 0);
        return 0;
    });
    EXPECT_EQ(0, child.wait());
    const hlthunk_emu_counters after = engine_hooks::counters();
    EXPECT_EQ(before.mappings, after.mappings);
    EXPECT_EQ(before.allocations, after.allocations);
    engine_hooks::pause(false);
    tl->flush();
    EXPECT_EQ(1u, completion.calls);
    std::vector<char> back(size);
    tl->read_back(back.data(), device->remote(), size);
    EXPECT_TRUE(has_pattern(back.data(), size, 1));
}

TEST_F(forking, the_child_lets_go_of_the_cards)
{
    ASSERT_LT(0u, count_card_fds());
    forked child([] {
        EXPECT_IN_CHILD(count_card_fds() == 0);
        return 0;
    });
    EXPECT_EQ(0, child.wait());
    EXPECT_LT(0u, count_card_fds());
    expect_working_parent();
}

TEST_F(forking, the_child_can_open_a_card_of_its_own)
{
    forked child([] {
        uct_md_h own;
        EXPECT_IN_CHILD(open_md(own) == UCS_OK);
        {
            transport mine(own);
            device_buffer memory(own, size);
            std::vector<char> from(size);
            std::vector<char> to(size);
            fill_pattern(from.data(), size, 5);
            counted_completion completion;
            EXPECT_IN_CHILD(mine.put_zcopy(from.data(), size, memory.remote(),
                                           &completion) == UCS_INPROGRESS);
            mine.flush();
            mine.read_back(to.data(), memory.remote(), size);
            EXPECT_IN_CHILD(from == to);
        }
        uct_md_close(own);
        return 0;
    });
    EXPECT_EQ(0, child.wait());
    expect_working_parent();
}

TEST_F(forking, pinned_memory_is_not_shared)
{
    const auto pinned = mappings("dc");
    ASSERT_FALSE(pinned.empty());
    forked child([&] {
        for (const auto &[start, end] : mappings()) {
            for (const auto &[pinned_start, pinned_end] : pinned) {
                EXPECT_IN_CHILD((end <= pinned_start) || (start >= pinned_end));
            }
        }
        return 0;
    });
    EXPECT_EQ(0, child.wait());
}

TEST_F(forking, transfers_go_on_while_a_child_lives)
{
    int gate[2];
    ASSERT_EQ(0, pipe2(gate, O_CLOEXEC));
    forked child([&] {
        close(gate[1]);
        char letter;
        return static_cast<int>(read(gate[0], &letter, 1));
    });
    /* Writes make the parent's pages its own again, pinned or not. */
    expect_working_parent();
    close(gate[1]);
    EXPECT_EQ(0, child.wait());
    close(gate[0]);
    expect_working_parent();
}

TEST_F(forking, a_program_started_by_the_child_has_no_card)
{
    forked child([] {
        execl("/bin/sh", "sh", "-c",
              "for fd in /proc/self/fd/*; do readlink $fd; done | "
              "grep -q -e accel -e hlthunk && exit 1; exit 0",
              nullptr);
        return 127;
    });
    EXPECT_EQ(0, child.wait());
}

TEST_F(forking, the_threads_of_the_parent_are_not_missed)
{
    /* A watcher thread exists, and is asleep on a job of the parent. */
    counted_completion completion;
    engine_hooks::pause(true);
    ASSERT_EQ(UCS_INPROGRESS,
              tl->put_zcopy(host.data(), size, device->remote(), &completion));
    ASSERT_EQ(UCS_OK, uct_iface_event_arm(tl->iface, UCT_EVENT_SEND_COMP));
    forked child([&] {
        EXPECT_IN_CHILD(count_threads("ucx-gaudi-wait") == 0);
        if (!has_one_card()) { /* which is the parent's */
            uct_md_h own;
            EXPECT_IN_CHILD(open_md(own) == UCS_OK);
            {
                transport mine(own);
                device_buffer memory(own, size);
                counted_completion done;
                int fd;
                EXPECT_IN_CHILD(uct_iface_event_fd_get(mine.iface, &fd) ==
                                UCS_OK);
                EXPECT_IN_CHILD(mine.put_zcopy(host.data(), size,
                                               memory.remote(),
                                               &done) == UCS_INPROGRESS);
                (void)uct_iface_event_arm(mine.iface, UCT_EVENT_SEND_COMP);
                mine.flush();
                EXPECT_IN_CHILD(done.calls == 1);
            }
            uct_md_close(own);
        }
        tl.reset(); /* must not wait for the parent's watcher */
        return 0;
    });
    EXPECT_EQ(0, child.wait());
    engine_hooks::pause(false);
    tl->flush();
    EXPECT_EQ(1u, completion.calls);
}

TEST_F(forking, a_child_is_another_process_to_its_parent)
{
    std::vector<char> address(tl->attr.iface_addr_len);
    auto *parent = reinterpret_cast<uct_iface_addr_t *>(address.data());
    ASSERT_EQ(UCS_OK, uct_iface_get_address(tl->iface, parent));
    EXPECT_TRUE(uct_iface_is_reachable(tl->iface, nullptr, parent));
    forked child([&] {
        EXPECT_IN_CHILD(!uct_iface_is_reachable(tl->iface, nullptr, parent));
        return 0;
    });
    EXPECT_EQ(0, child.wait());
}

/* The dynamic linker has a lock for that which a child finds taken. */
TEST(forking_of_others, the_child_opens_a_card_whatever_the_linker_was_asked)
{
    const child_result result = run_child(
        "forks_while_a_thread_looks_at_libraries", {with_cards_of_ucx({}), -1});
    EXPECT_EQ(0, result.exit_code) << result.error;
}

GAUDI_CHILD(forks_while_a_thread_looks_at_libraries)
{
    load_module();
    (void)hl();             /* the program has the driver library, */
    (void)find_component(); /* and UCX all of its modules */
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
    forked child([] {
        uct_md_h md;
        EXPECT_IN_CHILD(open_md(md) == UCS_OK);
        EXPECT_IN_CHILD(has_card(md));
        uct_md_close(md);
        return 0;
    });
    const int code = child.wait();
    state.is_over  = true;
    state.is_over.notify_all();
    looking.join();
    return code;
}

} // namespace gaudi::test
