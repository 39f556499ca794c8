/* SPDX-License-Identifier: BSD-3-Clause */
/* What the service makes of clients that speak the protocol by hand, of good
 * ones and of others. */
#include "uct/gaudi/ipc/request_queue.h"
#include "gtest/ipc/exporter.h"
#include "gtest/ipc/raw_client.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

using ipc::hello_message;
using ipc::request_body;
using ipc::request_kind;
using util::unique_fd;

class service : public keys_test {
protected:
    void SetUp() override
    {
        keys_test::SetUp();
        key = other.key(at, mebi);
    }
    void TearDown() override
    {
        expect_to_serve();
        keys_test::TearDown();
    }

    [[nodiscard]] request_body
    request(const std::function<void(request_body &)> &change = {}) const
    {
        request_body asked{.word    = key.word,
                           .address = key.address,
                           .length  = data_bytes,
                           .kind    = request_kind::get};
        if (change) {
            change(asked);
        }
        return asked;
    }

    /* Whoever asks for what is right. */
    void expect_to_serve() const
    {
        raw_client good(key.process);
        EXPECT_EQ(0, good.run(request()));
        EXPECT_EQ(0x5a, good.data()[data_bytes - 1]);
    }

    /* Why a hello is refused; 0: it is not. */
    [[nodiscard]] int refusal(const hello_message &hello, int file) const
    {
        const raw_socket client(key.process);
        client.send(hello, file);
        const auto answer = client.receive<ipc::welcome_message>();
        if (!answer.has_value()) {
            return -EPIPE;
        }
        EXPECT_TRUE((answer->error == 0) || client.is_closed());
        return answer->error;
    }

    exporter_process other{{{{"UCX_GAUDI_IPC_ROUTES", "host"}}, -1}};
    const uint64_t at = other.allocate(mebi, 0x5a);
    ipc::wire_key key{};
};

/* --- the socket -----------------------------------------------------------*/

TEST_F(service, refuses_hellos_that_are_none_of_its)
{
    const hello_message good = hello_to(key.process);
    const auto with          = [&](auto &&change) {
        hello_message hello = good;
        change(hello);
        return refusal(hello, make_segment().get());
    };
    EXPECT_EQ(0, with([](auto &) {}));
    EXPECT_EQ(-EPROTO, with([](auto &hello) { hello.version += 1; }));
    EXPECT_EQ(-ENOENT, with([](auto &hello) { hello.process ^= 2; }));
    EXPECT_EQ(-ENOENT, with([](auto &hello) { hello.interface = 77; }));
    using edit = void (*)(hello_message &);
    for (const edit change :
         {+[](hello_message &hello) { hello.chunks += 1; },
          +[](hello_message &hello) { hello.chunks = 0; },
          +[](hello_message &hello) { hello.chunk_bytes += 1; },
          +[](hello_message &hello) { hello.chunk_bytes = 0; },
          +[](hello_message &hello) { hello.chunks = UINT32_MAX; },
          +[](hello_message &hello) {
              hello.chunks      = UINT32_MAX;
              hello.chunk_bytes = UINT32_MAX;
          }}) {
        EXPECT_EQ(-EINVAL, with(change));
    }
    hello_message huge = good;
    huge.chunk_bytes   = 1 << 20;
    huge.chunks        = 257;
    EXPECT_EQ(
        -EINVAL,
        refusal(huge, make_segment(ipc::segment_bytes(1 << 20, 257)).get()))
        << "more than there may be";
    hello_message none = good;
    none.chunk_bytes = none.chunks = 0;
    EXPECT_EQ(0, refusal(none, make_segment(ipc::segment_bytes(0, 0)).get()));
}

