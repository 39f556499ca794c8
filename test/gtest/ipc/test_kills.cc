/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes that are killed, or write nonsense, while others talk to them. */
#include "uct/gaudi/ipc/process/file_service.h"
#include "gtest/ipc/fixture.h"

#include "common/process_state.h"
#include "common/ucx_logs.h"
#include "uct/gaudi/ipc/messages/mailbox_file.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gaudi::test {

using gaudi::ipc::connection;
using gaudi::ipc::mailbox;
using gaudi::ipc::mailbox_address;
using gaudi::ipc::mailbox_header;
using gaudi::ipc::mailbox_layout;
using gaudi::ipc::mailbox_options;
using gaudi::ipc::remote_process;
using gaudi::util::unique_fd;
using ::testing::HasSubstr;

namespace {

/* A mailbox's file, mapped as a process does that means no good. */
class stolen_mailbox {
public:
    explicit stolen_mailbox(const mailbox_address &address)
    {
        std::shared_ptr<remote_process> process;
        gaudi::ipc::file_pair files;
        struct stat info {};
        if ((remote_process::open(address.process, process) != UCS_OK) ||
            (process->get_files(address.file, files) != UCS_OK) ||
            (fstat(files[0].get(), &info) != 0)) {
            std::abort();
        }
        file_   = std::move(files[0]);
        length_ = static_cast<size_t>(info.st_size);
        start_ =
            static_cast<char *>(mmap(nullptr, length_, PROT_READ | PROT_WRITE,
                                     MAP_SHARED, file_.get(), 0));
    }
    ~stolen_mailbox() { munmap(start_, length_); }
    stolen_mailbox(const stolen_mailbox &)            = delete;
    stolen_mailbox &operator=(const stolen_mailbox &) = delete;

    [[nodiscard]] int file() const { return file_.get(); }
    [[nodiscard]] char *start() const { return start_; }
    [[nodiscard]] size_t length() const { return length_; }
    [[nodiscard]] mailbox_header &header() const
    {
        return *reinterpret_cast<mailbox_header *>(start_);
    }

private:
    util::unique_fd file_;
    char *start_   = nullptr;
    size_t length_ = 0;
};

class kills : public ipc_test {
protected:
    mailbox_options options{65536, 8};
    std::unique_ptr<mailbox> box = make_mailbox(options);
    received_numbers received;
    std::mt19937 random{4};

    bool all_rings_are_free()
    {
        return eventually([this] {
            received.poll(*box);
            return box->senders() == 0;
        });
    }
};

} // namespace

/* Messages of all lengths, in all ways, until it is killed. */
GAUDI_CHILD(sends_until_it_dies)
{
    const auto address = from_parent<mailbox_address>();
    tell_parent("ready");
    std::mt19937 random(static_cast<unsigned>(getpid()));
    for (;;) {
        const auto sender = connect_to(address);
        GAUDI_CHILD_REQUIRE(sender != nullptr);
        const unsigned count = random() % 300;
        for (unsigned i = 0; i < count; ++i) {
            std::string text(8 + random() % 8000, static_cast<char>(i));
            const ucs_status_t status = sender->send(
                static_cast<uint8_t>(i), text.size(), text.data(), text.size());
            GAUDI_CHILD_REQUIRE((status == UCS_OK) ||
                                (status == UCS_ERR_NO_RESOURCE));
        }
    }
}

TEST_F(kills, of_senders_lose_no_ring_and_leave_no_half_message)
{
    constexpr unsigned rounds = 100;
    const auto other          = connect_to(box->address());
    uint64_t others           = 0;
    uint64_t came             = 0;
    for (unsigned round = 0; round < rounds; ++round) {
        told_child child("sends_until_it_dies", box->address(), "ready");
        const auto end = std::chrono::steady_clock::now() +
                         std::chrono::microseconds(random() % 3000);
        bool killed           = false;
        uint64_t numbers      = 0;
        const uint64_t before = came;
        const auto take       = [&](uint8_t id, void *data, size_t length) {
            uint64_t header;
            ASSERT_GE(length, sizeof(header));
            std::memcpy(&header, data, sizeof(header));
            const auto *text = static_cast<char *>(data) + sizeof(header);
            if (length == sizeof(header)) {
                EXPECT_EQ(others, header);
                ++numbers;
                return;
            }
            ASSERT_EQ(header + sizeof(header), length);
            EXPECT_EQ(static_cast<char>(id), text[0]);
            EXPECT_EQ(static_cast<char>(id), text[header - 1]);
            ++came;
        };
        ASSERT_TRUE(eventually([&] {
            do {
                box->poll(16, take);
                /* In every other round not before it has sent a few. */
            } while (!killed && ((std::chrono::steady_clock::now() < end) ||
                                 ((round % 2 != 0) && (came < before + 3))));
            if (!killed) {
                child.kill(SIGKILL);
                killed = true;
            }
            return box->senders() == 1;
        })) << "round "
            << round;
        ASSERT_EQ(UCS_OK, send_number(*other, others));
        box->poll(1000, take);
        EXPECT_EQ(1u, numbers);
        ++others;
        child.wait();
    }
    EXPECT_GT(came, rounds);
}

GAUDI_CHILD(fills_all_rings)
{
    const auto address = from_parent<mailbox_address>();
    std::vector<std::unique_ptr<connection>> senders;
    while (auto sender = connect_to(address)) {
        while (sender->send(0, 1, nullptr, 0) == UCS_OK) {}
        senders.push_back(std::move(sender));
    }
    tell_parent(std::to_string(senders.size()));
    wait_for_parent();
    return 0;
}

