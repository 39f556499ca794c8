/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Unpacking a key of gaudi_ipc whose buffer is open, with few open buffers and
 * keys beside it and with many.
 *
 * The exporter is a child with a card of its own. Buffers are of one DRAM page
 * each, with some keys into every one.
 */
#include "other_process.h"
#include "transport.h"
#include "uct/gaudi/base/cards/card_table.h"
#include "uct/gaudi/base/memory/device_pool.h"
#include "uct/gaudi/base/ucx/config.h"
#include "uct/gaudi/base/ucx/memory_type.h"
#include "uct/gaudi/ipc/ipc_md.h"

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

namespace {

using gaudi::base::card_table;
using gaudi::bench::require;
using gaudi::ipc::component;
using gaudi::ipc::wire_key;

constexpr size_t device_page     = size_t{48} << 20;
constexpr size_t most_keys       = 100'000;
constexpr size_t keys_per_buffer = 10;
constexpr size_t hot_keys        = 10;

std::vector<wire_key> keys(most_keys);

uct_md_h open_md()
{
    uct_md_config_t *config;
    uct_md_h md;
    require(uct_md_config_read(&component(), nullptr, nullptr, &config),
            "md_config_read");
    /* UCX 1.15 and later want the prefix. */
    const std::string most = std::to_string(most_keys);
    require((uct_config_modify(config, "CACHE_MAX_REGIONS", most.c_str()) ==
             UCS_OK) ||
                (uct_config_modify(config, "GAUDI_IPC_CACHE_MAX_REGIONS",
                                   most.c_str()) == UCS_OK),
            "config_modify");
    require(uct_md_open(&component(), "gaudi_ipc", config, &md), "md_open");
    uct_config_release(config);
    return md;
}

void start()
{
    require(gaudi::base::init_config(), "init_config");
    require(gaudi::base::init_memory_type(), "init_memory_type");
}

[[noreturn]] void be_exporter(int to)
{
    start();
    uct_md_h md                         = open_md();
    const gaudi::base::held_cards cards = card_table::instance().cards();
    for (size_t i = 0; i < most_keys; i += keys_per_buffer) {
        gaudi::base::device_memory *memory;
        require(
            gaudi::base::allocate(*cards.first(), device_page, false, memory),
            "allocate");
        for (size_t j = 0; j < keys_per_buffer; ++j) {
            uct_mem_h memh;
            void *address = reinterpret_cast<void *>(memory->start + j * 4096);
            require(
                uct_md_mem_reg(md, address, 4096, UCT_MD_MEM_ACCESS_ALL, &memh),
                "mem_reg");
            require(uct_md_mkey_pack(md, memh, &keys[i + j]), "mkey_pack");
        }
    }
    gaudi::bench::send_all(to, keys.data(), keys.size() * sizeof(wire_key));
    for (;;) {
        pause();
    }
}

uct_rkey_t unpack(const wire_key &key)
{
    uct_rkey_bundle_t unpacked;
    require(uct_rkey_unpack(&component(), &key, &unpacked), "rkey_unpack");
    return unpacked.rkey;
}

void release(uct_rkey_t rkey)
{
    uct_rkey_bundle_t unpacked{rkey, nullptr, nullptr};
    (void)uct_rkey_release(&component(), &unpacked);
}

/* So many keys stay unpacked, and their buffers open; ten of them, of ten
 * buffers, are unpacked again and again. */
void unpack_cached_key(benchmark::State &state)
{
    const auto count    = static_cast<size_t>(state.range(0));
    const size_t stride = most_keys / count;
    uct_md_h md         = open_md();
    std::vector<uct_rkey_t> kept;
    for (size_t i = 0; i < count; ++i) {
        kept.push_back(unpack(keys[i * stride]));
    }
    size_t next = 0;
    for (auto _ : state) {
        release(unpack(keys[next]));
        next += most_keys / hot_keys;
        next = (next < most_keys) ? next : 0;
    }
    const auto cache = gaudi::ipc::remote_buffers::instance().numbers();
    require(cache.evictions == 0, "keeping all buffers");
    state.counters["regions"] = static_cast<double>(cache.regions);
    for (const uct_rkey_t rkey : kept) {
        release(rkey);
    }
    uct_md_close(md);
}

/* A fixed number: setting up takes long, and would be done anew for each guess.
 */
BENCHMARK(unpack_cached_key)->Arg(hot_keys)->Arg(most_keys)->Iterations(500000);

} // namespace

int main(int argc, char **argv)
{
    rlimit files{};
    (void)getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    setenv("UCX_GAUDI_DRIVER",
           GAUDI_BUILD_DIR "/lib/hlthunk-emu/libhl-thunk.so", 1);
    setenv("HLTHUNK_EMU_HBM", "1T", 1);
    /* A box of our own. */
    setenv("HLTHUNK_EMU_NODE", ("bench-" + std::to_string(getpid())).c_str(),
           1);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
        return 1;
    }

    const int exporter = gaudi::bench::start_other_process(be_exporter);
    gaudi::bench::receive_all(exporter, keys.data(),
                              keys.size() * sizeof(wire_key));
    start();
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
