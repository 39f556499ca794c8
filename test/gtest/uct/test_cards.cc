/* SPDX-License-Identifier: BSD-3-Clause */
/* Several cards in one process. */
#include "gtest/uct/fixture.h"

#include "common/process_state.h"

#include <array>
#include <iterator>
#include <numeric>

extern "C" {
#include <config.h>
#include <ucs/sys/topo/base/topo.h>
}

namespace gaudi::test {

namespace {

constexpr size_t size         = 100000;
constexpr unsigned card_count = 3;

/* A child in which UCX opens all cards of a box. */
child_options all_cards_with(const child_environment &changes)
{
    child_options options{{{"UCX_GAUDI_DEVICES", "all"},
                           {"HLTHUNK_EMU_DEVICES", std::to_string(card_count)}},
                          -1};
    options.environment.insert(options.environment.end(), changes.begin(),
                               changes.end());
    return options;
}

const child_options all_cards = all_cards_with({});

/* Engine counters of every card, by index. */
std::array<hlthunk_emu_counters, card_count> counters()
{
    return {engine_hooks::counters_of(0), engine_hooks::counters_of(1),
            engine_hooks::counters_of(2)};
}

/* Memory of a card of choice. */
struct card_memory : device_buffer {
    card_memory(uct_md_h md, unsigned card, size_t bytes = size)
        : device_buffer(md, bytes, window_of_card(card)),
          sys_dev(query_memory(md, address, bytes).sys_dev)
    {}

