/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/ipc/fixture.h"

#include "common/framework.h"
#include "common/ucx_logs.h"
#include "synapse/synapse_library.h"
#include "uct/gaudi/base/cards/driver.h"
#include "uct/gaudi/base/ucx/config.h"
#include "uct/gaudi/ipc/service.h"
#include "util/process.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

using clock = std::chrono::steady_clock;

constexpr auto deadline = std::chrono::seconds(20);

constexpr ipc::link_options sizes{4096, 4};

/* What the module does when it is loaded, in children, too. */
const bool configured = base::init_config();

} // namespace

void ipc_test::SetUp()
{
    ASSERT_TRUE(configured);
    collect_logs();
    take_logs();
}

void ipc_test::TearDown()
{
    EXPECT_THAT(take_logs(), ::testing::IsEmpty());
}

std::string to_line(const void *data, size_t length)
{
    constexpr char digits[] = "0123456789abcdef";
    const auto *bytes       = static_cast<const uint8_t *>(data);
    std::string line;
    for (size_t i = 0; i < length; ++i) {
        line += digits[bytes[i] >> 4];
        line += digits[bytes[i] & 15];
    }
    return line;
}

bool from_line(const std::string &line, void *data, size_t length)
{
    if (line.size() != 2 * length) {
        return false;
    }
    for (size_t i = 0; i < length; ++i) {
        const std::string digits = line.substr(2 * i, 2);
        static_cast<uint8_t *>(data)[i] =
            static_cast<uint8_t>(std::stoul(digits, nullptr, 16));
    }
    return true;
}

std::string line_of_parent()
{
    std::string line;
    char letter = 0;
    while ((read(STDIN_FILENO, &letter, 1) == 1) && (letter != '\n')) {
        line += letter;
    }
    return line;
}

void expect_end(child_process &child)
{
    const child_result result = child.wait();
    EXPECT_EQ(0, result.exit_code) << result.error;
}

bool is_readable(int fd)
{
    pollfd wanted{fd, POLLIN, 0};
    return ::poll(&wanted, 1, 20'000) == 1;
}

inbox::inbox()
{
    EXPECT_EQ(UCS_OK, ipc::service::instance().add(box));
}

void inbox::close()
{
    if (std::exchange(is_open_, false)) {
        ipc::service::instance().remove(*box);
    }
}

ipc::interface_address inbox::address() const
{
    return {util::process_identity(), box->number,
            static_cast<uint32_t>(getpid())};
}

uint64_t count_links()
{
    return ipc::service::instance().count_links();
}

std::shared_ptr<ipc::link> open_link(const ipc::interface_address &to,
                                     std::shared_ptr<ipc::event> wakes)
{
    if (wakes == nullptr) {
        wakes = std::make_shared<ipc::event>();
    }
    const auto end = clock::now() + deadline;
    std::shared_ptr<ipc::link> result;
    while ((ipc::link::open(to, sizes, wakes, result) == UCS_ERR_NO_RESOURCE) &&
           (clock::now() < end)) {
        std::this_thread::yield();
    }
    return result;
}

ucs_status_t why_no_link(const ipc::interface_address &to)
{
    std::shared_ptr<ipc::link> result;
    return ipc::link::open(to, sizes, std::make_shared<ipc::event>(), result);
}

unsigned received_numbers::poll(inbox &from, unsigned max)
{
    return from.box->poll(max, [this](uint8_t, void *data, size_t length) {
        uint64_t number = UINT64_MAX;
        if (length == sizeof(number)) {
            std::memcpy(&number, data, sizeof(number));
        }
        numbers.push_back(number);
    });
}

bool received_numbers::wait(inbox &from, size_t count)
{
    const auto end = clock::now() + deadline;
    while (numbers.size() < count) {
        if (poll(from) == 0) {
            if (clock::now() > end) {
                return false;
            }
            std::this_thread::yield();
        }
    }
    return true;
}

ucs_status_t send_number(ipc::link &to, uint64_t number)
{
    const auto end = clock::now() + deadline;
    ucs_status_t status;
    while ((status = to.send(0, number, nullptr, 0)) == UCS_ERR_NO_RESOURCE) {
        if (clock::now() > end) {
            return UCS_ERR_TIMED_OUT;
        }
        std::this_thread::yield();
    }
    return status;
}

bool become_another_user(unsigned other)
{
    /* Load the driver library and SynapseAI now: they may lie where only root
     * can look. */
    (void)base::box_identity();
    if (runs_beside_framework()) {
        (void)synapse();
    }
    return (setresgid(other, other, other) == 0) &&
           (setresuid(other, other, other) == 0);
}

no_new_descriptors::no_new_descriptors(unsigned but)
{
    EXPECT_EQ(0, getrlimit(RLIMIT_NOFILE, &before_));
    rlimit few = before_;
    std::vector<util::unique_fd> free;
    for (unsigned i = 0; i <= but; ++i) {
        free.emplace_back(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
    }
    few.rlim_cur = static_cast<rlim_t>(free.back().get());
    EXPECT_EQ(0, setrlimit(RLIMIT_NOFILE, &few));
}

} // namespace gaudi::test