TEST_F(kills, of_a_process_with_all_rings_make_room_for_the_next_one)
{
    told_child child("fills_all_rings", box->address(), "8");
    EXPECT_EQ(nullptr, connect_to(box->address()));
    child.kill(SIGKILL);
    child.wait();
    EXPECT_TRUE(eventually([&] {
        received.poll(*box);
        return connect_to(box->address()) != nullptr;
    }));
    EXPECT_TRUE(all_rings_are_free());
}

TEST_F(kills, are_not_needed_to_get_rid_of_nonsense)
{
    auto bad        = connect_to(box->address());
    const auto good = connect_to(box->address());
    ASSERT_EQ(UCS_OK, bad->send(0, 0, nullptr, 0));
    ASSERT_TRUE(received.wait(*box, 1));

    /* Behind the message in each ring: nonsense in the one that has one. */
    const stolen_mailbox stolen(box->address());
    const mailbox_layout layout{options.fifo_size, options.max_senders};
    for (unsigned i = 0; i < options.max_senders; ++i) {
        char *data =
            stolen.start() + layout.ring_offset(i) + layout.data_offset();
        if (*reinterpret_cast<uint64_t *>(data) != 0) {
            std::memset(data + gaudi::ipc::ring_line, 0x77, 64);
        }
    }
    received.poll(*box);
    const auto told = take_logs();
    ASSERT_EQ(1u, told.size());
    EXPECT_THAT(told[0], HasSubstr("process " + std::to_string(getpid())));
    EXPECT_TRUE(bad->is_closed());
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, bad->send(0, 0, nullptr, 0));
    EXPECT_FALSE(good->is_closed());
    ASSERT_EQ(UCS_OK, good->send(0, 1, nullptr, 0));
    ASSERT_TRUE(received.wait(*box, 2));
    EXPECT_EQ(2u, box->senders());
    bad.reset();
    received.poll(*box);
    EXPECT_EQ(1u, box->senders());
    EXPECT_NE(nullptr, connect_to(box->address()));
}

/* Random bytes, all over the memory of a mailbox. */
GAUDI_CHILD(scribbles)
{
    stolen_mailbox stolen(from_parent<mailbox_address>());
    std::mt19937_64 random(5);
    tell_parent("ready");
    for (;;) {
        const size_t place = random() % 2 ? random() % stolen.length()
                                          : random() % sizeof(mailbox_header);
        auto *word =
            reinterpret_cast<uint64_t *>(stolen.start() + place / 8 * 8);
        const uint64_t values[] = {random(), 0, 1, UINT64_MAX,
                                   (random() % 70000) | 0xa50000000000};
        std::atomic_ref<uint64_t>(*word).store(values[random() % 5]);
    }
}

TEST_F(kills, are_not_due_to_a_process_that_scribbles)
{
    uint64_t sum = 0;
    std::vector<std::unique_ptr<connection>> senders;
    const auto exchange = [&] {
        auto sender = connect_to(box->address());
        for (unsigned i = 0; (sender != nullptr) && (i < 100); ++i) {
            const ucs_status_t status = sender->send(0, i, nullptr, 0);
            if (UCS_STATUS_IS_ERR(status)) {
                break;
            }
        }
        senders.push_back(std::move(sender));
        if (senders.size() > 4) {
            senders.erase(senders.begin());
        }
        /* Every byte of a message can be read. */
        box->poll(100, [&](uint8_t, void *data, size_t length) {
            for (size_t i = 0; i < length; ++i) {
                sum += static_cast<uint8_t *>(data)[i];
            }
        });
        (void)box->arm();
    };
    exchange(); /* once in peace: later there may be nothing to read */
    EXPECT_GT(sum, 0u);

    told_child child("scribbles", box->address(), "ready");
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (std::chrono::steady_clock::now() < end) {
        exchange();
    }
    child.kill(SIGKILL);
    child.wait();
    senders.clear();
    allow_logs();
}

TEST_F(kills, cannot_come_from_a_file_that_shrinks)
{
    const stolen_mailbox stolen(box->address());
    EXPECT_NE(0, ftruncate(stolen.file(), 0));
    EXPECT_EQ(EPERM, errno);

    /* Nor is one taken that could. */
    const util::unique_fd file(memfd_create("gtest-ipc", MFD_CLOEXEC));
    ASSERT_EQ(0, ftruncate(file.get(), static_cast<off_t>(stolen.length())));
    ASSERT_EQ(static_cast<ssize_t>(sizeof(mailbox_header)),
              pwrite(file.get(), stolen.start(), sizeof(mailbox_header), 0));
    mailbox_address fake = box->address();
    gaudi::ipc::file_offer offer;
    offer.fds[0] = file.get();
    ASSERT_EQ(UCS_OK,
              gaudi::ipc::file_service::add(std::move(offer), fake.file));
    std::unique_ptr<connection> sender;
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, connection::open(fake, sender));
    gaudi::ipc::file_service::remove(fake.file);
}

TEST_F(kills, do_not_come_from_a_header_with_nonsense)
{
    const stolen_mailbox stolen(box->address());
    std::vector<char> right(stolen.start(), stolen.start() + 64);
    std::unique_ptr<connection> sender;
    for (size_t i = 0; i < 32; ++i) {
        for (const int change : {1, 0x80, 0xff}) {
            stolen.start()[i] = static_cast<char>(right[i] ^ change);
            EXPECT_EQ(UCS_ERR_INVALID_ADDR,
                      connection::open(box->address(), sender))
                << "byte " << i;
            stolen.start()[i] = right[i];
        }
    }
    EXPECT_EQ(UCS_OK, connection::open(box->address(), sender));
}

} // namespace gaudi::test
