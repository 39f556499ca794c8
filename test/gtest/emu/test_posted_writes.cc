/* SPDX-License-Identifier: BSD-3-Clause */
/* What a card writes to another one's memory is on its way when its job ends.
 */
#include "gtest/emu/fixture.h"

#include "common/child.h"

#include <cerrno>
#include <vector>

using namespace gaudi::test;

namespace {

const child_options posted{{{"HLTHUNK_EMU_POSTED", "y"}}};
const child_options early{{{"HLTHUNK_EMU_POSTED", "early"}}};

/* Card 0 has the memory, card 1 writes to it. */
struct two_cards {
    two_cards()
    {
        buf = export_range(owner, va, 2 * size);
        EXPECT_EQ(import(writer.fd(), buf, 2 * size, imported), 0);
        mark(owner, va, 2 * size, 1);
    }
    ~two_cards() { close(buf); }

    /* Whether the owner sees what was written; else what was there. */
    [[nodiscard]] bool has_arrived(uint64_t at = 0)
    {
        const bool arrived = bool(marked(owner, va + at, 4096, 2));
        EXPECT_NE(arrived, bool(marked(owner, va + at, 4096, 1)));
        return arrived;
    }

    static constexpr uint32_t size = 1 << 20;
    raw_card owner{0};
    raw_card writer{1};
    const uint64_t va = owner.allocate_mapped(2 * size);
    int buf           = -1;
    uint64_t imported = 0;
};

/* As mark of what two_cards did with `at` = 0. */
void write(two_cards &cards, uint32_t bytes)
{
    mark(cards.writer, cards.imported, bytes, 2);
}

/* Not in every version of the library. */
int flush(const raw_card &owner)
{
    const auto call = hl().hlthunk_cs_flush_pci_hbw_writes;
    return (call == nullptr) ? -ENOSYS : call(owner.fd());
}

} // namespace

GAUDI_CHILD(writes_until_it_reads)
{
    two_cards cards;
    write(cards, 4096);
    EXPECT_FALSE(cards.has_arrived());
    const uint64_t own = cards.writer.allocate_mapped(4096);
    EXPECT_EQ(cards.writer.copy(pdma1, own, own + 8, 8), completed);
    EXPECT_FALSE(cards.has_arrived()) << "it has read other memory";
    char byte;
    EXPECT_EQ(cards.writer.read(&byte, cards.imported, 1), completed);
    EXPECT_TRUE(cards.has_arrived());
    return 0;
}

GAUDI_CHILD(writes_and_no_flush_pushes_that)
{
    two_cards cards;
    write(cards, 4096);
    EXPECT_EQ(flush(cards.owner), -EOPNOTSUPP);
    EXPECT_FALSE(cards.has_arrived());
    return 0;
}

/* What it reads back is in the other one's chip, and no further. */
GAUDI_CHILD(writes_until_the_owner_flushes)
{
    two_cards cards;
    write(cards, 4096);
    EXPECT_EQ(flush(cards.owner), 0);
    EXPECT_FALSE(cards.has_arrived()) << "it was not there yet";
    EXPECT_TRUE(bool(marked(cards.writer, cards.imported, 4096, 2)));
    EXPECT_FALSE(cards.has_arrived());
    EXPECT_EQ(flush(cards.writer), 0);
    EXPECT_FALSE(cards.has_arrived()) << "its own memory was flushed";
    EXPECT_EQ(flush(cards.owner), 0);
    EXPECT_TRUE(cards.has_arrived());
    EXPECT_EQ(cards.owner.counters().flushes, 2u);
    return 0;
}

GAUDI_CHILD(writes_until_it_lets_go)
{
    two_cards cards;
    write(cards, 4096);
    EXPECT_FALSE(cards.has_arrived());
    EXPECT_EQ(unmap(cards.writer, cards.imported), 0);
    EXPECT_TRUE(cards.has_arrived());
    return 0;
}

/* No more is on its way than a link can hold. */
GAUDI_CHILD(writes_more_than_can_be_on_its_way)
{
    two_cards cards;
    write(cards, cards.size);
    EXPECT_TRUE(bool(marked(cards.owner, cards.va, cards.size - 65536, 2)));
    EXPECT_FALSE(bool(marked(cards.owner, cards.va, cards.size, 2)));
    std::vector<char> rest(cards.size);
    EXPECT_EQ(cards.writer.write(cards.imported + cards.size, rest.data(),
                                 cards.size),
              completed);
    EXPECT_TRUE(bool(marked(cards.owner, cards.va, cards.size, 2)));
    return 0;
}

GAUDI_CHILD(writes_and_is_seen_at_once)
{
    two_cards cards;
    write(cards, 4096);
    EXPECT_TRUE(cards.has_arrived());
    return 0;
}

TEST(emu_posted_writes, arrive_when_their_card_reads_there)
{
    EXPECT_TRUE(child_passes("writes_until_it_reads", posted));
}

TEST(emu_posted_writes, arrive_when_their_owner_flushes)
{
    EXPECT_TRUE(child_passes("writes_until_the_owner_flushes", early));
    EXPECT_TRUE(child_passes("writes_and_no_flush_pushes_that", posted));
}

TEST(emu_posted_writes, arrive_when_the_import_ends)
{
    EXPECT_TRUE(child_passes("writes_until_it_lets_go", posted));
    EXPECT_TRUE(child_passes("writes_until_it_lets_go", early));
}

TEST(emu_posted_writes, are_pushed_by_newer_ones)
{
    EXPECT_TRUE(child_passes("writes_more_than_can_be_on_its_way", posted));
    EXPECT_TRUE(child_passes("writes_more_than_can_be_on_its_way", early));
}

TEST(emu_posted_writes, are_a_setting)
{
    EXPECT_TRUE(child_passes("writes_and_is_seen_at_once"));
    const child_result child =
        run_child("finds_no_cards", {{{"HLTHUNK_EMU_POSTED", "late"}}});
    EXPECT_EQ(child.exit_code, 0) << child.error;
    EXPECT_THAT(child.error,
                ::testing::HasSubstr("HLTHUNK_EMU_POSTED='late' is not y "));
}
