/* SPDX-License-Identifier: BSD-3-Clause */
#include "uct/gaudi/base/ucx/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <stdexcept>

namespace gaudi::base {

TEST(status, errno_becomes_the_status_that_means_the_same)
{
    EXPECT_EQ(UCS_OK, to_status(0));
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, to_status(-EAGAIN));
    EXPECT_EQ(UCS_ERR_BUSY, to_status(-EBUSY));
    EXPECT_EQ(UCS_ERR_NO_MEMORY, to_status(-ENOMEM));
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, to_status(-EFAULT));
    EXPECT_EQ(UCS_ERR_NO_DEVICE, to_status(-ENODEV));
    EXPECT_EQ(UCS_ERR_TIMED_OUT, to_status(-ETIMEDOUT));
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, to_status(-ESRCH));
    EXPECT_EQ(UCS_ERR_UNREACHABLE, to_status(-EPERM));
    EXPECT_EQ(UCS_ERR_IO_ERROR, to_status(-EIO));
    EXPECT_EQ(UCS_ERR_IO_ERROR, to_status(-EXDEV));
}

TEST(status, exceptions_do_not_cross_the_boundary)
{
    ucs_log_push_handler([](const char *, unsigned, const char *,
                            ucs_log_level_t, const ucs_log_component_config_t *,
                            const char *,
                            va_list) { return UCS_LOG_FUNC_RC_STOP; });
    EXPECT_EQ(UCS_OK, guarded([] { return UCS_OK; }));
    EXPECT_EQ(UCS_ERR_NO_MEMORY,
              guarded([]() -> ucs_status_t { throw std::bad_alloc(); }));
    EXPECT_EQ(UCS_ERR_IO_ERROR,
              guarded([]() -> ucs_status_t { throw std::runtime_error("x"); }));
    ucs_log_pop_handler();
}

} // namespace gaudi::base
