/* SPDX-License-Identifier: BSD-3-Clause */
/* gaudi_ipc between two processes, each with a card of its own, and active
 * messages. What bytes arrive, test_conformance.cc asks. */
#include "gtest/uct/invalidate.h"
#include "gtest/uct/peers.h"

#include "common/process_state.h"

#include <chrono>
#include <cstring>
#include <functional>
#include <optional>

#include <signal.h>
#include <sys/mman.h>

namespace gaudi::test {

namespace {

using ipc = beside_a_peer;

} // namespace

/* Each registration has a key of its own. */
TEST_F(ipc, an_invalidation_does_not_wait_for_other_registrations)
{
    std::vector<char> memory(4096);
    const registration other(ipc_md, memory.data(), memory.size());
    const unpacked_key others_key(pack_key(ipc_md, other.memh));
    uct_mem_h memh;
    ASSERT_EQ(UCS_OK,
              register_memory(ipc_md, memory.data(), memory.size(), memh));
    const unpacked_key key(pack_key(ipc_md, memh));
    counted_completion over;
    ASSERT_EQ(UCS_OK, invalidate(ipc_md, memh, over));
    EXPECT_TRUE(tl->progress_until([&] { return over.calls == 1; }));
    uct_ep_h own_ep = tl->make_ep();
    const auto put  = [&](const unpacked_key &with) {
        return endpoint{own_ep, with.rkey()}.put_short(
             "x", 1, reinterpret_cast<uintptr_t>(memory.data()));
    };
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, put(key));
    EXPECT_EQ(UCS_OK, put(others_key));
    uct_ep_destroy(own_ep);
}

/* The link goes with the lane that was the last to use it. */
TEST_F(ipc, copies_outlast_their_endpoint)
{
    transport other(ipc_md);
    const unpacked_key key(peer.device.key);
    std::vector<char> bytes(ipc_peer_bytes);
    for (unsigned round = 0; round < 3; ++round) {
        fill_pattern(bytes.data(), bytes.size(), round);
        uct_ep_h to_peer = other.make_ep(peer.address);
        counted_completion put;
        ASSERT_EQ(UCS_INPROGRESS,
                  (endpoint{to_peer, key.rkey()}.put_zcopy(
                      bytes.data(), bytes.size(), peer.device.address, &put)));
        uct_ep_destroy(to_peer);
        EXPECT_TRUE(other.progress_until([&] { return put.calls == 1; }));
        EXPECT_EQ(UCS_OK, put.status);
        EXPECT_TRUE(peer.has(true, bytes.size(), round));
    }
}

/* As UCP does from 1.22 on. */
TEST_F(ipc, checks_of_endpoints_take_a_completion_and_do_not_use_it)
{
    const uct_ep_h own_ep = tl->make_ep();
    counted_completion unused;
    EXPECT_EQ(UCS_OK, uct_ep_check(own_ep, 0, &unused));
    tl->progress_much();
    EXPECT_EQ(0u, unused.calls);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, uct_ep_check(own_ep, 1, nullptr));
    uct_ep_destroy(own_ep);
}

/* UCX's handler is the first to tell of a failure. */
TEST_F(ipc, messages_wait_until_ucx_has_been_told_of_a_failure)
{
    ipc_peer doomed;
    uct_ep_h to = tl->make_ep(doomed.address);
    ASSERT_NE(nullptr, to);
    doomed.process().kill(SIGKILL);
    doomed.process().wait();
    EXPECT_EQ(UCS_OK, uct_ep_check(to, 0, nullptr));
    EXPECT_EQ(UCS_ERR_NO_RESOURCE,
              uct_ep_am_short(to, ipc_echo_id, 0, nullptr, 0));
    packed_bytes packed = {"packed", 6};
    EXPECT_EQ(UCS_ERR_NO_RESOURCE,
              uct_ep_am_bcopy(to, ipc_echo_id, packed_bytes::pack, &packed, 0));
    uct_pending_req_t waiting{};
    waiting.func = [](uct_pending_req_t *) { return UCS_ERR_NO_RESOURCE; };
    EXPECT_EQ(UCS_OK, uct_ep_pending_add(to, &waiting, 0));
    const unpacked_key key(doomed.device.key);
    EXPECT_EQ(UCS_OK, (endpoint{to, key.rkey()}.put_short(
                          "x", 1, doomed.device.address)));
    EXPECT_THAT(tl->failures, ::testing::IsEmpty());
    EXPECT_TRUE(tl->progress_until([&] { return !tl->failures.empty(); }));
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT,
              uct_ep_am_short(to, ipc_echo_id, 0, nullptr, 0));
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT,
              uct_ep_am_bcopy(to, ipc_echo_id, packed_bytes::pack, &packed, 0));
    unsigned purged = 0;
    uct_ep_pending_purge(
        to,
        [](uct_pending_req_t *, void *count) {
            ++*static_cast<unsigned *>(count);
        },
        &purged);
    EXPECT_EQ(1u, purged);
    uct_ep_destroy(to);
}

