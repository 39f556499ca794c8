/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/ipc/exporter.h"

#include "common/framework.h"
#include "common/process_state.h"
#include "common/uct_config.h"
#include "common/ucx_logs.h"
#include "hlthunk_shim/memory.h"
#include "uct/gaudi/base/ucx/memory_type.h"
#include "uct/gaudi/ipc/link.h"
#include "gtest/ipc/fixture.h"
#include "gtest/uct/invalidate.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <sstream>

#include <sys/mman.h>

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
    std::map<uint64_t, uct_mem_h> handles; /* by word of the key */
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
        } else if (what == "host") { /* pages, which can be unmapped */
            void *memory = mmap(nullptr, a, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            GAUDI_CHILD_REQUIRE(memory != MAP_FAILED);
            std::memset(memory, static_cast<int>(b), a);
            answer = std::to_string(reinterpret_cast<uintptr_t>(memory));
        } else if (what == "key") {
            ipc::wire_key key;
            ipc::wire_key again;
            uct_mem_h memh =
                register_with_key(md, reinterpret_cast<void *>(a), b, key);
            GAUDI_CHILD_REQUIRE(uct_md_mkey_pack(md, memh, &again) == UCS_OK);
            GAUDI_CHILD_REQUIRE(key == again);
            handles[key.word] = memh;
            answer            = to_line(key);
        } else if (what == "deregister") {
            GAUDI_CHILD_REQUIRE(uct_md_mem_dereg(md, handles.at(a)) == UCS_OK);
            handles.erase(a);
        } else if (what == "invalidate") {
            over = {};
            GAUDI_CHILD_REQUIRE(invalidate(md, handles.at(a), over) == UCS_OK);
            GAUDI_CHILD_REQUIRE(over.done);
            handles.erase(a);
            answer = std::to_string(over.status);
        } else if (what == "card") {
            answer = std::to_string(
                static_cast<uint64_t>(cards.cards().all()[a]->address()));
        } else if (what == "module") {
            answer =
                std::to_string(cards.cards().all()[a]->device().module_id());
        } else if (what == "unmap") {
            GAUDI_CHILD_REQUIRE(munmap(reinterpret_cast<void *>(a), b) == 0);
        } else if (what == "warning") {
            const auto lines = take_logs();
            answer           = lines.empty() ? "none" : lines.front();
        } else if (what == "keys") {
            answer = std::to_string(ipc::exported_memory::count_keys());
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
    constexpr ipc::link_options sizes{65536, 4};
    unsigned char byte = 0;
    std::unique_ptr<base::transfer_engine> engine;
    std::shared_ptr<ipc::link> to;
    last_status = ipc::link::open({key->process(), 0, key->pid()}, sizes,
                                  std::make_shared<ipc::event>(), to);
    if (last_status == UCS_OK) {
        last_status = base::transfer_engine::create({}, engine);
    }
    if (last_status == UCS_OK) {
        last_status = engine->copy(&byte, {*key.key(), address, to.get()}, 1);
        engine->release(*to);
    }
    return (last_status == UCS_OK) ? byte : -1;
}

} // namespace gaudi::test
