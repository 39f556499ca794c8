/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory domains that were opened when no card could be had, and what they do
 * once another context, or the program, has opened one. */
#include "gtest/uct/fixture.h"

#include <cstdlib>
#include <optional>
#include <thread>

namespace gaudi::test {

namespace {

constexpr size_t size = 1 << 20;

/* Another process that has the only card, until it is let go. Who asks for
 * cards meanwhile sees that one. */
class holder_of_the_card {
public:
    holder_of_the_card() { EXPECT_EQ("open", child_.read_line()); }
    void let_go()
    {
        unsetenv("HABANA_VISIBLE_DEVICES");
        child_.write_line("done");
        EXPECT_EQ(0, child_.wait().exit_code);
        EXPECT_FALSE(engine_hooks::any_card());
    }

private:
    const int visible_ = setenv("HABANA_VISIBLE_DEVICES", "0", 1);
    child_process child_{"holds_its_cards"};
};

class opening_order : public ::testing::Test {
protected:
    ~opening_order() override
    {
        copy_md.reset();
        EXPECT_FALSE(engine_hooks::any_card()) << "a card stays open";
    }

    void open_ipc_without_a_card()
    {
        setenv("HABANA_VISIBLE_DEVICES", "none", 1);
        ipc_md.emplace("gaudi_ipc");
        unsetenv("HABANA_VISIBLE_DEVICES");
        ASSERT_FALSE(engine_hooks::any_card());
    }

    static void expect_round_trip(transport &tl, char *device)
    {
        std::vector<char> host(size);
        fill_pattern(host.data(), size, 3);
        const auto remote = reinterpret_cast<uintptr_t>(device);
        EXPECT_EQ(UCS_OK, tl.put_short(host.data(), 1000, remote));
        std::vector<char> back(size);
        tl.put(host.data(), size, remote);
        tl.get(back.data(), size, remote);
        EXPECT_TRUE(has_pattern(back.data(), size, 3));
    }

    checked_log log{with_cards_of_ucx({})};
    std::optional<opened_domain> ipc_md;
    std::optional<opened_domain> copy_md; /* closed at the end */
};

} // namespace

TEST_F(opening_order, an_interface_keeps_the_card_of_another_context_open)
{
    holder_of_the_card other;
    ipc_md.emplace("gaudi_ipc");
    other.let_go();

    copy_md.emplace();
    {
        const transport copy(*copy_md);
    }
    auto ipc = std::make_unique<transport>(*ipc_md);
    copy_md.reset();
    EXPECT_TRUE(engine_hooks::any_card());
    ipc->flush();
    ipc.reset();
    EXPECT_FALSE(engine_hooks::any_card());
    ipc_md.reset();
}

TEST_F(opening_order, a_registration_keeps_the_card_of_its_memory_open)
{
    open_ipc_without_a_card();
    copy_md.emplace();
    auto device = std::make_unique<device_buffer>(*copy_md, size);
    {
        const registration registered(*ipc_md, device->address, size);
        device.reset();
        copy_md.reset();
        EXPECT_TRUE(engine_hooks::any_card());
        EXPECT_THAT(take_logs(), ::testing::IsEmpty());
    }
    ipc_md.reset();
}

TEST_F(opening_order, memory_of_the_program_is_known_to_who_had_no_card)
{
    holder_of_the_card other;
    copy_md.emplace();
    transport tl(*copy_md);
    std::vector<char> host(size);
    const registration held(*copy_md, host.data(), size);
    other.let_go();

    void *address = nullptr;
    ASSERT_EQ(UCS_OK,
              GAUDI_CALL(ucx_gaudi_mem_alloc)(size, "gaudi0", &address));
    ucs_memory_type_t type = UCS_MEMORY_TYPE_HOST;
    EXPECT_EQ(UCS_OK,
              uct_md_detect_memory_type(*copy_md, address, size, &type));
    EXPECT_EQ(GAUDI_CALL(ucx_gaudi_memory_type)(), type);
    {
        const registration of_device(*copy_md, address, size);
        expect_round_trip(tl, static_cast<char *>(address));
    }
    EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_mem_free)(address));
    EXPECT_EQ(UCS_OK, GAUDI_CALL(ucx_gaudi_close)());
    EXPECT_TRUE(engine_hooks::any_card()) << "UCX is open";
    const device_buffer of_ucx(*copy_md, size);
    expect_round_trip(tl, of_ucx.data());
}

TEST_F(opening_order, an_allocation_takes_the_card_that_is_free_by_then)
{
    holder_of_the_card other;
    copy_md.emplace();
    transport tl(*copy_md);
    other.let_go();
    const device_buffer device(*copy_md, size);
    expect_round_trip(tl, device.data());
}

} // namespace gaudi::test