/* --- what the log says ---------------------------------------------------- */

TEST_F(ipc, tells_once_per_endpoint_and_direction_what_moves_how)
{
    using ::testing::AllOf;
    using ::testing::ElementsAre;
    using ::testing::HasSubstr;
    const unpacked_key device(peer.device.key);
    const unpacked_key host(peer.host.key);
    const endpoint to_device = to(device);
    const uint64_t remote    = peer.device.address;
    char data[100]           = {};

    const logs_down_to info(UCS_LOG_LEVEL_INFO);
    for (unsigned i = 0; i < 2; ++i) {
        EXPECT_EQ(100, to_device.put_bcopy(data, sizeof(data), remote));
        flush();
        ASSERT_EQ(UCS_OK, to_device.put_short(data, 8, remote));
    }
    EXPECT_THAT(take_logs(), ElementsAre(AllOf(HasSubstr("host to gaudi"),
                                               HasSubstr("push by gaudi0"),
                                               HasSubstr("100 bytes"))));
    ASSERT_EQ(UCS_OK, to_device.get_short(data, 8, remote));
    EXPECT_THAT(take_logs(), ElementsAre(AllOf(HasSubstr("gaudi to host"),
                                               HasSubstr("pull by gaudi0"),
                                               HasSubstr("8 bytes"))));
    ASSERT_EQ(UCS_OK, to(host).put_short(data, 7, peer.host.address));
    EXPECT_THAT(take_logs(), ElementsAre(AllOf(HasSubstr("host to host"),
                                               HasSubstr("push by the CPU"),
                                               HasSubstr("7 bytes"))));
}

/* --- active messages ------------------------------------------------------ */

namespace {

class ipc_messages : public ipc {
protected:
    ipc_messages()
    {
        EXPECT_EQ(UCS_OK, uct_iface_set_am_handler(tl->iface, ipc_echo_id,
                                                   receive, this, 0));
        peer.connect(tl->address());
    }

    static ucs_status_t receive(void *arg, void *data, size_t length, unsigned)
    {
        auto *self       = static_cast<ipc_messages *>(arg);
        const char *from = static_cast<char *>(data);
        self->received.emplace_back(from, from + length);
        return UCS_OK;
    }

    void wait_for(size_t count)
    {
        while (received.size() < count) {
            tl->progress();
        }
    }

    /* It may still be on its way. */
    static void wait_for_link_of_peer()
    {
        EXPECT_TRUE(eventually([] {
            const auto serving = threads_named("ucx-gaudi");
            return !serving.empty() && are_blocked(serving);
        }));
    }

    std::vector<std::vector<char>> received;
};

/* Memory of the process itself, by a key: of another worker's endpoint. */
class ipc_own_keys : public ipc, public ::testing::WithParamInterface<bool> {
protected:
    static constexpr size_t size = 4096;

    ~ipc_own_keys() override { uct_ep_destroy(loop); }

    /* Without a key, to fill it. */
    void put(uint64_t seed)
    {
        std::vector<char> bytes(size);
        fill_pattern(bytes.data(), size, seed);
        ASSERT_EQ(UCS_OK, copy.put_short(bytes.data(), size, remote));
    }

    /* What it returned, or what its completion got. */
    ucs_status_t ended(ucs_status_t status, counted_completion &completion)
    {
        if (status == UCS_INPROGRESS) {
            EXPECT_TRUE(
                tl->progress_until([&] { return completion.calls > 0; }));
            status = completion.status;
        }
        return status;
    }

