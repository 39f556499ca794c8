/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX in a process that runs a framework, whose runtime has a card. */
#include "gtest/uct/fixture.h"

#include "synapse/synapse_library.h"

#include <unistd.h>

namespace gaudi::test {

namespace {

constexpr size_t size = 300000;

/* A process of its own: a framework is there once. */
class frameworks : public ::testing::TestWithParam<const char *> {
protected:
    static child_options options(variables settings = {})
    {
        settings.emplace_back("HLTHUNK_EMU_ASIC", GetParam());
        settings.emplace_back("HLTHUNK_EMU_DRAM_PAGE", "32M");
        settings.emplace_back("GAUDI_TEST_FRAMEWORK", ""); /* it is its own */
        return {settings, -1};
    }

    static void run(const char *child, const variables &settings = {})
    {
        EXPECT_TRUE(child_passes(child, options(settings)));
    }
};

synStatus acquire(const std::string &bus = {})
{
    synDeviceId id         = 0;
    const synStatus status = synapse().synInitialize();
    return (status == synSuccess) ? synapse().synDeviceAcquire(&id, bus.c_str())
                                  : status;
}

/* What a framework would have as a tensor. */
uint64_t make_tensor()
{
    uint64_t address = 0;
    (void)synapse().synDeviceMalloc(0, size, 0, 0, &address);
    return address;
}

bool is_gaudi_memory(uct_md_h md, uint64_t address)
{
    ucs_memory_type_t type = UCS_MEMORY_TYPE_HOST;
    return (uct_md_detect_memory_type(md, reinterpret_cast<void *>(address),
                                      size, &type) == UCS_OK) &&
           (type != UCS_MEMORY_TYPE_HOST);
}

/* There and back, by a registration of the tensor, staged, and from one tensor
 * to another. */
bool arrives(transport &tl, uct_md_h md, uint64_t tensor, uint64_t other)
{
    std::vector<char> from(size);
    std::vector<char> to(size);
    fill_pattern(from.data(), size, tensor);
    const registration whole(md, reinterpret_cast<void *>(tensor), size);
    counted_completion done;
    done.count = 2;
    if ((tl.put_zcopy(from.data(), size, tensor, &done) != UCS_INPROGRESS)) {
        return false;
    }
    tl.flush();
    if (tl.put_zcopy(reinterpret_cast<void *>(tensor), size, other, &done) !=
        UCS_INPROGRESS) {
        return false;
    }
    tl.flush();
    tl.read_device(to.data(), other, size);
    return (done.calls == 1) && (done.status == UCS_OK) && (from == to);
}

bool can_be_exported(uct_md_h md, uint64_t tensor)
{
    const auto attr = query_memory(md, reinterpret_cast<void *>(tensor), size);
    const auto base = reinterpret_cast<uintptr_t>(attr.base_address);
    return (base <= tensor) && (base + attr.alloc_length >= tensor + size);
}

} // namespace

INSTANTIATE_TEST_SUITE_P(of, frameworks, ::testing::Values("gaudi2", "gaudi3"),
                         [](const auto &each) {
                             return std::string(each.param);
                         });

TEST_P_IN_CHILD(frameworks, memory_of_one_that_came_first_is_copied, options())
{
    ASSERT_EQ(synSuccess, acquire());
    const uint64_t tensor = make_tensor();
    const uint64_t other  = make_tensor();
    load_module();
    {
        const opened_domain md;
        transport tl(md);
        EXPECT_TRUE(is_gaudi_memory(md, tensor));
        EXPECT_TRUE(can_be_exported(md, tensor));
        EXPECT_TRUE(arrives(tl, md, tensor, other));
        const device_buffer ours(md, size);
        EXPECT_TRUE(arrives(tl, md, ours.remote(), tensor));
    }
    EXPECT_EQ(0u, synapse().syn_stand_in_mappings());
    EXPECT_EQ(synSuccess, synapse().synDestroy());
}

/* UCX has opened the card, and lets the framework have it. */
TEST_P(frameworks, a_card_of_ours_is_handed_over)
{
    if (std::string(GetParam()) == "gaudi2") { /* UCX opens no Gaudi3 */
        run("opens_before_the_framework");
    }
    run("opens_before_the_framework_has_another", {{"HLS_MODULE_ID", "1"}});
}

GAUDI_CHILD(opens_before_the_framework)
{
    load_module();
    {
        const opened_domain md;
        transport tl(md);
        {
            const device_buffer ours(md, size);
            EXPECT_EQ(synNoDeviceFound, acquire(bus_id(0)));
        }
        EXPECT_EQ(synSuccess, acquire(bus_id(0)));
        const uint64_t tensor = make_tensor();
        GAUDI_CHILD_REQUIRE(is_gaudi_memory(md, tensor));
        EXPECT_TRUE(arrives(tl, md, tensor, make_tensor()));
    }
    EXPECT_EQ(0u, synapse().syn_stand_in_mappings());
    EXPECT_EQ(synSuccess, synapse().synDestroy());
    return 0;
}

GAUDI_CHILD(opens_before_the_framework_has_another)
{
    load_module();
    uct_md_h md;
    const ucs_status_t status = open_md(md); /* that of HLS_MODULE_ID */
    const bool has_card       = (status == UCS_OK);
    EXPECT_EQ(synSuccess, acquire(bus_id(2)));
    GAUDI_CHILD_REQUIRE(has_card || (open_md(md) == UCS_OK));
    {
        transport tl(md);
        const uint64_t tensor = make_tensor();
        EXPECT_TRUE(arrives(tl, md, tensor, make_tensor()));
        if (has_card) {
            const device_buffer ours(md, size);
            EXPECT_TRUE(arrives(tl, md, ours.remote(), tensor));
        }
    }
    uct_md_close(md);
    return 0;
}

TEST_P_IN_CHILD(frameworks, one_that_ends_takes_its_memory_along, options())
{
    load_module();
    collect_logs();
    ASSERT_EQ(synSuccess, acquire());
    {
        const opened_domain md;
        transport tl(md);
        const uint64_t tensor = make_tensor();
        std::vector<char> host(size);
        counted_completion done;
        engine_hooks::pause(true);
        tl.start_put(host.data(), size, tensor, &done);
        EXPECT_EQ(synSuccess, synapse().synDestroy());
        tl.flush();
        ASSERT_TRUE((done.calls == 1) && (done.status != UCS_OK));
        ASSERT_EQ(UCS_ERR_INVALID_ADDR, tl.put_short(host.data(), 8, tensor));
        ASSERT_TRUE(!take_logs().empty());
        /* The next one is another card to UCX. */
        ASSERT_EQ(synSuccess, acquire());
        const uint64_t next = make_tensor();
        EXPECT_TRUE(arrives(tl, md, next, make_tensor()));
    }
    ASSERT_TRUE(take_logs().empty());
}

/* SynapseAI still says there that it has the card. */
TEST_P_IN_CHILD(frameworks, a_child_does_nothing_on_the_card_of_its_parent,
                options())
{
    ASSERT_EQ(synSuccess, acquire());
    const opened_domain md;
    uct_component_h component = find_component();
    const unsigned streams    = synapse().syn_stand_in_streams();
    ASSERT_TRUE(streams > 0);
    ASSERT_TRUE(passes_forked([&] {
        ASSERT_EQ(UCS_ERR_UNSUPPORTED, query(component));
        ASSERT_TRUE(synapse().syn_stand_in_streams() == streams);
    }));
}

TEST_P(frameworks, ucx_runs_one_if_it_is_told_to)
{
    run("is_its_own_framework", {{"UCX_GAUDI_ENGINE", "synapse"}});
}

TEST_P(frameworks, ucx_that_runs_one_waits_for_a_card_in_reset)
{
    run("is_its_own_framework", {{"UCX_GAUDI_ENGINE", "synapse"},
                                 {"HLTHUNK_EMU_DEVICES", "1"},
                                 {"HLTHUNK_EMU_FAULTS", "reset=3"}});
}

GAUDI_CHILD(is_its_own_framework)
{
    (void)synapse(); /* where dlopen finds it */
    load_module();
    {
        const opened_domain md;
        transport tl(md);
        const device_buffer memory(md, size);
        const device_buffer other(md, size);
        EXPECT_TRUE(arrives(tl, md, memory.remote(), other.remote()));
    }
    EXPECT_EQ(synSuccess, acquire());
    return 0;
}

TEST(gaudi3, is_refused_without_a_framework_in_one_line)
{
    const child_result result =
        run_child("wants_gaudi3", {{{"HLTHUNK_EMU_ASIC", "gaudi3"},
                                    {"HLTHUNK_EMU_DRAM_PAGE", "32M"},
                                    {"GAUDI_TEST_FRAMEWORK", ""},
                                    {"UCX_LOG_LEVEL", "diag"},
                                    {"UCX_LOG_FILE", "stderr"},
                                    {"UCX_VFS_ENABLE", "n"}}, /* tells, too */
                                   -1});
    EXPECT_EQ(0, result.exit_code) << result.error;
    EXPECT_THAT(result.error, ::testing::HasSubstr("UCX_GAUDI_ENGINE=synapse"));
    EXPECT_EQ(1u, lines_with(result.error, "gaudi").size()) << result.error;
}

GAUDI_CHILD(wants_gaudi3)
{
    const opened_domain md;
    return has_card(md) ? 1 : 0;
}

} // namespace gaudi::test
