/**
 * Another process with gaudi_ipc and memory that others may use: a child that
 * does what it is told in lines, and makes progress in between.
 */
#pragma once

#include "common/child.h"
#include "gtest/uct/fixture.h"

#include <string>

namespace gaudi::test {

/** Bytes of each of the two buffers of a peer. */
inline constexpr size_t ipc_peer_bytes = 4 << 20;

/** Id of the active messages that a peer sends back as they came, over the
 *  endpoint of @ref ipc_peer::connect. */
inline constexpr uint8_t ipc_echo_id = 5;

class ipc_peer {
public:
    explicit ipc_peer(const child_options &options = {});

    /** How to reach it. */
    [[nodiscard]] const interface_address &address() const { return address_; }

    /** Packed keys and addresses of its memory. */
    struct memory {
        std::vector<char> key;
        uint64_t address = 0;
    };
    [[nodiscard]] const memory &host() const { return host_; }
    [[nodiscard]] const memory &device() const { return device_; }

    /** Let it fill both buffers; pattern as in host_memory.h. */
    void fill(uint64_t seed);

    /** Whether a range of a buffer has a pattern. */
    bool has(bool device, size_t offset, size_t size, uint64_t seed);

    /** Let it connect to an interface, for its echoes. */
    void connect(const interface_address &to);

    /** Let it start to read memory of the process it is connected to,
     *  ipc_peer_bytes, and not get on until @ref let_go. */
    void hold(const memory &what);
    void let_go();

    /** Bytes that the engines of its card moved. */
    uint64_t moved_bytes();

    /** Say anything; the answer. */
    std::string ask(const std::string &line);

    /** Let it end. */
    child_result quit();

    child_process &process() { return child_; }

private:
    memory read_memory();

    child_process child_;
    interface_address address_;
    memory host_;
    memory device_;
};

/** Send messages until their queue is full. @return How many. */
size_t fill_queue(uct_ep_h ep);

/** An unpacked key of the component gaudi_ipc. */
class unpacked_key {
public:
    explicit unpacked_key(const std::vector<char> &packed);
    ~unpacked_key();
    unpacked_key(const unpacked_key &)            = delete;
    unpacked_key &operator=(const unpacked_key &) = delete;

    [[nodiscard]] ucs_status_t status() const { return status_; }
    [[nodiscard]] uct_rkey_t rkey() const { return bundle_.rkey; }

private:
    uct_rkey_bundle_t bundle_{};
    ucs_status_t status_;
};

/** Register memory with gaudi_ipc, and pack the key. */
std::vector<char> pack_key(uct_md_h md, uct_mem_h memh);

/** Tests of gaudi_ipc with a peer, each process with a card of its own. What a
 *  derived class has as members goes before all is closed. */
class beside_a_peer : public ::testing::Test {
protected:
    ~beside_a_peer() override;
    void SetUp() override;

    /** Close the interface, and open another one, which is not connected. */
    void reopen();

    /** Have a copy to or from the peer under way. */
    void start(decltype(uct_ep_put_zcopy) operation, void *local, size_t size,
               uint64_t remote, const unpacked_key &key,
               uct_completion_t *done = nullptr);

    /** Progress until a flush of the endpoint is done. */
    void flush();

    uct_md_h copy_md = nullptr;
    uct_md_h ipc_md  = nullptr;
    std::unique_ptr<transport> copy; /**< of gaudi_copy */
    std::unique_ptr<transport> tl;
    std::unique_ptr<ipc_peer> peer;
    uct_ep_h ep = nullptr; /**< to it */
};

} // namespace gaudi::test
