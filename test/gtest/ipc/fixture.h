/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the tests of gaudi_ipc's parts share. A warning or error that a test did
 * not announce fails it.
 */
#pragma once

#include "common/child.h"
#include "common/namespaces.h"
#include "uct/gaudi/ipc/messages/connection.h"
#include "uct/gaudi/ipc/messages/mailbox.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace gaudi::test {

class ipc_test : public ::testing::Test {
protected:
    void SetUp() override;
    void TearDown() override;

    /** Exactly this was logged, at level warning or error. */
    static void expect_log(const std::vector<std::string> &texts);

    /** Whatever was logged so far is right. */
    static void allow_logs();
};

/** Bytes as a line of text, and back. */
std::string to_line(const void *data, size_t length);
bool from_line(const std::string &line, void *data, size_t length);

template <typename Wire>
std::string to_line(const Wire &what)
{
    return to_line(&what, sizeof(what));
}

template <typename Wire>
bool from_line(const std::string &line, Wire &what)
{
    return from_line(line, &what, sizeof(what));
}

std::string line_of_parent();

/** In the body of a child: the struct that the test sends. */
template <typename Wire>
Wire from_parent()
{
    Wire what{};
    if (!from_line(line_of_parent(), what)) {
        std::abort();
    }
    return what;
}

/** A child that is told a struct first, and answers with a line if one is
 *  given. */
class told_child : public child_process {
public:
    template <typename Wire>
    told_child(const std::string &child, const Wire &told,
               const std::string &answer = {})
        : child_process(child)
    {
        write_line(to_line(told));
        if (!answer.empty()) {
            EXPECT_EQ(answer, read_line());
        }
    }
};

/** Wait for the end of a child that did its work. */
void expect_end(child_process &child);

/** Let a child do its work, and tell it what it needs first. */
void expect_success(const std::string &child, const std::string &told = {});

template <typename Wire>
void expect_success(const std::string &child, const Wire &told)
{
    expect_success(child, to_line(told));
}

std::unique_ptr<gaudi::ipc::mailbox>
make_mailbox(const gaudi::ipc::mailbox_options &options = {});

/** A connection; nullptr when it cannot be had. */
std::unique_ptr<gaudi::ipc::connection>
connect_to(const gaudi::ipc::mailbox_address &address);

/** Be another user than root from now on, in the body of a child that may. */
bool become_another_user(unsigned other = 12345);

/** Numbers that came as headers of am_short, in order. */
class received_numbers {
public:
    /** One poll. */
    unsigned poll(gaudi::ipc::mailbox &from, unsigned max = 1000);

    /** Polls until there are so many, with a deadline. */
    bool wait(gaudi::ipc::mailbox &from, size_t count);

    std::vector<uint64_t> numbers;
};

/** Send a number, as a header without payload; waits while the ring is full. */
ucs_status_t send_number(gaudi::ipc::connection &to, uint64_t number);

} // namespace gaudi::test
