/**
 * The first card of the box, open for one test.
 */
#pragma once

#include "common/host_memory.h"
#include "common/raw_card.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <cstdint>

namespace gaudi::test {

inline constexpr uint64_t mebi = uint64_t{1} << 20;

inline constexpr uint32_t pdma0 = shim::gaudi2_queue_pdma0;
inline constexpr uint32_t pdma1 = shim::gaudi2_queue_pdma1;
inline constexpr uint32_t edma0 = shim::gaudi2_queue_edma[0];

class emu : public ::testing::Test {
protected:
    void SetUp() override { ASSERT_GE(card.fd(), 0) << "the card is taken"; }

    raw_card card;
};

} // namespace gaudi::test
