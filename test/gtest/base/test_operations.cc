/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/transfer/operation.h"

#include <gtest/gtest.h>

namespace gaudi::base {

namespace {

struct told_completion : uct_completion_t {
    told_completion()
        : uct_completion_t{[](uct_completion_t *self) {
                               ++static_cast<told_completion *>(self)->calls;
                           },
                           1, UCS_OK}
    {}
    unsigned calls = 0;
};

class operations_test : public ::testing::Test {
protected:
    operations_test() { operations::open(domain); }
    ~operations_test() override { operations::open(domain); }

    operation &start(operation_kind what, uct_completion_t *completion)
    {
        operation &made = *all.take();
        all.start(made, &domain, what, completion);
        return made;
    }
    void end(operation &copy, ucs_status_t status)
    {
        copy.status = status;
        copy.left   = 0;
        all.end_if_done(copy);
        EXPECT_LT(0u, all.complete_ended());
    }

    copy_counts counts;
    operations all{8, counts};
    flush_domain domain{};
};

} // namespace

/* And of none that it did not wait for. */
TEST_F(operations_test, a_flush_tells_of_copies_that_have_no_completion)
{
    told_completion before;
    told_completion behind;
    operation &good = start(operation_kind::copy, nullptr);
    start(operation_kind::flush_domain, &before);
    operation &bad = start(operation_kind::copy, nullptr);
    start(operation_kind::flush_domain, &behind);
    end(bad, UCS_ERR_IO_ERROR);
    EXPECT_EQ(0u, before.calls + behind.calls);
    end(good, UCS_OK);
    EXPECT_EQ(1u, before.calls);
    EXPECT_EQ(UCS_OK, before.status);
    EXPECT_EQ(1u, behind.calls);
    EXPECT_EQ(UCS_ERR_IO_ERROR, behind.status);
    EXPECT_EQ(UCS_OK, domain.unheard);
    EXPECT_EQ(&domain, all.take_failed());
    EXPECT_EQ(nullptr, all.take_failed());
}

TEST_F(operations_test, a_copy_with_a_completion_tells_by_that_alone)
{
    told_completion copied;
    told_completion flushed;
    operation &bad = start(operation_kind::copy, &copied);
    start(operation_kind::flush_domain, &flushed);
    end(bad, UCS_ERR_IO_ERROR);
    EXPECT_EQ(UCS_ERR_IO_ERROR, copied.status);
    EXPECT_EQ(1u, flushed.calls);
    EXPECT_EQ(UCS_OK, flushed.status);
    EXPECT_EQ(nullptr, all.take_failed());
}

/* It may wait for the message that tells the peer of the bytes. */
TEST_F(operations_test, a_flush_leaves_a_failure_unheard_that_is)
{
    told_completion of_two;
    of_two.count = 2;
    told_completion flushed;
    operation &put = start(operation_kind::copy, &of_two);
    operation &bad = start(operation_kind::copy, nullptr);
    start(operation_kind::flush_domain, &flushed);
    end(put, UCS_ERR_TIMED_OUT);
    end(bad, UCS_ERR_IO_ERROR);
    EXPECT_EQ(UCS_ERR_IO_ERROR, flushed.status);
    EXPECT_EQ(0u, of_two.calls);
    EXPECT_EQ(UCS_ERR_TIMED_OUT, domain.unheard);
}

} // namespace gaudi::base