TEST_F(service, refuses_what_is_no_segment)
{
    const hello_message good = hello_to(key.process);
    EXPECT_EQ(-EINVAL, refusal(good, -1));
    for (const size_t length :
         {size_t{0}, size_t{1}, total - 4096, total + 1, total + 4096}) {
        EXPECT_EQ(-EINVAL, refusal(good, make_segment(length).get()));
    }
    const auto sealed = [](unsigned flags, size_t length, int seals) {
        unique_fd file(
            memfd_create("gtest", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
        (void)ftruncate(file.get(), static_cast<off_t>(length));
        (void)fcntl(file.get(), F_ADD_SEALS, seals);
        return file;
    };
    const int all = F_SEAL_SHRINK | F_SEAL_GROW;
    EXPECT_EQ(-EINVAL, refusal(good, sealed(0, total, 0).get()));
    EXPECT_EQ(-EINVAL, refusal(good, sealed(0, total, F_SEAL_GROW).get()))
        << "it could shrink";
    EXPECT_NE(0, refusal(good, sealed(0, total, all | F_SEAL_WRITE).get()));
    EXPECT_EQ(-EINVAL, refusal(good, sealed(MFD_HUGETLB, 2 << 20, all).get()))
        << "there may be no huge page";
    int ends[2];
    ASSERT_EQ(0, pipe2(ends, O_CLOEXEC));
    EXPECT_EQ(-EINVAL, refusal(good, ends[0]));
    close(ends[0]);
    close(ends[1]);
    EXPECT_EQ(0, refusal(good, sealed(0, total, all).get()));
}

TEST_F(service, closes_links_with_messages_that_make_no_sense)
{
    const ipc::welcome_message welcome{.error = 0};
    const ipc::bell_message bell{.reason = ipc::bell_reason::message};
    const ipc::revoke_message revoke{.word = key.word};
    for (const bool has_said_hello : {false, true}) {
        const auto is_closed_upon = [&](const void *data, size_t length) {
            const raw_socket mute(key.process);
            const raw_client client(key.process);
            const raw_socket &by =
                has_said_hello ? static_cast<const raw_socket &>(client) : mute;
            EXPECT_EQ(0, ipc::send_message(by.fd.get(), data, length));
            return by.is_closed();
        };
        char bytes[2000] = {};
        for (const size_t length : {size_t{1}, size_t{3}, size_t{4},
                                    sizeof(hello_message), sizeof(bytes)}) {
            EXPECT_TRUE(is_closed_upon(bytes, length)) << length;
        }
        EXPECT_TRUE(is_closed_upon(&welcome, sizeof(welcome)));
        EXPECT_TRUE(is_closed_upon(&bell, sizeof(bell) - 1));
        EXPECT_TRUE(is_closed_upon(&bell, sizeof(bell.type)));
        EXPECT_TRUE(is_closed_upon(&revoke, sizeof(revoke) - 1));
        if (!has_said_hello) {
            EXPECT_TRUE(is_closed_upon(&bell, sizeof(bell)));
            EXPECT_TRUE(is_closed_upon(&revoke, sizeof(revoke)));
        }
    }
    /* The second one. */
    const raw_client client(key.process);
    client.send(hello_to(key.process), make_segment().get());
    EXPECT_TRUE(client.is_closed());
}

TEST_F(service, closes_descriptors_that_nobody_wanted)
{
    int ends[2];
    ASSERT_EQ(0, pipe2(ends, O_CLOEXEC | O_NONBLOCK));
    raw_client client(key.process);
    client.send(ipc::bell_message{.reason = ipc::bell_reason::request},
                ends[1]);
    EXPECT_EQ(0, client.run(request()));
    close(ends[1]);
    EXPECT_TRUE(is_readable(ends[0])) << "nobody has its other end";
    close(ends[0]);
}

/* --- requests -------------------------------------------------------------*/

TEST_F(service, refuses_what_is_out_of_place)
{
    const auto kind = [](uint32_t of) { return static_cast<request_kind>(of); };
    char here       = 0;
    using edit      = std::function<void(request_body &)>;
    const std::pair<edit, int> wrongs[] = {
        {[](auto &asked) { asked.length = 0; }, -EFAULT},
        {[&](auto &asked) { asked.kind = kind(4); }, -EFAULT},
        {[&](auto &asked) { asked.kind = kind(UINT32_MAX); }, -EFAULT},
        {[](auto &asked) { asked.length = data_bytes + 1; }, -EFAULT},
        {[](auto &asked) { asked.offset = 1; }, -EFAULT},
        {[](auto &asked) { asked.offset = UINT64_MAX; }, -EFAULT},
        {[](auto &asked) { asked.length = UINT64_MAX; }, -EFAULT},
        {[](auto &asked) { asked.kind = request_kind::write; }, -EIO},
        {[&](auto &asked) {
             asked.address = reinterpret_cast<uintptr_t>(&here);
         },
         -EKEYREVOKED},
        {[](auto &asked) { asked.address = 0; }, -EKEYREVOKED},
        {[](auto &asked) { asked.address -= 1; }, -EKEYREVOKED},
        {[](auto &asked) { asked.address += mebi - data_bytes + 1; },
         -EKEYREVOKED},
        {[](auto &asked) { asked.address = UINT64_MAX; }, -EKEYREVOKED},
        {[](auto &asked) { asked.word = 0; }, -EKEYREVOKED},
        {[](auto &asked) { asked.word += 1; }, -EKEYREVOKED},
        {[](auto &asked) { asked = {}; }, -EKEYREVOKED},
        {[](auto &asked) { asked.kind = request_kind::check; }, 0},
    };
    raw_client client(key.process);
    for (const auto &[change, error] : wrongs) {
        EXPECT_EQ(error, client.run(request(change)))
            << &change - &wrongs[0].first;
    }
    EXPECT_EQ(0, client.run(request()));
    raw_client poor(key.process, 0, 0); /* without chunks */
    EXPECT_EQ(-EFAULT, poor.run(request()));
}

TEST_F(service, closes_links_that_count_wrong)
{
    for (const uint64_t jump :
         {uint64_t{ipc::max_requests} + 1, UINT64_MAX, uint64_t{0}}) {
        raw_client client(key.process);
        EXPECT_EQ(0, client.run(request()));
        client.control().posted = (jump == 0) ? 0 : client.posted + jump;
        client.ring_bell();
        EXPECT_TRUE(client.is_closed());
        expect_to_serve();
    }
}

TEST_F(service, ends_the_use_of_a_key_with_it)
{
    raw_client client(key.process);
    EXPECT_EQ(0, client.run(request()));
    const auto last = request();
    const auto check =
        request([](auto &asked) { asked.kind = request_kind::check; });
    const auto next = other.key(at, mebi);
    other.deregister(key);
    EXPECT_EQ(-EKEYREVOKED, client.run(last));
    EXPECT_EQ(-EKEYREVOKED, client.run(check));
    /* Nothing that the client writes to what both have changes that. */
    auto *words = reinterpret_cast<uint64_t *>(client.segment.start());
    std::fill(words + 4096 / 8, words + ipc::request_offset / 8, key.word);
    EXPECT_EQ(-EKEYREVOKED, client.run(last));
    key = next;
    EXPECT_EQ(0, client.run(request()));
}

TEST_F(service, finds_pages_that_the_program_has_unmapped)
{
    const uint64_t host = other.allocate_host(mebi, 0x5a);
    const auto of       = other.key(host, mebi);
    (void)other.ask("unmap", host + 32768, 8192);
    raw_client client(key.process);
    for (const request_kind kind : {request_kind::get, request_kind::put}) {
        const auto over = [&](uint64_t offset, uint64_t length) {
            return client.run({.word    = of.word,
                               .address = host + offset,
                               .length  = length,
                               .kind    = kind});
        };
        EXPECT_EQ(0, over(0, 32768));
        EXPECT_EQ(-EFAULT, over(0, 32769));
        EXPECT_EQ(-EFAULT, over(32768, 1));
        EXPECT_EQ(-EFAULT, over(40959, 100));
        EXPECT_EQ(0, over(40960, 100));
    }
}

/* --- clients that go, or do not answer ------------------------------------*/

TEST_F(service, ends_links_whose_sockets_are_shut_down)
{
    for (const int how : {SHUT_RD, SHUT_WR, SHUT_RDWR}) {
        raw_client client(key.process);
        EXPECT_EQ(0, client.run(request()));
        ASSERT_EQ(0, shutdown(client.fd.get(), how));
        client.control().client_sleeps = 1;
        client.post(request());
        expect_to_serve();
    }
}

/* Bells fill it. */
TEST_F(service, goes_on_beside_clients_that_do_not_read)
{
    raw_client client(key.process);
    const int small = 1;
    ASSERT_EQ(0, setsockopt(client.fd.get(), SOL_SOCKET, SO_RCVBUF, &small,
                            sizeof(small)));
    for (unsigned i = 0; i < 1000; ++i) {
        client.control().client_sleeps = 1;
        ASSERT_EQ(0, client.run(request([](auto &asked) {
            asked.kind = request_kind::check;
        })));
    }
    expect_to_serve();
}

} // namespace

} // namespace gaudi::test
