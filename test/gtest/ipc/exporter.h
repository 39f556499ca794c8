/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A process whose memory the test uses, and the test's own side of that.
 *
 * The exporter is a child that does what it is told, line by line; each process
 * has a card of its own.
 */
#pragma once

#include "common/child.h"
#include "common/emulator.h"
#include "hlthunk_shim/dma_queue.h"
#include "uct/gaudi/base/memory/device_pool.h"
#include "uct/gaudi/base/memory/memory_map.h"
#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/ipc/ipc_md.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gaudi::test {

inline constexpr uint64_t mebi = uint64_t{1} << 20;

/** What the module does when it is loaded, but for reading variables, which
 *  fixture.cc does. */
void start_base();

/** Settings of the memory domain, without UCX_GAUDI_IPC_. */
using variables = std::vector<std::pair<std::string, std::string>>;

ucs_status_t open_ipc_md(uct_md_h &md, const variables &changes = {});

/** In the body of a child: start_base, and a memory domain. */
uct_md_h open_md_of_child();

/** Register memory and pack a key of it. */
uct_mem_h register_with_key(uct_md_h md, void *start, size_t length,
                            ipc::wire_key &key_p);

/** The process that exports. What it cannot do ends it. */
class exporter_process {
public:
    explicit exporter_process(const child_options &options = {})
        : process("exports_memory", options)
    {}

    /** Device memory with a byte in the first and the last 64 KiB of it, in a
     *  block of its own when it is of whole pages. @return Its address. */
    uint64_t allocate(uint64_t size, unsigned char fill)
    {
        return ask_number("allocate", size, fill);
    }
    void free(uint64_t address) { (void)ask("free", address); }

    /** Host memory. */
    uint64_t allocate_host(uint64_t size, unsigned char fill)
    {
        return ask_number("host", size, fill);
    }

    /** Register, and pack a key. */
    ipc::wire_key key(uint64_t address, uint64_t size);

    /** End the registration that a key is of. */
    void deregister(const ipc::wire_key &key)
    {
        (void)ask("deregister", key.word);
    }
    /** The same with an invalidation. @return Its status. */
    ucs_status_t invalidate(const ipc::wire_key &key)
    {
        return static_cast<ucs_status_t>(
            std::stoi(ask("invalidate", key.word)));
    }

    /** Tell it a line of a word and numbers, and read one. */
    std::string ask(const std::string &word, uint64_t a = 0, uint64_t b = 0);
    uint64_t ask_number(const std::string &word, uint64_t a = 0, uint64_t b = 0)
    {
        return std::strtoull(ask(word, a, b).c_str(), nullptr, 10);
    }

    child_process process;
};

/** A key that was unpacked. */
class unpacked {
public:
    explicit unpacked(const void *key)
    {
        status = uct_rkey_unpack(&ipc::component(), key, &key_);
    }
    /** Sealed anew: what is wrong with it is not that it was damaged. */
    explicit unpacked(ipc::wire_key key)
    {
        ipc::seal_key(key);
        status = uct_rkey_unpack(&ipc::component(), &key, &key_);
    }
    ~unpacked() { release(); }
    unpacked(const unpacked &)            = delete;
    unpacked &operator=(const unpacked &) = delete;

    void release()
    {
        if (status == UCS_OK) {
            EXPECT_EQ(uct_rkey_release(&ipc::component(), &key_), UCS_OK);
            status = UCS_ERR_CANCELED;
        }
    }

    [[nodiscard]] uct_rkey_t rkey() const { return key_.rkey; }
    [[nodiscard]] ipc::remote_key *key() const
    {
        return ipc::to_remote_key(rkey());
    }
    ipc::remote_key *operator->() const { return key(); }

    ucs_status_t status;

private:
    uct_rkey_bundle_t key_{};
};

/** An open memory domain, and what moves bytes to and from its keys. */
class keys_test : public ::testing::Test {
protected:
    void SetUp() override;
    void TearDown() override;

    /** Open the memory domain anew. */
    void reopen(const variables &changes);

    /** Read one byte of remote memory, as its process gives it; -1 and a status
     *  when the key cannot be used. */
    int byte_at(const unpacked &key, uint64_t address);

    uct_md_h md              = nullptr;
    ucs_status_t last_status = UCS_OK;
};

} // namespace gaudi::test
