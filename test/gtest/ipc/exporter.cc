/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/ipc/exporter.h"

#include "common/framework.h"
#include "common/process_state.h"
#include "common/uct_config.h"
#include "common/ucx_logs.h"
#include "hlthunk_shim/memory.h"
#include "synapse/synapse_library.h"
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

#include <dirent.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

/* After those of main.cc, before they are read, see fixture.cc. */
[[gnu::constructor(102)]] void set_environment()
{
    setenv("UCX_GAUDI_DRIVER", emulator_path().c_str(), 0);
}

/* Copy between a byte of the host and an address that a card knows. */
int copy_host(base::card &by, void *host, size_t size, uint64_t va,
              bool to_host)
{
    shim::registration mapped;
    std::unique_ptr<shim::dma_queue> queue;
    int error = by.device().register_staging(host, size, mapped);
    if (error == 0) {
        error = by.device().make_queue(
            to_host ? shim::dma_direction::device_to_host
                    : shim::dma_direction::host_to_device,
            {}, queue);
    }
    uint64_t id = 0;
    if (error == 0) {
        error =
            queue->submit(to_host ? mapped.address() : va,
                          to_host ? va : mapped.address(), size, nullptr, id);
    }
    if (error == 0) {
        error = queue->wait(id, 20'000'000);
        shim::dma_completion done;
        (void)queue->poll(&done, 1);
    }
    return error;
}

/* Dma-bufs that this process has open. */
unsigned count_dmabufs(const base::card &of)
{
    unsigned count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (const dirent *entry = readdir(directory)) {
        const int fd           = std::atoi(entry->d_name);
        const std::string path = "/proc/self/fd/" + std::to_string(fd);
        char target[32]        = {};
        (void)!readlink(path.c_str(), target, sizeof(target) - 1);
        if ((fd > 2) && (std::strncmp(target, "socket:", 7) == 0) &&
            (of.device().dmabuf_size(fd) > 0)) {
            ++count;
        }
    }
    closedir(directory);
    return count;
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

int export_memory()
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
                GAUDI_CHILD_REQUIRE(copy_host(card, fill.data(), part,
                                              memory->start + at, false) == 0);
            }
            device[memory->start] = memory;
            answer                = std::to_string(memory->start);
        } else if (what == "tensor") { /* the framework's, with one byte */
            uint64_t tensor = 0;
            char fill       = static_cast<char>(b);
            GAUDI_CHILD_REQUIRE(
                synapse().synDeviceMalloc(0, a, 0, 0, &tensor) == synSuccess);
            GAUDI_CHILD_REQUIRE(copy_host(*cards.cards().all().front(), &fill,
                                          1, tensor + a - 1, false) == 0);
            answer = std::to_string(tensor);
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
        } else if (what == "pause") { /* its card, or let it go on */
            GAUDI_CHILD_REQUIRE(
                emulator::instance().hlthunk_emu_pause(
                    cards.cards().all().front()->device().fd(), a != 0) == 0);
        } else if (what == "jobs") {
            hlthunk_emu_counters counters{};
            GAUDI_CHILD_REQUIRE(emulator::instance().hlthunk_emu_get_counters(
                                    cards.cards().all().front()->device().fd(),
                                    &counters) == 0);
            answer = std::to_string(counters.jobs);
        } else if (what == "card") {
            answer = std::to_string(
                static_cast<uint64_t>(cards.cards().all()[a]->address()));
        } else if (what == "module") {
            answer =
                std::to_string(cards.cards().all()[a]->device().module_id());
        } else if (what == "hide") {
            GAUDI_CHILD_REQUIRE(prctl(PR_SET_DUMPABLE, 0) == 0);
        } else if (what == "open_files") {
            answer = std::to_string(count_open_fds());
        } else if (what == "warning") {
            const auto lines = take_logs();
            answer           = lines.empty() ? "none" : lines.front();
        } else if (what == "dmabufs") {
            answer =
                std::to_string(count_dmabufs(*cards.cards().all().front()));
        } else if (what == "exports") {
            answer = std::to_string(ipc::statistics_of_exports().exports);
        } else if (what == "keys") {
            answer = std::to_string(ipc::statistics_of_exports().keys);
        } else if (what == "buffers") {
            answer = std::to_string(ipc::statistics_of_exports().buffers);
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

int use_key(bool holds)
{
    (void)open_md_of_child();
    GAUDI_CHILD_REQUIRE_NO_FAILURE();
    tell_parent("next");
    unpacked remote(from_parent<ipc::wire_key>());
    GAUDI_CHILD_REQUIRE(remote.status == UCS_OK);
    GAUDI_CHILD_REQUIRE(!holds || (remote->hold() == UCS_OK));
    tell_parent("used");
    wait_for_parent();
    return 1;
}

GAUDI_CHILD(uses_a_key)
{
    return use_key(false);
}

GAUDI_CHILD(holds_a_key)
{
    return use_key(true);
}

key_user::key_user(const ipc::wire_key &key, const std::string &child)
    : child_process(child)
{
    EXPECT_EQ(read_line(), "next");
    write_line(to_line(key));
    EXPECT_EQ(read_line(), "used");
}

GAUDI_CHILD(exports_memory_of_a_framework)
{
    synDeviceId id = 0;
    GAUDI_CHILD_REQUIRE(synapse().synInitialize() == synSuccess);
    GAUDI_CHILD_REQUIRE(synapse().synDeviceAcquire(&id, nullptr) == synSuccess);
    return export_memory();
}

GAUDI_CHILD(exports_memory)
{
    return export_memory();
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

int keys_test::last_byte(const unpacked &key, uint64_t address, uint64_t length)
{
    const uint64_t last = address + length - 1;
    last_error          = 0;
    last_status         = key->hold();
    if (last_status != UCS_OK) {
        return -1;
    }
    unsigned char byte = 0;
    const auto *host   = key->host();
    if (host != nullptr) {
        last_error = host->read(&byte, last, 1);
    } else if (goes_over_host()) {
        std::unique_ptr<base::transfer_engine> engine;
        last_status = base::transfer_engine::create({}, engine);
        if (last_status == UCS_OK) {
            last_status = engine->copy(&byte, {*key.key(), last}, 1);
        }
        last_error = (last_status == UCS_OK) ? 0 : -EIO;
    } else {
        base::kept_range kept;
        uint64_t va = 0;
        EXPECT_EQ(key->keep(address, length, kept), UCS_OK);
        last_error = key->await_va_on(card(), address, length, va);
        if (last_error == 0) {
            last_error = copy_host(card(), &byte, 1, va + length - 1, true);
        }
    }
    key->release();
    return (last_error == 0) ? byte : -1;
}

} // namespace gaudi::test
