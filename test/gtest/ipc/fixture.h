/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What the tests of gaudi_ipc's parts share. A warning or error that a test did
 * not announce fails it.
 */
#pragma once

#include "common/child.h"
#include "common/namespaces.h"
#include "uct/gaudi/ipc/inbound.h"
#include "uct/gaudi/ipc/link.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <sys/resource.h>

namespace gaudi::test {

class ipc_test : public ::testing::Test {
protected:
    void SetUp() override;
    void TearDown() override;
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

/** A child that is sent a struct first, and answers with a line if one is
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

/** The same once it was sent a struct. */
template <typename Wire>
void expect_success(const std::string &child, const Wire &told)
{
    told_child started(child, told);
    expect_end(started);
}

/** Whether a descriptor becomes readable, within a deadline. */
bool is_readable(int fd);

/** The receiving end of an interface. */
class inbox {
public:
    inbox();
    ~inbox() { close(); }
    inbox(const inbox &)            = delete;
    inbox &operator=(const inbox &) = delete;

    void close();
    [[nodiscard]] ipc::interface_address address() const;
    [[nodiscard]] int fd() const { return wakes->fd(); }

    /** As an interface does before it sleeps. */
    [[nodiscard]] bool arm() const
    {
        wakes->clear();
        return box->arm();
    }

    std::shared_ptr<ipc::event> wakes  = std::make_shared<ipc::event>();
    std::shared_ptr<ipc::receiver> box = std::make_shared<ipc::receiver>(wakes);

private:
    bool is_open_ = true;
};

/** How many links others have to this process; own ones count. */
uint64_t count_links();

/** A link; nullptr when there can be none, at once. Tries again while there is
 *  no resource for it. */
std::shared_ptr<ipc::link>
open_link(const ipc::interface_address &to,
          std::shared_ptr<ipc::event> wakes = nullptr);

/** Why there is none. */
ucs_status_t why_no_link(const ipc::interface_address &to);

/** Numbers that came as headers of am_short, in order. */
class received_numbers {
public:
    /** One poll. */
    unsigned poll(inbox &from, unsigned max = 1000);

    /** Polls until there are so many, with a deadline. */
    bool wait(inbox &from, size_t count);

    std::vector<uint64_t> numbers;
};

/** Send a number, as a header without payload; waits while the ring is full. */
ucs_status_t send_number(ipc::link &to, uint64_t number);

/** Be another user than root from now on, in the body of a child that may. */
bool become_another_user(unsigned other = 12345);

/** While there is one, this process gets no new descriptor, or so many. */
class no_new_descriptors {
public:
    explicit no_new_descriptors(unsigned but = 0);
    ~no_new_descriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
    no_new_descriptors(const no_new_descriptors &)            = delete;
    no_new_descriptors &operator=(const no_new_descriptors &) = delete;

private:
    rlimit before_{};
};

} // namespace gaudi::test
