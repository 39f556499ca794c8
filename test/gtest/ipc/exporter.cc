/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/ipc/exporter.h"

#include "common/framework.h"
#include "common/process_state.h"
#include "common/uct_config.h"
#include "common/ucx_logs.h"
#include "hlthunk_shim/memory.h"
#include "uct/gaudi/base/ucx/memory_type.h"
#include "uct/gaudi/base/ucx/ucp_settings.h"
#include "uct/gaudi/ipc/sharing/invalidation.h"
#include "gtest/ipc/fixture.h"
#include "gtest/uct/invalidate.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <sstream>

namespace gaudi::test {

namespace {

/* After those of main.cc, before they are read, see fixture.cc. */
[[gnu::constructor(102)]] void set_environment()
{
    setenv("UCX_GAUDI_DRIVER", emulator_path().c_str(), 0);
}

/* Copy from the host to an address that a card knows. */
int write_device(base::card &by, void *host, size_t size, uint64_t va)
{
    shim::registration mapped;
    std::unique_ptr<shim::dma_queue> queue;
    int error = by.device().register_staging(host, size, mapped);
    if (error == 0) {
        error = by.device().make_queue(shim::dma_direction::host_to_device, {},
                                       queue);
    }
    uint64_t id = 0;
    if (error == 0) {
        error = queue->submit(va, mapped.address(), size, nullptr, id);
    }
    if (error == 0) {
        error = queue->wait(id, 20'000'000);
        shim::dma_completion done;
        (void)queue->poll(&done, 1);
    }
    return error;
}

struct invalidation : uct_completion_t {
    invalidation() : uct_completion_t{}
    {
        count  = 1;
        status = UCS_OK;
        func   = [](uct_completion_t *self) {
            static_cast<invalidation *>(self)->done = true;
        };
    }
    bool done = false;
};

} // namespace

void start_base()
{
    static const bool once = base::init_memory_type();
    (void)once;
}

ucs_status_t use_of(const ipc::wire_key &key)
{
    const unpacked remote(key);
    return (remote.status == UCS_OK) ? remote->failure() : remote.status;
}

ucs_status_t out_of_reach()
{
    return base::has_new_protocols() ? UCS_ERR_UNREACHABLE : UCS_ERR_IO_ERROR;
}

ucs_status_t open_ipc_md(uct_md_h &md, const variables &changes)
{
    uct_md_config_t *config;
    ucs_status_t status =
        uct_md_config_read(&ipc::component(), nullptr, nullptr, &config);
    for (const auto &[name, value] : changes) {
        if (status == UCS_OK) {
            status = modify_config(config, name, value);
        }
    }
    if (status != UCS_OK) {
        return status;
    }
    start_framework();
    status = uct_md_open(&ipc::component(), "gaudi_ipc", config, &md);
    uct_config_release(config);
    return status;
}

uct_md_h open_md_of_child()
{
    uct_md_h md = nullptr;
    start_base();
    EXPECT_EQ(open_ipc_md(md), UCS_OK);
    return md;
}

uct_mem_h register_with_key(uct_md_h md, void *start, size_t length,
                            ipc::wire_key &key_p)
{
    uct_mem_h memh = nullptr;
    EXPECT_EQ(uct_md_mem_reg(md, start, length, UCT_MD_MEM_ACCESS_ALL, &memh),
              UCS_OK);
    EXPECT_EQ(uct_md_mkey_pack(md, memh, &key_p), UCS_OK);
    return memh;
}

GAUDI_CHILD(exports_memory)
{
    collect_logs();
    uct_md_h md = open_md_of_child();
    auto &cards = base::card_table::instance();
    auto &map   = base::memory_map::instance();
    std::map<uint64_t, base::device_memory *> device;
    std::map<uint64_t, std::unique_ptr<char[]>> host;
    std::map<uint64_t, uct_mem_h> handles; /* by stamp of the key */
    invalidation over;

    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string what;
        uint64_t a = 0;
        uint64_t b = 0;
        words >> what >> a >> b;
        std::string answer = "0";
        if (what == "allocate") {
            base::device_memory *memory;
            base::card &card = *cards.cards().all().front();
            GAUDI_CHILD_REQUIRE(base::allocate(card, a, false, memory) ==
                                UCS_OK);
            /* The ends of it. */
            const uint64_t part = std::min<uint64_t>(a, 65536);
            std::vector<char> fill(part, static_cast<char>(b));
            for (const uint64_t at : {uint64_t{0}, a - part}) {
                GAUDI_CHILD_REQUIRE(write_device(card, fill.data(), part,
                                                 memory->start + at) == 0);
            }
            device[memory->start] = memory;
            answer                = std::to_string(memory->start);
        } else if (what == "free") {
            map.free(*device.at(a));
            device.erase(a);
        } else if (what == "host") {
            auto memory = std::make_unique<char[]>(a);
            std::memset(memory.get(), static_cast<int>(b), a);
            const auto at = reinterpret_cast<uintptr_t>(memory.get());
            host[at]      = std::move(memory);
            answer        = std::to_string(at);
        } else if (what == "key") {
            ipc::wire_key key;
            ipc::wire_key again;
            uct_mem_h memh =
                register_with_key(md, reinterpret_cast<void *>(a), b, key);
            GAUDI_CHILD_REQUIRE(uct_md_mkey_pack(md, memh, &again) == UCS_OK);
            GAUDI_CHILD_REQUIRE(key == again);
            handles[key.stamp] = memh;
            answer             = to_line(key);
        } else if (what == "deregister") {
            GAUDI_CHILD_REQUIRE(uct_md_mem_dereg(md, handles.at(a)) == UCS_OK);
            handles.erase(a);
        } else if (what == "invalidate") {
            over = {};
            /* The way that the domain does not go in this release is gone
             * without it. */
            if constexpr (base::invalidates_at_once) {
                GAUDI_CHILD_REQUIRE(uct_md_mem_dereg(md, handles.at(a)) ==
                                    UCS_OK);
                ipc::wait_for_users(a, &over);
            } else {
                GAUDI_CHILD_REQUIRE(invalidate(md, handles.at(a), over) ==
                                    UCS_OK);
            }
            handles.erase(a);
            answer = over.done ? "1" : "0";
        } else if (what == "invalidate_now") {
            over = {};
            if constexpr (base::invalidates_at_once) {
                GAUDI_CHILD_REQUIRE(invalidate(md, handles.at(a), over) ==
                                    UCS_OK);
            } else {
                GAUDI_CHILD_REQUIRE(uct_md_mem_dereg(md, handles.at(a)) ==
                                    UCS_OK);
                uct_invoke_completion(&over, ipc::await_users(a));
            }
            handles.erase(a);
            GAUDI_CHILD_REQUIRE(over.done && !ipc::has_invalidations());
            answer = std::to_string(over.status);
        } else if (what == "progress") {
            (void)ipc::progress_invalidations();
            answer = std::to_string(over.done ? over.status : UCS_INPROGRESS);
        } else if (what == "timeout") {
            ipc::set_invalidation_timeout(static_cast<double>(a) * 1e-3);
        } else if (what == "card") {
            answer = std::to_string(
                static_cast<uint64_t>(cards.cards().all()[a]->address()));
        } else if (what == "module") {
            answer =
                std::to_string(cards.cards().all()[a]->device().module_id());
        } else if (what == "open_files") {
            answer = std::to_string(count_open_fds());
        } else if (what == "warning") {
            const auto lines = take_logs();
            answer           = lines.empty() ? "none" : lines.front();
        } else if (what == "keys") {
            answer = std::to_string(ipc::count_keys());
        } else if (what == "blocks") {
            answer = std::to_string(
                base::card_memory::of(*cards.cards().all().front())
                    .pool.blocks());
        } else {
            std::fprintf(stderr, "what is %s?\n", line.c_str());
            return 1;
        }
        GAUDI_CHILD_REQUIRE_NO_FAILURE();
        tell_parent(answer);
    }
    GAUDI_CHILD_REQUIRE(take_logs().empty());
    return 0;
}

