/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver's ioctls as such: what hl-thunk's functions do not pass on. */
#include "gtest/emu/fixture.h"

#include "common/process_state.h"
#include "hlthunk_emulator/driver/abi.h"

#include <cerrno>

#include <linux/ioctl.h>

using namespace gaudi::emu::driver;
using namespace gaudi::test;

namespace {

/* @return 0 or -errno. */
int control(int fd, unsigned long request, void *argument)
{
    return (hl().hlthunk_sys_ioctl(fd, request, argument) == 0) ? 0 : -errno;
}

template <typename Arguments>
constexpr unsigned long request_with(char type      = 'd',
                                     unsigned first = first_drm_number)
{
    return _IOC(_IOC_READ | _IOC_WRITE, type,
                first + static_cast<unsigned>(call_with<Arguments>),
                sizeof(Arguments));
}

template <typename Arguments>
int ask(int fd, Arguments &arguments)
{
    return control(fd, request_with<Arguments>(), &arguments);
}

class emu_driver : public emu {
protected:
    void SetUp() override
    {
        ASSERT_NO_FATAL_FAILURE(emu::SetUp());
        const uint64_t device = card.allocate_mapped(1);
        chunk = card.copy_chunk(edma0, device, device + 4096, 64);
    }

    submit_args submission(uint32_t flags = 0)
    {
        submit_args arguments{};
        arguments.in.execute     = reinterpret_cast<uint64_t>(&chunk);
        arguments.in.num_execute = 1;
        arguments.in.flags       = flags;
        return arguments;
    }

    hl_cs_chunk chunk{};
};

TEST_F(emu_driver, says_again_while_64_submissions_are_under_way)
{
    ASSERT_EQ(api().hlthunk_emu_pause(card.fd(), true), 0);
    for (uint32_t i = 0; i < gaudi::shim::max_cs_in_flight; ++i) {
        card.start({chunk});
    }
    submit_args arguments = submission();
    EXPECT_EQ(ask(card.fd(), arguments), -EAGAIN);
    EXPECT_EQ(arguments.in.num_execute, 1u) << "as it was, for the next try";
    ASSERT_EQ(api().hlthunk_emu_pause(card.fd(), false), 0);
    EXPECT_TRUE(eventually([&] { return ask(card.fd(), arguments) == 0; }));
    EXPECT_EQ(card.wait(arguments.out.seq), completed);
}

TEST_F(emu_driver, says_that_an_outcome_is_gone_after_64_more_submissions)
{
    const uint64_t seq = card.start({chunk});
    for (const uint32_t flags : {0u, wait_out_gone}) {
        wait_args arguments{};
        arguments.in.seq = seq;
        ASSERT_EQ(ask(card.fd(), arguments), 0);
        EXPECT_EQ(arguments.out.status, gaudi::shim::cs_completed);
        EXPECT_EQ(arguments.out.flags, flags);
        for (uint32_t i = 0; i < gaudi::shim::max_cs_in_flight; ++i) {
            card.start({chunk});
        }
    }
}

TEST_F(emu_driver, refuses_what_is_malformed)
{
    submit_args padded = submission();
    padded.in.pad      = 1;
    EXPECT_EQ(ask(card.fd(), padded), -EINVAL);
    EXPECT_EQ(padded.out.seq, UINT64_MAX);
    EXPECT_EQ(padded.out.status, static_cast<uint32_t>(-EINVAL));
    submit_args of_two_types = submission(0x2 | cs_flag_flush);
    EXPECT_EQ(ask(card.fd(), of_two_types), -EINVAL);
    memory_args unknown{{.alloc = {}, .op = 77}};
    EXPECT_EQ(ask(card.fd(), unknown), -EINVAL);
    info_args nowhere{};
    nowhere.op = info_hw_ip;
    EXPECT_EQ(ask(card.fd(), nowhere), -EINVAL);
    EXPECT_EQ(control(card.fd(), request_with<memory_args>(), nullptr),
              -EFAULT);
    EXPECT_EQ(control(card.fd(),
                      request_with<memory_args>('H', first_old_number),
                      &unknown),
              -EINVAL)
        << "another call of DRM's";
}

} // namespace