    std::vector<ucs_status_t> do_all(uct_rkey_t key)
    {
        const endpoint own{loop, key};
        std::vector<char> bytes(size);
        fill_pattern(bytes.data(), size, 2);
        counted_completion put;
        counted_completion get;
        counted_completion bcopy;
        const ssize_t sent = own.put_bcopy(bytes.data(), size, remote);
        EXPECT_TRUE(tl->progress_until(
            [&] { return uct_ep_flush(loop, 0, nullptr) == UCS_OK; }));
        return {own.put_short(bytes.data(), size, remote),
                own.get_short(bytes.data(), size, remote),
                (sent > 0) ? UCS_OK : static_cast<ucs_status_t>(sent),
                ended(own.put_zcopy(bytes.data(), size, remote, &put), put),
                ended(own.get_zcopy(bytes.data(), size, remote, &get), get),
                ended(uct_ep_get_bcopy(loop, unpack_by_memcpy(), bytes.data(),
                                       size, remote, key, &bcopy),
                      bcopy)};
    }

    void expect_bytes(uint64_t seed)
    {
        std::vector<char> bytes(size);
        ASSERT_EQ(UCS_OK, copy.get_short(bytes.data(), size, remote));
        EXPECT_TRUE(has_pattern(bytes.data(), size, seed));
    }

    uct_ep_h loop = tl->make_ep();
    device_buffer memory{copy_md, size};
    std::vector<char> host = std::vector<char>(size);
    void *const target     = GetParam() ? memory.address : host.data();
    const uint64_t remote  = reinterpret_cast<uintptr_t>(target);
};

/* Messages of the process to itself: it says when they are read. */
class ipc_own_messages : public ipc_messages {
protected:
    ~ipc_own_messages() override
    {
        (void)purge_pending(loop);
        uct_ep_destroy(loop);
    }

    ucs_status_t send() const
    {
        return uct_ep_am_short(loop, ipc_echo_id, 0, nullptr, 0);
    }

    /* The longest there are. */
    ucs_status_t send_long()
    {
        const auto pack = [](void *to, void *length) {
            std::memset(to, 1, *static_cast<size_t *>(length));
            return *static_cast<size_t *>(length);
        };
        const ssize_t sent = uct_ep_am_bcopy(loop, ipc_echo_id, pack,
                                             &tl->attr.cap.am.max_bcopy, 0);
        return (sent < 0) ? static_cast<ucs_status_t>(sent) : UCS_OK;
    }

    uct_ep_h loop = tl->make_ep();
    /* Wait at the endpoint to the end, even when a test gives up. */
    pending_request message{[this] { return send(); }};
    pending_request behind{[this] { return uct_ep_flush(loop, 0, nullptr); }};
};

/* A peer that does not read. */
class ipc_stopped_peer : public ipc_messages {
protected:
    ipc_stopped_peer()
    {
        peer.process().kill(SIGSTOP);
        sent = fill_queue(ep);
    }

    ~ipc_stopped_peer() override
    {
        (void)purge_pending(ep);
        peer.process().kill(SIGCONT);
        wait_for(sent);
    }

    /* Have it tried from the pending queue until it succeeds. */
    void expect_done(const std::function<ucs_status_t()> &operation)
    {
        request.operation = operation;
        ASSERT_EQ(UCS_OK, uct_ep_pending_add(ep, &request, 0));
        EXPECT_TRUE(tl->progress_until([&] { return request.done; }));
    }

    size_t sent = 0;
    const unpacked_key key{peer.host.key};
    pending_request request{nullptr};
};

} // namespace

TEST_F(ipc_messages, of_all_endpoints_to_a_process_share_a_queue)
{
    constexpr unsigned many = 10000;
    wait_for_link_of_peer();
    const unsigned fds      = count_open_fds();
    const unsigned mappings = count_mappings("ucx-gaudi-link");
    std::vector<uct_ep_h> endpoints;
    for (unsigned i = 0; i < many; ++i) {
        endpoints.push_back(tl->make_ep(peer.address));
        ASSERT_NE(nullptr, endpoints.back()) << i;
    }
    EXPECT_EQ(fds, count_open_fds());
    EXPECT_EQ(mappings, count_mappings("ucx-gaudi-link"));
    for (unsigned i = 0; i < many; i += 1000) {
        ASSERT_EQ(UCS_OK,
                  uct_ep_am_short(endpoints[i], ipc_echo_id, i, nullptr, 0));
    }
    for (uct_ep_h each : endpoints) {
        uct_ep_destroy(each);
    }
    wait_for(many / 1000);
    ASSERT_EQ(UCS_OK, uct_ep_am_short(ep, ipc_echo_id, 0, nullptr, 0));
    wait_for(many / 1000 + 1);
}