GAUDI_CHILD(holds_a_key)
{
    (void)open_md_of_child();
    GAUDI_CHILD_REQUIRE_NO_FAILURE();
    tell_parent("next");
    unpacked remote(from_parent<ipc::wire_key>());
    GAUDI_CHILD_REQUIRE(remote.status == UCS_OK);
    GAUDI_CHILD_REQUIRE(remote->hold() == UCS_OK);
    tell_parent("used");
    wait_for_parent();
    return 1;
}

key_user::key_user(const ipc::wire_key &key) : child_process("holds_a_key")
{
    EXPECT_EQ(read_line(), "next");
    write_line(to_line(key));
    EXPECT_EQ(read_line(), "used");
}

std::string exporter_process::ask(const std::string &word, uint64_t a,
                                  uint64_t b)
{
    process.write_line(word + " " + std::to_string(a) + " " +
                       std::to_string(b));
    const std::string answer = process.read_line();
    EXPECT_NE(answer, "") << word;
    return answer;
}

ipc::wire_key exporter_process::key(uint64_t address, uint64_t size)
{
    ipc::wire_key key{};
    EXPECT_TRUE(from_line(ask("key", address, size), key));
    return key;
}

void keys_test::SetUp()
{
    start_base();
    collect_logs();
    ASSERT_EQ(open_ipc_md(md), UCS_OK);
}

void keys_test::TearDown()
{
    if (md != nullptr) {
        uct_md_close(md);
    }
    EXPECT_THAT(take_logs(), ::testing::IsEmpty());
}

void keys_test::reopen(const variables &changes)
{
    uct_md_close(std::exchange(md, nullptr));
    ASSERT_EQ(open_ipc_md(md, changes), UCS_OK);
}

int keys_test::byte_at(const unpacked &key, uint64_t address)
{
    unsigned char byte = 0;
    last_status        = key->hold();
    if (last_status != UCS_OK) {
        return -1;
    }
    if (const auto *host = key->host(); host != nullptr) {
        last_status =
            (host->read(&byte, address, 1) == 0) ? UCS_OK : UCS_ERR_IO_ERROR;
    } else {
        std::unique_ptr<base::transfer_engine> engine;
        last_status = base::transfer_engine::create({}, engine);
        if (last_status == UCS_OK) {
            last_status = engine->copy(&byte, {*key.key(), address}, 1);
        }
    }
    key->release();
    return (last_status == UCS_OK) ? byte : -1;
}

} // namespace gaudi::test
