/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/ipc/fixture.h"

#include "common/framework.h"
#include "common/ucx_logs.h"
#include "synapse/synapse_library.h"
#include "uct/gaudi/base/cards/driver.h"
#include "uct/gaudi/base/ucx/config.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <unistd.h>

namespace gaudi::test {

namespace {

constexpr auto deadline = std::chrono::seconds(20);

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
    gaudi::ipc::remote_process::set_timeout(1);
}

void ipc_test::expect_log(const std::vector<std::string> &texts)
{
    EXPECT_EQ(texts, take_logs());
}

void ipc_test::allow_logs()
{
    take_logs();
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

void expect_success(const std::string &child, const std::string &told)
{
    child_process started(child);
    if (!told.empty()) {
        started.write_line(told);
    }
    expect_end(started);
}

std::unique_ptr<gaudi::ipc::mailbox>
make_mailbox(const gaudi::ipc::mailbox_options &options)
{
    std::unique_ptr<gaudi::ipc::mailbox> result;
    EXPECT_EQ(UCS_OK, gaudi::ipc::mailbox::create(options, result));
    return result;
}

std::unique_ptr<gaudi::ipc::connection>
connect_to(const gaudi::ipc::mailbox_address &address)
{
    std::unique_ptr<gaudi::ipc::connection> result;
    const ucs_status_t status = gaudi::ipc::connection::open(address, result);
    return (status == UCS_OK) ? std::move(result) : nullptr;
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

unsigned received_numbers::poll(gaudi::ipc::mailbox &from, unsigned max)
{
    return from.poll(max, [this](uint8_t, void *data, size_t length) {
        uint64_t number = UINT64_MAX;
        if (length == sizeof(number)) {
            std::memcpy(&number, data, sizeof(number));
        }
        numbers.push_back(number);
    });
}

bool received_numbers::wait(gaudi::ipc::mailbox &from, size_t count)
{
    const auto end = std::chrono::steady_clock::now() + deadline;
    while (numbers.size() < count) {
        if (poll(from) == 0) {
            if (std::chrono::steady_clock::now() > end) {
                return false;
            }
            std::this_thread::yield();
        }
    }
    return true;
}

ucs_status_t send_number(gaudi::ipc::connection &to, uint64_t number)
{
    const auto end = std::chrono::steady_clock::now() + deadline;
    ucs_status_t status;
    while ((status = to.send(0, number, nullptr, 0)) == UCS_ERR_NO_RESOURCE) {
        if (std::chrono::steady_clock::now() > end) {
            return UCS_ERR_TIMED_OUT;
        }
        std::this_thread::yield();
    }
    return status;
}

} // namespace gaudi::test
