/* SPDX-License-Identifier: BSD-3-Clause */
/* Pairs of cards between which there is no route, as the vendor's driver has
 * them: it imports, and the first copy fails. */
#include "gtest/emu/fixture.h"

#include "common/child.h"

using namespace gaudi::test;

namespace {

child_options no_route(const char *how)
{
    return {{{"HLTHUNK_EMU_P2P", "0-1,2"}, {"HLTHUNK_EMU_NO_ROUTE", how}}};
}

/* Card 1 and a dma-buf of another one, imported. */
struct importer : used_card {
    explicit importer(unsigned exporter) : used_card(1), other(exporter)
    {
        const uint64_t memory = other.allocate_mapped(4096);
        buf                   = export_range(other, memory, 4096);
        result                = import(fd(), buf, 4096, imported);
    }
    ~importer() { close(buf); }

    own_card other;
    int buf           = -1;
    int result        = -1;
    uint64_t imported = 0;
};

GAUDI_CHILD(copies_where_a_route_leads)
{
    importer card(0);
    GAUDI_CHILD_REQUIRE(card.result == 0);
    GAUDI_CHILD_REQUIRE(card.copy(pdma0, card.imported, card.device, 64) ==
                        completed);
    GAUDI_CHILD_REQUIRE(card.copy(pdma1, card.device, card.imported, 64) ==
                        completed);
    return 0;
}

GAUDI_CHILD(goes_on_after_a_copy_without_a_route)
{
    importer card(2);
    GAUDI_CHILD_REQUIRE(card.result == 0);
    GAUDI_CHILD_REQUIRE(card.copy(pdma0, card.imported, card.device, 64) ==
                        aborted);
    GAUDI_CHILD_REQUIRE(card.copy(pdma1, card.device, card.imported, 64) ==
                        aborted);
    GAUDI_CHILD_REQUIRE(card.copy(pdma1, card.host, card.imported, 64) ==
                        aborted);
    GAUDI_CHILD_REQUIRE(card.upload(64) == completed);
    GAUDI_CHILD_REQUIRE(unmap(card, card.imported) == 0);
    GAUDI_CHILD_REQUIRE(card.counters().jobs_aborted == 3);
    return 0;
}

GAUDI_CHILD(is_reset_by_a_copy_without_a_route)
{
    importer card(2);
    GAUDI_CHILD_REQUIRE(card.result == 0);
    GAUDI_CHILD_REQUIRE(card.upload(64) == completed);
    const uint64_t seq =
        card.start({card.copy_chunk(pdma1, card.device, card.imported, 64)});
    GAUDI_CHILD_REQUIRE(card.wait(seq) != completed);
    GAUDI_CHILD_REQUIRE(card.wait(seq) == in_reset(seq));
    char byte = 0;
    GAUDI_CHILD_REQUIRE(
        card.other.read(&byte, card.other.allocate_mapped(1), 1) == completed);
    return 0;
}

GAUDI_CHILD(imports_nothing_without_a_route)
{
    const importer card(2);
    GAUDI_CHILD_REQUIRE(card.result == -EPERM);
    return 0;
}

TEST(emu_no_route, an_import_succeeds_and_its_copies_are_aborted)
{
    EXPECT_TRUE(child_passes("goes_on_after_a_copy_without_a_route",
                             no_route("abort")));
}

TEST(emu_no_route, an_import_succeeds_and_its_first_copy_resets_the_card)
{
    EXPECT_TRUE(
        child_passes("is_reset_by_a_copy_without_a_route", no_route("reset")));
}

TEST(emu_no_route, an_import_fails_where_the_driver_asks)
{
    for (const char *how : {"", "eperm"}) {
        EXPECT_TRUE(
            child_passes("imports_nothing_without_a_route", no_route(how)));
    }
}

TEST(emu_no_route, other_pairs_are_as_ever)
{
    for (const char *how : {"eperm", "abort", "reset"}) {
        EXPECT_TRUE(child_passes("copies_where_a_route_leads", no_route(how)));
    }
}

TEST(emu_no_route, other_values_leave_the_box_empty)
{
    const child_result child = run_child("finds_no_cards", no_route("lose"));
    EXPECT_EQ(child.exit_code, 0) << child.error;
    EXPECT_THAT(child.error,
                ::testing::HasSubstr("HLTHUNK_EMU_NO_ROUTE='lose' is not "));
}

} // namespace