/* Programs look for descriptors that a library leaves open, UCX's tests too.
 * The service's thread may have no core for so long that nobody waits for it.
 */
TEST_F(ipc_messages, leave_no_descriptor_of_interfaces_that_end)
{
    constexpr int rounds = 50;
    wait_for_link_of_peer();
    const unsigned fds = count_open_fds();
    int late           = 0;
    for (int i = 0; i < rounds; ++i) {
        auto receiver        = std::make_unique<transport>(ipc_md);
        auto sender          = std::make_unique<transport>(ipc_md);
        uct_ep_h to_receiver = sender->make_ep(receiver->address());
        ASSERT_EQ(UCS_OK,
                  uct_ep_am_short(to_receiver, ipc_echo_id, 0, nullptr, 0));
        if (i % 2 == 0) {
            receiver.reset();
        }
        uct_ep_destroy(to_receiver);
        sender.reset();
        receiver.reset();
        late += (count_open_fds() != fds) ? 1 : 0;
        ASSERT_TRUE(eventually([&] { return count_open_fds() == fds; })) << i;
    }
    EXPECT_LT(late, rounds / 4);
}

/* By which UCP's rendezvous tells the receiver that all bytes are there: it is
 * what the completions of its puts wait for, and UCP does not look at them. */
TEST_F(ipc_own_messages, do_not_follow_a_failed_put_behind_a_fence)
{
    GAUDI_NEEDS(failing_jobs);
    constexpr size_t size = 4096;
    const device_buffer memory(copy_md, size);
    std::vector<char> bytes(size);
    const endpoint own{loop, UCT_INVALID_RKEY};
    counted_completion puts[2]; /* of the program, and of a rendezvous */
    ++puts[1].count;
    for (counted_completion &put : puts) {
        ASSERT_EQ(0, emulator::instance().hlthunk_emu_fault("submit#1=EFAULT"));
        ASSERT_EQ(UCS_INPROGRESS,
                  own.put_zcopy(bytes.data(), size, memory.remote(), &put));
        ASSERT_EQ(UCS_OK, uct_ep_fence(loop, 0));
        ASSERT_TRUE(tl->progress_until([&] { return put.status != UCS_OK; }));
        EXPECT_EQ((&put == puts) ? UCS_OK : UCS_ERR_NO_RESOURCE, send());
        wait_for(1);
    }
    EXPECT_TRUE(tl->progress_until([&] { return !tl->failures.empty(); }));
    EXPECT_EQ(1u, received.size());
    EXPECT_EQ(loop, tl->failures.at(0).first);
    EXPECT_EQ(puts[1].status, send());
    EXPECT_EQ(0u, puts[1].calls);
    (void)take_logs();
}

/* What UCP does to pack device memory: UCP 1.13 ignores the status. */
struct fetched_bytes {
    static size_t pack(void *to, void *self)
    {
        const auto &of = *static_cast<fetched_bytes *>(self);
        of.status_p =
            uct_ep_get_short(of.by, to, size, of.from, UCT_INVALID_RKEY);
        return size;
    }

    static constexpr unsigned size = 64;
    uct_ep_h by;
    uint64_t from;
    ucs_status_t &status_p;
};

TEST_F(ipc_own_messages, are_not_sent_without_bytes_that_cannot_be_fetched)
{
    GAUDI_NEEDS(failing_jobs);
    const transport copies(copy_md);
    const device_buffer memory(copy_md, fetched_bytes::size);
    ucs_status_t fetched = UCS_OK;
    fetched_bytes bytes{copies.ep, memory.remote(), fetched};
    const auto send_fetched = [&] {
        return uct_ep_am_bcopy(loop, ipc_echo_id, fetched_bytes::pack, &bytes,
                               0);
    };
    EXPECT_EQ(fetched_bytes::size, send_fetched());
    wait_for(1);
    ASSERT_EQ(0, emulator::instance().hlthunk_emu_fault("job#1=abort"));
    EXPECT_EQ(UCS_ERR_IO_ERROR, send_fetched());
    EXPECT_EQ(UCS_ERR_IO_ERROR, fetched);
    /* Nor what follows: the endpoint has failed. */
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, send_fetched());
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, send());
    EXPECT_TRUE(tl->progress_until([&] { return !tl->failures.empty(); }));
    EXPECT_EQ(loop, tl->failures.at(0).first);
    EXPECT_EQ(UCS_ERR_IO_ERROR, tl->failures.at(0).second);
    EXPECT_EQ(UCS_ERR_IO_ERROR, send_fetched());

    /* Another one to the same interface. */
    uct_ep_h other = tl->make_ep();
    ASSERT_EQ(UCS_OK, uct_ep_am_short(other, ipc_echo_id, 0, "x", 1));
    wait_for(2);
    EXPECT_EQ(9u, received.back().size());
    uct_ep_destroy(other);
    (void)take_logs();
}