    const ucs_sys_device_t sys_dev;
};

} // namespace

TEST_IN_CHILD(cards, an_operation_goes_to_the_card_that_owns_the_address,
              all_cards)
{
    GAUDI_NEEDS(second_card);
    const opened_domain md;
    transport tl(md); /* of the first card */
    std::vector<char> from(size);
    std::vector<char> to(size);
    for (unsigned i = 0; i < card_count; ++i) {
        card_memory memory(md, i);
        const std::string name = "gaudi" + std::to_string(i);
        ASSERT_TRUE(name == ucs_topo_sys_device_get_name(memory.sys_dev));

        fill_pattern(from.data(), size, i);
        tl.put(from.data(), size, memory.remote());
        tl.get(to.data(), size, memory.remote());
        ASSERT_TRUE(from == to);

        const auto moved = counters();
        for (unsigned other = 0; other < card_count; ++other) {
            const uint64_t expected = (other <= i) ? size : 0;
            ASSERT_TRUE(moved[other].host_to_device_bytes == expected);
            ASSERT_TRUE(moved[other].device_to_host_bytes == expected);
        }
    }
}

/* Copy to another card by a blocking operation, or without. */
void copy_to_card(transport &tl, bool blocking, void *from, size_t length,
                  uint64_t to)
{
    if (blocking) {
        ASSERT_EQ(UCS_OK, tl.put_short(from, length, to));
    } else {
        tl.put(from, length, to);
    }
}

/* Which engines copy within a card: some are missing, or all. */
TEST(within_a_card, a_copy_takes_an_engine_that_is_there)
{
    GAUDI_NEEDS(own_submissions);
    for (const char *mask : {"0xff", "0x7f", "0xfc", "0x80", "0"}) {
        EXPECT_TRUE(child_passes("copies_within_a_card",
                                 all_cards_with({{"HLTHUNK_EMU_EDMA", mask}})))
            << mask;
    }
}

GAUDI_CHILD(copies_within_a_card)
{
    constexpr size_t length = (5 << 20) - 3;
    const bool has_engine = std::string(std::getenv("HLTHUNK_EMU_EDMA")) != "0";
    const opened_domain md;
    transport tl(md, {{"STAGING_COUNT", "4"}, {"STAGING_CHUNK", "64K"}});
    card_memory source(md, 1, length);
    card_memory target(md, 1, length);
    std::vector<char> data(length);
    for (const bool blocking : {false, true}) {
        fill_pattern(data.data(), length, blocking);
        EXPECT_EQ(UCS_OK, tl.put_short(data.data(), length, source.remote(0)));
        const auto before = counters()[1];
        copy_to_card(tl, blocking, source.data(), length, target.remote(0));
        const auto after = counters()[1];
        GAUDI_CHILD_REQUIRE(after.device_to_device_bytes -
                                before.device_to_device_bytes ==
                            (has_engine ? length : 0));
        GAUDI_CHILD_REQUIRE(after.device_to_host_bytes -
                                before.device_to_host_bytes ==
                            (has_engine ? 0 : length));
        EXPECT_TRUE(tl.holds(target.remote(0), length, blocking));
    }
    return 0;
}

/* All cards send to all others at once, with blocking copies between and a
 * fence behind which the last round reads what the first one wrote. */
TEST_IN_CHILD(between_cards, many_copies_get_there_in_order, all_cards)
{
    constexpr size_t part    = 150000;
    constexpr unsigned count = 60;
    const opened_domain md;
    transport tl(md, {{"STAGING_COUNT", "5"}, {"STAGING_CHUNK", "16K"}});
    std::vector<std::unique_ptr<card_memory>> memory;
    for (unsigned i = 0; i < card_count; ++i) {
        memory.push_back(
            std::make_unique<card_memory>(md, i, part * count * 2));
    }
    std::vector<char> data(part * count);
    fill_pattern(data.data(), data.size(), 7);
    ASSERT_EQ(UCS_OK,
              tl.put_short(data.data(), data.size(), memory[0]->remote()));
    counted_completion done;
    unsigned started = 0;
    const auto send  = [&](const card_memory &from, const card_memory &to,
                          size_t offset) {
        ++done.count;
        while (tl.put_zcopy(from.data() + offset, part, to.remote(offset),
                             &done) == UCS_ERR_NO_RESOURCE) {
            tl.progress();
        }
        ++started;
    };
    for (unsigned i = 0; i < count; ++i) {
        send(*memory[0], *memory[1], i * part);
        if (i % 16 == 0) {
            ASSERT_EQ(UCS_OK, tl.put_short(memory[0]->data() + i * part, 1000,
                                           memory[2]->remote(part * count)));
        }
    }
    ASSERT_EQ(UCS_OK, uct_iface_fence(tl.iface, 0));
    for (unsigned i = 0; i < count; ++i) {
        send(*memory[1], *memory[2], i * part);
    }
    ASSERT_TRUE(started == 2 * count);
    tl.flush();
    std::vector<char> seen(data.size());
    tl.read_device(seen.data(), memory[2]->remote(), seen.size());
    ASSERT_TRUE(seen == data);
}

TEST_IN_CHILD(between_cards, a_copy_wakes_who_waits, all_cards)
{
    const opened_domain md;
    transport tl(md, {{"STAGING_COUNT", "4"}, {"STAGING_CHUNK", "256K"}});
    card_memory source(md, 1, 8 << 20);
    card_memory target(md, 2, 8 << 20);
    counted_completion done;
    tl.start_put(source.data(), 8 << 20, target.remote(), &done);
    ASSERT_TRUE(tl.sleep_until([&] { return done.calls > 0; }));
    ASSERT_EQ(UCS_OK, done.status);
}

TEST_IN_CHILD(between_cards, an_interface_goes_amid_a_copy, all_cards)
{
    const opened_domain md;
    card_memory source(md, 1, 1 << 20);
    card_memory target(md, 2, 1 << 20);
    for (unsigned polls = 0; polls < 40; ++polls) {
        counted_completion done;
        {
            transport tl(md, {{"STAGING_COUNT", "4"}, {"STAGING_CHUNK", "4K"}});
            tl.start_put(source.data(), 1 << 20, target.remote(), &done);
            for (unsigned i = 0; i < polls; ++i) {
                tl.progress();
            }
        }
        ASSERT_TRUE(done.calls == 1);
        ASSERT_TRUE((done.status == UCS_ERR_CANCELED) ||
                    (has_one_card() && (done.status == UCS_OK)));
    }
}

/* The queue of the third card is full of jobs that nobody collects, and one
 * more of its copies waits for room. */
TEST_IN_CHILD(between_cards, a_blocking_copy_gets_by_a_busy_third_card,
              all_cards)
{
    const opened_domain md;
    transport tl(md);
    card_memory first(md, 0);
    card_memory second(md, 1);
    card_memory third(md, 2);
    std::vector<char> data(size);
    registration memh(md, data.data(), size);
    counted_completion done;
    for (unsigned i = 0; i < 64; ++i) {
        ++done.count;
        const ucs_status_t status =
            tl.put_zcopy(data.data(), size, third.remote(), &done);
        ASSERT_TRUE((status == UCS_INPROGRESS) ||
                    (status == UCS_ERR_NO_RESOURCE));
    }
    tl.start_put(first.data(), size, third.remote(), &done);
    ASSERT_EQ(UCS_OK, tl.put_short(first.data(), size, second.remote()));
    tl.flush();
}

/* More than the address space of a card, with some of it in use. */
TEST_IN_CHILD(cards, keep_their_addresses_apart_however_much_is_allocated,
              all_cards)
{
    GAUDI_NEEDS(second_card);
    constexpr size_t large = size_t{80} << 30;
    const opened_domain md;
    card_memory of_first(md, 0);
    card_memory kept(md, 1);
    const uintptr_t window = reinterpret_cast<uintptr_t>(window_of_card(1));
    for (size_t sum = 0; sum < 3 * window_bytes; sum += large) {
        const card_memory passing(md, 1, large);
        ASSERT_TRUE(passing.remote() >= window);
        ASSERT_TRUE(passing.remote() - window < window_bytes);
        ASSERT_TRUE(passing.sys_dev == kept.sys_dev);
        ASSERT_TRUE((passing.remote() >= kept.remote() + size) ||
                    (passing.remote() + large <= kept.remote()));
    }
}

TEST_IN_CHILD(cards, one_interface_of_a_worker_reaches_the_process, all_cards)
{
    const opened_domain md;
    uct_tl_resource_desc_t *tls;
    unsigned count;
    ASSERT_EQ(UCS_OK, uct_md_query_tl_resources(md, &tls, &count));
    ASSERT_TRUE(count == (has_one_card() ? 1 : card_count));

    /* Each of a card; of one, where there is one. */
    ucs_async_context_t *async;
    ASSERT_EQ(UCS_OK,
              ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async));
    uct_worker_h workers[2];
    uct_iface_h ifaces[2][card_count];
    for (unsigned w = 0; w < 2; ++w) {
        ASSERT_EQ(UCS_OK, uct_worker_create(async, UCS_THREAD_MODE_SINGLE,
                                            &workers[w]));
        for (unsigned i = 0; i < card_count; ++i) {
            uct_iface_config_t *config;
            const uct_tl_resource_desc_t &tl = tls[i % count];
            ASSERT_EQ(UCS_OK, uct_md_iface_config_read(md, tl.tl_name, nullptr,
                                                       nullptr, &config));
            uct_iface_params_t params{};
            params.field_mask =
                UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE;
            params.open_mode            = UCT_IFACE_OPEN_MODE_DEVICE;
            params.mode.device.tl_name  = tl.tl_name;
            params.mode.device.dev_name = tl.dev_name;
            ASSERT_EQ(UCS_OK, uct_iface_open(md, workers[w], &params, config,
                                             &ifaces[w][i]));
            uct_config_release(config);
        }
    }
    uct_release_tl_resource_list(tls);

