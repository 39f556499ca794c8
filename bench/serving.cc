/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a serving system does with its keys and values: writes of thousands of
 * blocks to another process, all on their way at once, from device memory to
 * device memory, beside the same from host memory to host memory.
 *
 * The calls are those of NIXL 1.4.0's UCX backend: memory that is registered
 * without a type, endpoints that notice dead peers, puts with memory handles
 * that are not remembered one by one, and a flush after each list. The other
 * process is a child. Run by the launcher, with the software cards.
 */
#include "other_process.h"
#include "transport.h"

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <sys/mman.h>
#include <sys/socket.h>

extern "C" {
#include <ucp/api/ucp.h>
}

namespace {

constexpr size_t memory_size = size_t{128} << 20; /* blocks begin again */
constexpr size_t blocks      = 2048;
constexpr int smallest_block = 16 << 10;
constexpr int largest_block  = 2 << 20;
/* What NIXL had to move in one request for a large model, and a tenth. */
constexpr int few_descriptors   = 11200;
constexpr int many_descriptors  = 112000;
constexpr size_t of_descriptors = 4 << 10;

using gaudi::bench::receive_all;
using gaudi::bench::require;
using gaudi::bench::send_all;

/* --- between the two processes -------------------------------------------- */

void send_block(int to, const void *data, size_t size)
{
    send_all(to, &size, sizeof(size));
    send_all(to, data, size);
}

std::vector<char> receive_block(int from)
{
    size_t size;
    receive_all(from, &size, sizeof(size));
    std::vector<char> data(size);
    receive_all(from, data.data(), size);
    return data;
}

/* --- one of the two; never closed ------------------------------------------
 */

/* Registered memory, and the other process's memory of the same kind. */
struct memory {
    char *data       = nullptr;
    ucp_mem_h handle = nullptr;
    uint64_t others  = 0;
    ucp_rkey_h key   = nullptr;
};

class agent {
public:
    agent()
    {
        open();
        device.data = allocate_device();
        host.data   = static_cast<char *>(
            mmap(nullptr, memory_size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
        require(host.data != MAP_FAILED, "mmap");
        add(device, true);
        add(host, false);
    }

    /* Both sides tell of theirs, and then listen. */
    void meet(int other)
    {
        ucp_address_t *address;
        size_t length;
        require(ucp_worker_get_address(worker_, &address, &length), "address");
        send_block(other, address, length);
        ucp_worker_release_address(worker_, address);
        for (const memory *each : {&device, &host}) {
            void *key;
            require(ucp_rkey_pack(context_, each->handle, &key, &length),
                    "rkey_pack");
            send_block(other, key, length);
            ucp_rkey_buffer_release(key);
            const auto where = reinterpret_cast<uint64_t>(each->data);
            send_all(other, &where, sizeof(where));
        }

        const std::vector<char> others_address = receive_block(other);
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.address =
            reinterpret_cast<const ucp_address_t *>(others_address.data());
        require(ucp_ep_create(worker_, &params, &ep_), "ucp_ep_create");
        for (memory *each : {&device, &host}) {
            const std::vector<char> key = receive_block(other);
            require(ucp_ep_rkey_unpack(ep_, key.data(), &each->key),
                    "ucp_ep_rkey_unpack");
            receive_all(other, &each->others, sizeof(each->others));
        }
    }

    void progress() { (void)ucp_worker_progress(worker_); }

    /* Until something has happened. */
    void sleep()
    {
        while (ucp_worker_progress(worker_) != 0) {}
        require(ucp_worker_wait(worker_), "ucp_worker_wait");
    }

    /* All blocks of a list, until they are there. */
    void write(const memory &what, size_t block, size_t count)
    {
        ucp_request_param_t params{};
        params.op_attr_mask =
            UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FLAG_MULTI_SEND;
        params.memh = what.handle;
        for (size_t i = 0; i < count; ++i) {
            /* Scattered: neighbours here are none there. */
            const size_t here  = (i * block) % memory_size;
            const size_t there = (i * 37 * block) % memory_size;
            ucs_status_ptr_t request =
                ucp_put_nbx(ep_, what.data + here, block, what.others + there,
                            what.key, &params);
            require(!UCS_PTR_IS_ERR(request), "ucp_put_nbx");
            if (request != nullptr) {
                ucp_request_free(request);
            }
        }
        const ucp_request_param_t defaults{};
        ucs_status_ptr_t flush = ucp_ep_flush_nbx(ep_, &defaults);
        require(!UCS_PTR_IS_ERR(flush), "ucp_ep_flush_nbx");
        if (flush == nullptr) {
            return;
        }
        while (ucp_request_check_status(flush) == UCS_INPROGRESS) {
            progress();
        }
        require(ucp_request_check_status(flush), "the flush");
        ucp_request_free(flush);
    }

    memory device;
    memory host;

private:
    void open()
    {
        ucp_config_t *config;
        require(ucp_config_read(nullptr, nullptr, &config), "config_read");
        require(ucp_config_modify(config, "RNDV_THRESH", "inf"), "RNDV_THRESH");
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
        require(ucp_init(&params, config, &context_), "ucp_init");
        ucp_config_release(config);
        ucp_worker_params_t worker_params{};
        worker_params.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
        require(ucp_worker_create(context_, &worker_params, &worker_),
                "worker_create");
    }

    /* UCX is not told what memory it is, and has to tell. */
    void add(memory &what, bool is_device)
    {
        ucp_mem_map_params_t params{};
        params.field_mask =
            UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        params.address = what.data;
        params.length  = memory_size;
        require(ucp_mem_map(context_, &params, &what.handle), "ucp_mem_map");
        ucp_mem_attr_t attr{};
        attr.field_mask = UCP_MEM_ATTR_FIELD_MEM_TYPE;
        require(ucp_mem_query(what.handle, &attr), "ucp_mem_query");
        require((attr.mem_type != UCS_MEMORY_TYPE_HOST) == is_device,
                "telling what memory is");
    }

    /* As if a framework had. */
    char *allocate_device()
    {
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                            UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                            UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
        params.length      = memory_size;
        params.flags       = UCP_MEM_MAP_ALLOCATE;
        params.memory_type = find_gaudi();
        ucp_mem_h allocated;
        require(ucp_mem_map(context_, &params, &allocated), "allocating");
        ucp_mem_attr_t attr{};
        attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
        require(ucp_mem_query(allocated, &attr), "ucp_mem_query");
        return static_cast<char *>(attr.address);
    }

    static ucs_memory_type_t find_gaudi()
    {
        for (int type = 0; type < UCS_MEMORY_TYPE_LAST; ++type) {
            if (std::string_view(ucs_memory_type_names[type]) == "gaudi") {
                return static_cast<ucs_memory_type_t>(type);
            }
        }
        require(false, "finding the memory type gaudi");
        return UCS_MEMORY_TYPE_LAST;
    }

    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_   = nullptr;
    ucp_ep_h ep_           = nullptr;
};

/* --- the processes -------------------------------------------------------- */

int other_process = -1;

/* Has memory of both kinds. */
void be_target(int other)
{
    char question;
    if (recv(other, &question, 1, MSG_PEEK) != 1) {
        return; /* nobody wants it */
    }
    agent self;
    self.meet(other);
    for (;;) {
        self.sleep();
    }
}

agent &initiator()
{
    static agent *the_one = [] {
        auto *fresh = new agent;
        fresh->meet(other_process);
        return fresh;
    }();
    return *the_one;
}

void write_lists(benchmark::State &state, const memory &what, size_t block,
                 size_t count)
{
    initiator().write(what, block, count);
    for (auto _ : state) {
        initiator().write(what, block, count);
    }
    state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) *
                            static_cast<int64_t>(count * block));
    state.counters["blocks"] = static_cast<double>(count);
}

void serving_lists(benchmark::State &state)
{
    write_lists(state, initiator().device, state.range(0), blocks);
}

void reference_serving_lists(benchmark::State &state)
{
    write_lists(state, initiator().host, state.range(0), blocks);
}

void serving_long_list(benchmark::State &state)
{
    write_lists(state, initiator().device, of_descriptors, state.range(0));
}

void reference_serving_long_list(benchmark::State &state)
{
    write_lists(state, initiator().host, of_descriptors, state.range(0));
}

} // namespace

BENCHMARK(serving_lists)
    ->RangeMultiplier(2)
    ->Range(smallest_block, largest_block)
    ->UseRealTime();
BENCHMARK(reference_serving_lists)
    ->RangeMultiplier(2)
    ->Range(smallest_block, largest_block)
    ->UseRealTime();
BENCHMARK(serving_long_list)
    ->Arg(few_descriptors)
    ->Arg(many_descriptors)
    ->UseRealTime();
BENCHMARK(reference_serving_long_list)
    ->Arg(few_descriptors)
    ->Arg(many_descriptors)
    ->UseRealTime();

int main(int argc, char **argv)
{
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
        return 1;
    }
    other_process = gaudi::bench::start_other_process(be_target);
    benchmark::RunSpecifiedBenchmarks();
    std::fflush(stdout);
    std::_Exit(0); /* UCX's are not closed */
}