TEST_F(ipc_own_messages, put_nothing_that_cannot_be_fetched)
{
    GAUDI_NEEDS(failing_jobs);
    transport copies(copy_md);
    const device_buffer memory(copy_md, fetched_bytes::size);
    const device_buffer device(copy_md, fetched_bytes::size);
    ucs_status_t fetched = UCS_OK;
    fetched_bytes bytes{copies.ep, memory.remote(), fetched};
    for (transport *by : {&*tl, &copies}) {
        uct_ep_h to = by->make_ep();
        ASSERT_EQ(0, emulator::instance().hlthunk_emu_fault("job#1=abort"));
        EXPECT_EQ(UCS_ERR_IO_ERROR,
                  uct_ep_put_bcopy(to, fetched_bytes::pack, &bytes,
                                   device.remote(), UCT_INVALID_RKEY));
        EXPECT_TRUE(by->progress_until([&] { return !by->failures.empty(); }));
        EXPECT_EQ(to, by->failures.at(0).first);
        EXPECT_EQ(UCS_ERR_IO_ERROR, by->failures.at(0).second);
        uct_ep_destroy(to);
    }
    (void)take_logs();
}

TEST_P(ipc_own_keys, end_with_their_registration)
{
    using ::testing::Each;
    std::optional<registration> memh(std::in_place, ipc_md, target, size);
    const unpacked_key key(pack_key(ipc_md, memh->memh));
    ASSERT_EQ(UCS_OK, key.status());
    put(1);
    EXPECT_THAT(do_all(key.rkey()), Each(UCS_OK));
    expect_bytes(2);
    put(3);
    memh.reset();
    EXPECT_THAT(do_all(key.rkey()), Each(UCS_ERR_CONNECTION_RESET));
    expect_bytes(3);
}

INSTANTIATE_TEST_SUITE_P(of, ipc_own_keys, ::testing::Bool(),
                         [](const auto &test) {
                             return test.param ? "gaudi" : "host";
                         });

TEST_F(ipc_own_messages, are_waited_for_by_a_flush)
{
    ASSERT_EQ(UCS_OK, uct_ep_flush(loop, 0, nullptr));
    ASSERT_EQ(UCS_OK, uct_ep_am_short(loop, ipc_echo_id, 1, "x", 1));
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, uct_ep_flush(loop, 0, nullptr));
    EXPECT_EQ(UCS_OK, uct_ep_flush(loop, UCT_FLUSH_FLAG_CANCEL, nullptr));
    wait_for(1);
    EXPECT_TRUE(tl->progress_until(
        [&] { return uct_ep_flush(loop, 0, nullptr) == UCS_OK; }));
    EXPECT_EQ(UCS_OK, uct_ep_flush(loop, 0, nullptr));
}

TEST_F(ipc_own_messages, are_not_waited_for_in_vain)
{
    ASSERT_EQ(UCS_OK, uct_ep_am_short(loop, ipc_echo_id, 1, "x", 1));
    EXPECT_TRUE(
        eventually([&] { return uct_ep_flush(loop, 0, nullptr) == UCS_OK; }));
    EXPECT_THAT(received, ::testing::IsEmpty());
    EXPECT_EQ(UCS_OK, uct_ep_flush(loop, 0, nullptr)) << "once is enough";
    wait_for(1);
}