    char address[64];
    auto *anybody = reinterpret_cast<uct_iface_addr_t *>(address);
    for (const auto &of_worker : ifaces) {
        for (uct_iface_h remote : of_worker) {
            ASSERT_EQ(UCS_OK, uct_iface_get_address(remote, anybody));
            for (const auto &local : ifaces) {
                for (unsigned i = 0; i < card_count; ++i) {
                    ASSERT_TRUE(
                        (uct_iface_is_reachable(local[i], nullptr, anybody) !=
                         0) == (i == 0));
                }
            }
        }
    }
    /* The next one takes over. */
    uct_iface_close(ifaces[0][0]);
    ASSERT_TRUE(uct_iface_is_reachable(ifaces[0][1], nullptr, anybody));
    ASSERT_TRUE(!uct_iface_is_reachable(ifaces[0][2], nullptr, anybody));
    ++address[0];
    ASSERT_TRUE(!uct_iface_is_reachable(ifaces[0][1], nullptr, anybody));

    for (unsigned w = 0; w < 2; ++w) {
        for (unsigned i = (w == 0) ? 1 : 0; i < card_count; ++i) {
            uct_iface_close(ifaces[w][i]);
        }
        uct_worker_destroy(workers[w]);
    }
    ucs_async_context_destroy(async);
}

