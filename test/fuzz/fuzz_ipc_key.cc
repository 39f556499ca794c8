/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys from other processes: any bytes to their reader, and keys of a real
 * process with some bytes changed to rkey_unpack. What is accepted is used,
 * over a link to that process. */
#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/memory/device_pool.h"
#include "uct/gaudi/base/transfer/engine.h"
#include "uct/gaudi/base/ucx/config.h"
#include "uct/gaudi/base/ucx/memory_type.h"
#include "uct/gaudi/ipc/ipc_md.h"
#include "uct/gaudi/ipc/link.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern "C" const char *__lsan_default_suppressions();

/* What UCX itself leaks when it parses its configuration. */
extern "C" const char *__lsan_default_suppressions()
{
    return "leak:libucs.so\nleak:libuct.so\nleak:libucm.so\n";
}

namespace {

using gaudi::base::card_table;
using gaudi::base::transfer_engine;
using gaudi::ipc::component;
using gaudi::ipc::link;
using gaudi::ipc::remote_key;
using gaudi::ipc::wire_key;

constexpr size_t block = size_t{48} << 20;

void require(bool condition, int line = __builtin_LINE())
{
    if (!condition) {
        std::fprintf(stderr, "%s:%d: not as it has to be\n", __FILE__, line);
        std::abort();
    }
}

uct_md_h open_md()
{
    uct_md_config_t *config;
    uct_md_h md;
    require(uct_md_config_read(&component(), nullptr, nullptr, &config) ==
            UCS_OK);
    require(uct_md_open(&component(), "gaudi_ipc", config, &md) == UCS_OK);
    uct_config_release(config);
    return md;
}

void start()
{
    setenv("UCX_GAUDI_DRIVER", GAUDI_EMULATOR, 1);
    setenv("UCX_GAUDI_DEVICES", "auto", 1);
    setenv("UCX_GAUDI_IPC_ROUTES", "host", 1);
    require(gaudi::base::init_config());
    require(gaudi::base::init_memory_type());
    ucs_log_push_handler([](const char *, unsigned, const char *,
                            ucs_log_level_t, const ucs_log_component_config_t *,
                            const char *,
                            va_list) { return UCS_LOG_FUNC_RC_STOP; });
}

/* Keys of host and device memory of a child that lives as long as we do. */
const wire_key *valid_keys()
{
    static wire_key keys[2];
    static const bool once = [] {
        setenv("HLTHUNK_EMU_NODE", ("fuzz-" + std::to_string(getpid())).c_str(),
               1);
        int ends[2];
        require(pipe(ends) == 0);
        const pid_t parent = getpid();
        const pid_t child  = fork();
        require(child >= 0);
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            require(getppid() == parent);
            start();
            uct_md_h md = open_md();
            gaudi::base::device_memory *device;
            auto &cards = card_table::instance();
            require(gaudi::base::allocate(*cards.cards().all().front(), block,
                                          false, device) == UCS_OK);
            static char host[4096];
            void *memory[] = {host, reinterpret_cast<void *>(device->start)};
            const size_t size[] = {sizeof(host), block};
            for (int i = 0; i < 2; ++i) {
                uct_mem_h memh;
                require(uct_md_mem_reg(md, memory[i], size[i],
                                       UCT_MD_MEM_ACCESS_ALL, &memh) == UCS_OK);
                require(uct_md_mkey_pack(md, memh, &keys[i]) == UCS_OK);
            }
            require(write(ends[1], keys, sizeof(keys)) == sizeof(keys));
            for (;;) {
                pause();
            }
        }
        require(read(ends[0], keys, sizeof(keys)) == sizeof(keys));
        close(ends[0]);
        close(ends[1]);
        start();
        return true;
    }();
    (void)once;
    return keys;
}

/* What copies from memory of the child. */
struct reader {
    explicit reader(const wire_key &valid)
    {
        require(link::open({valid.process, 0, valid.pid}, {65536, 4},
                           std::make_shared<gaudi::ipc::event>(),
                           to) == UCS_OK);
        require(transfer_engine::create({}, engine) == UCS_OK);
    }

    std::shared_ptr<link> to; /* goes last */
    std::unique_ptr<transfer_engine> engine;
};

std::unique_ptr<reader> &current_reader()
{
    static auto *made = new std::unique_ptr<reader>;
    return *made;
}

/* Whether the child gives it. */
bool is_there(const wire_key &wire, const wire_key *valid)
{
    return std::any_of(valid, valid + 2, [&](const wire_key &each) {
        return (wire.word == each.word) && (wire.address >= each.address) &&
               (wire.address - each.address < each.length);
    });
}

void unpack(const wire_key &wire, const wire_key *valid)
{
    /* To the byte: a reader that goes on is caught. */
    const auto bytes = std::make_unique<char[]>(sizeof(wire));
    std::memcpy(bytes.get(), &wire, sizeof(wire));
    uct_rkey_bundle_t unpacked{};
    const ucs_status_t status =
        uct_rkey_unpack(&component(), bytes.get(), &unpacked);
    require((status == UCS_OK) || (status == UCS_ERR_UNREACHABLE) ||
            (status == UCS_ERR_INVALID_PARAM));
    if (status != UCS_OK) {
        return;
    }
    remote_key *key = gaudi::ipc::to_remote_key(unpacked.rkey);
    require(!key->is_own());
    require(key->state() == UCS_OK);
    require(key->check(wire.address, wire.length) == UCS_OK);
    require(key->check(wire.address - 1, wire.length) == UCS_ERR_INVALID_ADDR);
    require(
        (wire.length == UINT64_MAX) ||
        (key->check(wire.address, wire.length + 1) == UCS_ERR_INVALID_ADDR));
    if ((wire.length > 0) && (wire.process == valid->process)) {
        std::unique_ptr<reader> &by = current_reader();
        if (by == nullptr) {
            by = std::make_unique<reader>(*valid);
        }
        char byte = 0;
        require((by->engine->copy(&byte, {*key, wire.address, by->to.get()},
                                  1) == UCS_OK) == is_there(wire, valid));
        require(!by->to->is_over());
    }
    require(uct_rkey_release(&component(), &unpacked) == UCS_OK);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const wire_key *valid = valid_keys();
    static uct_md_h md    = open_md();
    if (size == 0) {
        return 0;
    }
    const uint8_t what = *data++;
    --size;
    wire_key key{};
    if (what % 8 == 0) {
        /* Anything, on this machine: else nothing is looked at. */
        std::memcpy(&key, data, std::min(size, sizeof(key)));
        key.version = valid[0].version;
        key.place   = (what < 128) ? valid[0].place : key.place;
        key.process = (what % 16 == 0) ? valid[0].process : key.process;
    } else {
        key = valid[what & 1];
        for (; size >= 2; data += 2, size -= 2) {
            reinterpret_cast<uint8_t *>(&key)[data[0] % sizeof(key)] ^= data[1];
        }
    }
    if ((what & 64) == 0) { /* else it was damaged, for the most part */
        gaudi::ipc::seal_key(key);
    }
    if (what % 32 == 31) { /* with nothing open */
        current_reader().reset();
        uct_md_close(md);
        md = open_md();
    }
    unpack(key, valid);
    if (what % 8 != 0) {
        unpack(valid[what & 1], valid); /* spoilt by nothing */
    }
    return 0;
}
