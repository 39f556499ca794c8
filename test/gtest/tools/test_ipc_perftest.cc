/* SPDX-License-Identifier: BSD-3-Clause */
/* Stock ucx_perftest over gaudi_copy and gaudi_ipc and nothing else. */
#include "gtest/tools/perftest.h"

#include <array>
#include <iterator>
#include <set>

namespace gaudi::test {

namespace {

constexpr char only_ipc[] = "gaudi_ipc";

const std::vector<const char *> tests = [] {
    std::vector<const char *> all(std::begin(message_tests),
                                  std::end(message_tests));
    all.insert(all.end(), std::begin(rma_tests), std::end(rma_tests));
    return all;
}();
const std::vector<const char *> protos = protocols();
constexpr const char *sizes[]          = {"1",     "8",       "4096",
                                          "65536", "1048576", "268435456"};
const arguments errors[]               = {{}, {"-e"}};
const arguments wakeup[]               = {{}, {"-E", "sleep"}};
const arguments threads[]              = {{},
                                          {"-T", "2", "-M", "multi"},
                                          {"-T", "2", "-M", "serialized"},
                                          {"-T", "4", "-M", "multi"}};

/* What a run is made of: an index into each of the lists above. */
enum dimension {
    of_test,
    of_proto,
    of_memory,
    of_size,
    of_errors,
    of_wakeup,
    of_threads,
    dimensions
};
using combination = std::array<size_t, dimensions>;

const combination choices = {
    tests.size(),      protos.size(),     std::size(memory_pairs),
    std::size(sizes),  std::size(errors), std::size(wakeup),
    std::size(threads)};

bool is_meaningful(const combination &row)
{
    const std::string test = tests[row[of_test]];
    const bool sleeps      = row[of_wakeup] != 0;
    const bool is_largest  = row[of_size] == std::size(sizes) - 1;
    /* Targets of RMA wait for what no event tells of: they sleep for ever, over
     * any transport. */
    const bool oversleeps =
        sleeps && (test.starts_with("ucp_put") || (test == "ucp_get"));
    /* Each thread has memory of that size, twice. Streams have no rendezvous:
     * with more processes than cores, each time that the queue is full takes a
     * time slice, over posix just as well. */
    const bool is_too_much =
        is_largest && ((row[of_threads] != 0) || test.starts_with("stream"));
    return !oversleeps && !is_too_much;
}

std::vector<combination> all_combinations()
{
    std::vector<combination> result;
    combination row{};
    for (;;) {
        if (is_meaningful(row)) {
            result.push_back(row);
        }
        size_t place = 0;
        while ((place < dimensions) && (++row[place] == choices[place])) {
            row[place++] = 0;
        }
        if (place == dimensions) {
            return result;
        }
    }
}

using pair = std::array<size_t, 4>; /* two dimensions, and the value in each */

template <typename Callable>
void for_each_pair(const combination &row, const Callable &call)
{
    for (size_t first = 0; first < dimensions; ++first) {
        for (size_t second = first + 1; second < dimensions; ++second) {
            call(pair{first, second, row[first], row[second]});
        }
    }
}

/* So many of the combinations that every value of each dimension meets every
 * one of each other, where there is such a combination at all: always one that
 * adds most, and of these another one each time. */
std::vector<combination> covering_combinations()
{
    const std::vector<combination> all = all_combinations();
    std::set<pair> missing;
    for (const combination &row : all) {
        for_each_pair(row, [&](const pair &one) { missing.insert(one); });
    }
    std::vector<combination> result;
    constexpr size_t step = 1009; /* a prime: starts everywhere */
    while (!missing.empty()) {
        size_t most             = 0;
        const combination *best = nullptr;
        for (size_t i = 0; i < all.size(); ++i) {
            const combination &row =
                all[(i + result.size() * step) % all.size()];
            size_t added = 0;
            for_each_pair(
                row, [&](const pair &one) { added += missing.count(one); });
            if (added > most) {
                most = added;
                best = &row;
            }
        }
        result.push_back(*best);
        for_each_pair(*best, [&](const pair &one) { missing.erase(one); });
    }
    return result;
}

perftest_case case_of(const combination &row)
{
    perftest_case result{
        tests[row[of_test]],
        memory_pairs[row[of_memory]],
        sizes[row[of_size]],
        only_ipc,
        protos[row[of_proto]],
        joined(joined(errors[row[of_errors]], wakeup[row[of_wakeup]]),
               threads[row[of_threads]])};
    if (row[of_size] == std::size(sizes) - 1) {
        result.iterations = 1;
    }
    return result;
}

const auto generations =
    ::testing::Combine(::testing::ValuesIn(tests), ::testing::ValuesIn(protos));

class ipc_perftest : public perftest,
                     public ::testing::WithParamInterface<generation> {
protected:
    void run_all(const std::vector<combination> &rows) const
    {
        const auto &[test, proto] = GetParam();
        unsigned count            = 0;
        for (const combination &row : rows) {
            const perftest_case what = case_of(row);
            if ((what.test == test) && (what.proto == proto)) {
                expect_success(what);
                ++count;
            }
        }
        EXPECT_GT(count, 0u);
    }
};

using ipc_stress_perftest = ipc_perftest;

class ipc_perftest_alone : public perftest {};

} // namespace

TEST_P(ipc_perftest, runs_in_all_pairs_of_modes)
{
    run_all(covering_combinations());
}

INSTANTIATE_TEST_SUITE_P(of, ipc_perftest, generations, name_of_generation);

TEST_P(ipc_stress_perftest, runs_in_all_modes)
{
    run_all(all_combinations());
}

INSTANTIATE_TEST_SUITE_P(of, ipc_stress_perftest, generations,
                         name_of_generation);

TEST_F(ipc_perftest_alone, runs_to_the_own_worker)
{
    unsigned count = 0;
    for (const char *proto : protos) {
        for (const char *test : tests) {
            const char *where = memory_pairs[count % std::size(memory_pairs)];
            const char *size  = sizes[count % (std::size(sizes) - 1)];
            ++count;
            expect_success_alone({test, where, size, only_ipc, proto});
        }
    }
}

TEST_F(ipc_perftest_alone, atomics_run_on_host_memory)
{
    for (const char *proto : protos) {
        for (const char *test : atomic_tests) {
            for (const char *size : {"4", "8"}) {
                expect_success({test, "host", size, only_ipc, proto});
            }
        }
    }
}

} // namespace gaudi::test