TEST_IN_CHILD(cards, have_distances_although_sysfs_does_not_know_them,
              all_cards)
{
    /* Devices that are not there, and not ours, and what UCX says of them. */
    ucs_sys_device_t foreign;
    ASSERT_EQ(UCS_OK,
              ucs_topo_find_device_by_bdf_name("00fe:fe:1f.7", &foreign));
    ucs_sys_device_t other;
    ASSERT_EQ(UCS_OK, ucs_topo_find_device_by_bdf_name("00fe:fd:1f.7", &other));
    ucs_sys_dev_distance_t distance;
    const ucs_status_t by_ucx =
        ucs_topo_get_distance(foreign, other, &distance);

    const opened_domain md;

    std::vector<ucs_sys_device_t> devices(has_one_card() ? 1 : card_count);
    for (unsigned i = 0; i < devices.size(); ++i) {
        ASSERT_EQ(UCS_OK, ucs_topo_find_device_by_bdf_name(bus_id(i).c_str(),
                                                           &devices[i]));
        ASSERT_TRUE("gaudi" + std::to_string(i) ==
                    ucs_topo_sys_device_get_name(devices[i]));
    }
    for (ucs_sys_device_t card : devices) {
        for (ucs_sys_device_t second :
             {devices.front(), devices[devices.size() / 2], devices.back(),
              foreign, ucs_sys_device_t{UCS_SYS_DEVICE_ID_UNKNOWN}}) {
            ASSERT_EQ(UCS_OK, ucs_topo_get_distance(card, second, &distance));
            ASSERT_EQ(UCS_OK, ucs_topo_get_distance(second, card, &distance));
            ASSERT_TRUE(distance.bandwidth > 0);
            ASSERT_TRUE(distance.latency >= 0);
        }
    }
    ASSERT_TRUE(ucs_topo_get_distance(foreign, other, &distance) == by_ucx);
}

TEST_IN_CHILD(cards, stay_open_for_an_allocation_that_is_left,
              {{{"UCX_GAUDI_DEVICES", "0"}}})
{
    load_module();
    collect_logs();
    for (unsigned round = 0; round < 2; ++round) {
        {
            const opened_domain md;
            auto *left = new device_buffer(md, size);
            transport tl(md);
            std::vector<char> back(size);
            tl.read_device(back.data(), left->remote(), size);
        }
        ASSERT_TRUE(engine_hooks::any_card());
        ASSERT_EQ(std::vector<std::string>{"gaudi: 1 allocations were not "
                                           "released"},
                  take_logs());
    }
    _exit(::testing::Test::HasFailure()
              ? 1
              : 0); /* with what was left, which a sanitizer would tell */
}

} // namespace gaudi::test