TEST_F(ipc_own_messages, are_not_overtaken_by_shorter_ones)
{
    size_t sent = 0;
    while (send_long() == UCS_OK) {
        ++sent;
    }
    message.operation = [this] { return send_long(); };
    ASSERT_EQ(UCS_OK, uct_ep_pending_add(loop, &message, 0));
    EXPECT_EQ(UCS_ERR_NO_RESOURCE, send());
    ASSERT_TRUE(tl->progress_until([&] { return message.done; }));
    ASSERT_EQ(UCS_OK, send());
    wait_for(sent + 2);
    EXPECT_EQ(tl->attr.cap.am.max_bcopy, received[sent].size());
    EXPECT_EQ(sizeof(uint64_t), received[sent + 1].size());
}

TEST_F(ipc_own_messages, have_one_turn_each)
{
    const size_t sent = fill_queue(loop);
    /* As when UCP completes a request, and the program sends another one. */
    message.operation = [this] {
        const ucs_status_t status = send();
        if (status == UCS_OK) {
            EXPECT_EQ(UCS_ERR_NO_RESOURCE, send());
        }
        return status;
    };
    behind.operation = [this] { return send_long(); };
    ASSERT_EQ(UCS_OK, uct_ep_pending_add(loop, &message, 0));
    ASSERT_EQ(UCS_OK, uct_ep_pending_add(loop, &behind, 0));
    ASSERT_TRUE(tl->progress_until([&] { return behind.done; }));
    EXPECT_TRUE(message.done);
    wait_for(sent + 2);
    EXPECT_EQ(sizeof(uint64_t), received[sent].size());
}

TEST_F(ipc_stopped_peer, does_not_keep_a_flush_for_long)
{
    ASSERT_EQ(UCS_ERR_NO_RESOURCE, uct_ep_flush(ep, 0, nullptr));
    expect_done([this] { return uct_ep_flush(ep, 0, nullptr); });
}

/* UCP from 1.14 on flushes again when there was no resource, in the same
 * callback; a success then would complete a request that is tried once more. */
TEST_F(ipc_stopped_peer, does_not_let_a_flush_succeed_in_the_turn_of_another)
{
    using clock = std::chrono::steady_clock;
    expect_done([this] {
        const ucs_status_t status = uct_ep_flush(ep, 0, nullptr);
        /* Longer than a flush waits for the receiver. */
        const auto end = clock::now() + std::chrono::milliseconds(300);
        while ((status != UCS_OK) && (clock::now() < end)) {
            EXPECT_EQ(UCS_ERR_NO_RESOURCE, uct_ep_flush(ep, 0, nullptr));
        }
        return status;
    });
}

/* Also where there is room again that nobody has noticed. */
TEST_F(ipc_stopped_peer, gets_no_request_before_those_that_wait)
{
    const auto send = [this] {
        return uct_ep_am_short(ep, ipc_echo_id, 0, nullptr, 0);
    };
    uct_ep_h other = tl->make_ep(peer.address); /* by the same queue */
    pending_request second([&] {
        EXPECT_TRUE(request.done);
        return send();
    });
    request.operation = send;
    ASSERT_EQ(UCS_OK, uct_ep_pending_add(ep, &request, 0));
    peer.process().kill(SIGCONT);
    ASSERT_TRUE(eventually([&] {
        pending_request probe(nullptr);
        const ucs_status_t status = uct_ep_pending_add(other, &probe, 0);
        (void)purge_pending(other);
        return status == UCS_ERR_BUSY;
    }));
    EXPECT_EQ(UCS_OK, uct_ep_pending_add(ep, &second, 0));
    EXPECT_TRUE(tl->progress_until([&] { return second.done; }));
    (void)purge_pending(ep);
    sent += second.done ? 2 : 1;
    uct_ep_destroy(other);
}

TEST_F(ipc_own_messages, are_sent_before_a_flush_that_waits_behind_them)
{
    const size_t sent = fill_queue(loop);
    ASSERT_EQ(UCS_OK, uct_ep_pending_add(loop, &message, 0));
    ASSERT_EQ(UCS_ERR_NO_RESOURCE, uct_ep_flush(loop, 0, nullptr));
    EXPECT_EQ(UCS_INPROGRESS, uct_iface_flush(tl->iface, 0, nullptr));
    ASSERT_EQ(UCS_OK, uct_ep_pending_add(loop, &behind, 0));
    ASSERT_TRUE(tl->progress_until([&] {
        EXPECT_TRUE(message.done || !behind.done);
        return behind.done;
    }));
    wait_for(sent + 1);
}

} // namespace gaudi::test
