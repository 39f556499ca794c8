/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that starts other programs, a hundred a second, beside a thread
 * that allocates, exports and frees device memory, and one that moves bytes.
 *
 * usage: ucp_forks SECONDS
 *
 * The time counts from when both are at work. Ends with a signal when one of
 * the three does not get on.
 */
#include "gtest/tools/peer/cases.h"
#include "gtest/tools/peer/check.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

using namespace peer;

namespace {

using clock_type = std::chrono::steady_clock;

constexpr auto interval = std::chrono::milliseconds(10);
/* Each of the threads does something more than once in this time. */
constexpr unsigned patience_s = 30;
/* More than a page of device memory: a block of its own, which the driver
 * unmaps when it is freed. */
constexpr size_t exported_size = 49ul << 20;

std::atomic<bool> over{false};
std::atomic<unsigned long> exports{0};
std::atomic<unsigned long> transfers{0};

void export_and_free(const context &of)
{
    set_case("exports");
    while (!over) {
        const memory shown(of, kind_of_memory::gaudi, exported_size);
        (void)shown.describe();
        ++exports;
    }
}

void move_bytes(const context &of)
{
    worker mine(const_cast<context &>(of), UCS_THREAD_MODE_SINGLE);
    memories here(of, few_sizes);
    memories there(of, few_sizes);
    side myself(mine, 0, mine.address());
    const auto remote = there.open_from(myself);
    while (!over) {
        run_rma({&myself, &here, &myself, &there,
                 [](const transfer &, bool is_over) {
                     transfers += is_over ? 1 : 0;
                 }},
                remote, few_sizes, true);
    }
}

/* Run `true`. */
void start_a_program()
{
    const pid_t child = fork();
    if (child == 0) {
        execl("/bin/true", "true", nullptr);
        _exit(127);
    }
    int status = 0;
    if ((child < 0) || (waitpid(child, &status, 0) != child) || (status != 0)) {
        die("a child", "ended with status " + std::to_string(status));
    }
}

} // namespace

int main(int argc, char **argv)
{
    start_program(patience_s);
    if (argc != 2) {
        die("usage", "ucp_forks SECONDS");
    }
    const std::chrono::seconds duration(atoi(argv[1]));

    context shared({.shared = true});
    std::thread exporter([&] { export_and_free(shared); });
    std::thread mover([&] { move_bytes(shared); });
    unsigned long forks          = 0;
    unsigned long seen_exports   = 0;
    unsigned long seen_transfers = 0;
    auto next                    = clock_type::now();
    auto end                     = clock_type::time_point::max();
    while (clock_type::now() < end) {
        start_a_program();
        ++forks;
        if ((exports != seen_exports) && (transfers != seen_transfers)) {
            seen_exports   = exports;
            seen_transfers = transfers;
            alarm(patience_s);
            end = std::min(end, clock_type::now() + duration);
        }
        next += interval;
        std::this_thread::sleep_until(next);
    }
    over = true;
    exporter.join();
    mover.join();
    std::printf("%lu forks beside %lu exports and %lu transfers\n", forks,
                exports.load(), transfers.load());
    return 0;
}
