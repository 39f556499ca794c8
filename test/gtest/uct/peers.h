/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Other processes with cards of their own: one with gaudi_ipc, and one that
 * exports a dma-buf.
 */
#pragma once

#include "gtest/uct/fixture.h"

#include <string>
#include <utility>

namespace gaudi::test {

/** Bytes of each of the two buffers of a peer. */
inline constexpr size_t ipc_peer_bytes = 4 << 20;

/** Id of the active messages that a peer sends back as they came, over the
 *  endpoint of @ref ipc_peer::connect. */
inline constexpr uint8_t ipc_echo_id = 5;

/** Variable that tells peers what to do between two lines: "sleeps", on the
 *  descriptor of its interface, or "rests", without any progress. */
inline constexpr char peer_habit[] = "GAUDI_PEER_HABIT";

/** A child with gaudi_ipc and memory that others may use. It does what it is
 *  told in lines, and makes progress in between. */
class ipc_peer {
    child_process child_;

public:
    explicit ipc_peer(const child_options &options = {});

    /** A packed key and the address of its memory. */
    struct memory {
        std::vector<char> key;
        uint64_t address = 0;
    };

    const interface_address address; /**< to reach it */
    const memory host;
    const memory device;

    /** Let it fill both buffers; pattern as in host_memory.h. */
    void fill(uint64_t seed);

    /** Whether a buffer begins with a pattern. */
    bool has(bool of_device, size_t size, uint64_t seed);

    /** sum_of() a range of a buffer. */
    uint64_t sum(bool of_device, size_t offset, size_t size);

    /** Let it connect to an interface, for its echoes. */
    void connect(const interface_address &to);

    /** Let it echo so many messages since its start, and flush. */
    void flush_echoes(size_t count);

    /** Let it start to read memory of the process it is connected to, and not
     *  get on until @ref let_go. */
    void hold(const memory &what, size_t bytes = ipc_peer_bytes);
    void let_go();

    /** Bytes that the engines of its card moved. */
    uint64_t moved_bytes();

    /** Module id of its card. */
    unsigned card();

    /** Bytes that its card has written by a port, by the hardware's number. */
    uint64_t written_by(unsigned port);

    /** Let it unmap its host memory, and keep the registration. */
    void unmap_host();

    /** Let it end the registration of its device memory. */
    void end_key();

    /** The same of its device memory by an invalidation, until that is over. */
    void invalidate();

    /** Let it execute another program, which says what it is told. */
    void execute();

    /** Let it close gaudi_ipc, and open it again.
     *  @return Where it is then, and its device memory. */
    std::pair<interface_address, memory> reopen();

    /** Let its card meet a fault, as hlthunk_emu_fault takes it; "": with no
     *  more, and what was logged of them was expected. */
    void break_card(const std::string &wish);

    /** Let it end. */
    child_result quit();

    child_process &process() { return child_; }

private:
    std::string ask(const std::string &line);
};

/** A number that tells bytes apart. */
uint64_t sum_of(const char *bytes, size_t size);

/** Bytes that the engines of the card of this process moved. */
uint64_t moved_bytes();

/** Bytes that the card of this process has written by its ports. */
uint64_t written_by_ports();

/** The ports of the card of this process that lead to another one, as a fault
 *  of wires names them. */
std::vector<std::string> wires_to(unsigned card);

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

/** Another process with a card of its own, which exports memory of it. */
class exporting_process {
public:
    /** What is exported has the pattern of seed 9, and begins at an offset in
     *  the dma-buf; bytes. */
    static constexpr size_t size   = 1 << 20;
    static constexpr size_t offset = 777;

    /** @param options  Of the process. */
    explicit exporting_process(child_options options = {});
    ~exporting_process();
    exporting_process(const exporting_process &)            = delete;
    exporting_process &operator=(const exporting_process &) = delete;

    /** Ends well after a line. */
    std::unique_ptr<child_process> process;
    int fd = -1; /**< of the dma-buf */
};

/** Tests of gaudi_ipc with a peer, each process with a card of its own. What a
 *  derived class has as members goes before all is closed. */
class beside_a_peer : public ::testing::Test {
protected:
    beside_a_peer();
    ~beside_a_peer() override;

    /** Close the interface, and open another one, which is not connected. */
    void reopen();

    /** The endpoint, to memory of a key. */
    [[nodiscard]] endpoint to(const unpacked_key &key) const
    {
        EXPECT_EQ(UCS_OK, key.status());
        return {ep, key.rkey()};
    }

    /** Progress until a flush of the endpoint is done. */
    void flush();

    checked_log log;
    opened_domain copy_md;
    opened_domain ipc_md{"gaudi_ipc"};
    transport copy{copy_md};
    std::unique_ptr<transport> tl = std::make_unique<transport>(ipc_md);
    ipc_peer peer;
    uct_ep_h ep = nullptr; /**< to it */
};

/** The same in a child of the test, with the peer's device memory. */
struct with_a_peer : beside_a_peer {
    using beside_a_peer::copy;
    using beside_a_peer::copy_md;
    using beside_a_peer::ep;
    using beside_a_peer::flush;
    using beside_a_peer::ipc_md;
    using beside_a_peer::peer;
    using beside_a_peer::reopen;
    using beside_a_peer::tl;
    using beside_a_peer::to;

    void TestBody() override {}

    [[nodiscard]] endpoint target() const { return to(key); }
    [[nodiscard]] uint64_t remote() const { return peer.device.address; }

    const unpacked_key key{peer.device.key};
};

} // namespace gaudi::test
