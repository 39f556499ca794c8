/* A memory domain of gaudi_ipc that was opened when no card could be had, and
 * what it does once another context of the process has opened one. */
#include "common/framework.h"
#include "gtest/uct/ipc_peer.h"

#include <cstdlib>

namespace gaudi::test {

namespace {

constexpr size_t size = 1 << 20;

class opening_order : public ::testing::Test {
protected:
    void SetUp() override
    {
        for (const auto &[name, value] : with_cards_of_ucx({})) {
            setenv(name.c_str(), value.c_str(), 1);
        }
        load_module();
        collect_logs();
        take_logs();
    }

    void TearDown() override
    {
        EXPECT_FALSE(engine_hooks::any_card()) << "a card stays open";
        EXPECT_THAT(take_logs(), ::testing::IsEmpty());
    }

    void open_ipc_without_a_card()
    {
        setenv("HABANA_VISIBLE_DEVICES", "none", 1);
        ASSERT_EQ(UCS_OK, open_md(ipc_md, {}, "gaudi_ipc"));
        unsetenv("HABANA_VISIBLE_DEVICES");
        ASSERT_FALSE(engine_hooks::any_card());
    }

    uct_md_h copy_md = nullptr;
    uct_md_h ipc_md  = nullptr;
};

} // namespace

TEST_F(opening_order, an_interface_keeps_the_card_of_another_context_open)
{
    setenv("HABANA_VISIBLE_DEVICES", "0", 1); /* which the other has */
    child_process other("holds_its_cards");
    ASSERT_EQ("open", other.read_line());
    ASSERT_EQ(UCS_OK, open_md(ipc_md, {}, "gaudi_ipc"));
    unsetenv("HABANA_VISIBLE_DEVICES");
    other.write_line("done");
    ASSERT_EQ(0, other.wait().exit_code);
    ASSERT_FALSE(engine_hooks::any_card());

    ASSERT_EQ(UCS_OK, open_md(copy_md));
    {
        const transport copy(copy_md);
    }
    auto ipc = std::make_unique<transport>(ipc_md);
    uct_md_close(copy_md);
    EXPECT_TRUE(engine_hooks::any_card());
    ipc->flush();
    ipc.reset();
    EXPECT_FALSE(engine_hooks::any_card());
    uct_md_close(ipc_md);
}

TEST_F(opening_order, a_buffer_of_another_process_keeps_its_card_open)
{
    open_ipc_without_a_card();
    ipc_peer peer;
    ASSERT_EQ(UCS_OK, open_md(copy_md));
    {
        const unpacked_key key(peer.device().key);
        EXPECT_EQ(UCS_OK, key.status());
        uct_md_close(copy_md);
        EXPECT_TRUE(engine_hooks::any_card());
    }
    uct_md_close(ipc_md);
    EXPECT_EQ(0, peer.quit().exit_code);
}

TEST_F(opening_order, a_registration_keeps_the_card_of_its_memory_open)
{
    open_ipc_without_a_card();
    ASSERT_EQ(UCS_OK, open_md(copy_md));
    auto device = std::make_unique<device_buffer>(copy_md, size);
    {
        const registration registered(ipc_md, device->address, size);
        device.reset();
        uct_md_close(copy_md);
        EXPECT_TRUE(engine_hooks::any_card());
        EXPECT_THAT(take_logs(), ::testing::IsEmpty());
    }
    uct_md_close(ipc_md);
}

} // namespace gaudi::test
