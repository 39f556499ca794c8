/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/tools/peer/memory.h"

#include "gtest/tools/peer/check.h"
#include "gtest/tools/release.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>

#include <ucs/memory/memory_type.h>

namespace peer {

namespace {

/* Moves bytes between host and device memory. Nothing of what is tested is set
 * here: always the default protocols, and no other transport. */
class mover {
public:
    static mover &instance()
    {
        static mover the_one;
        return the_one;
    }

    void copy(void *to, const void *from, size_t size)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        const ucp_request_param_t defaults{};
        ucs_status_ptr_t requests[] = {
            ucp_tag_recv_nbx(worker_.get(), to, size, 1, UINT64_MAX, &defaults),
            ucp_tag_send_nbx(ep_, from, size, 1, &defaults)};
        for (ucs_status_ptr_t request : requests) {
            wait(request);
        }
    }

private:
    mover()
    {
        require(connect(worker_, worker_.address(), false, {}, ep_),
                "ucp_ep_create");
    }

    ~mover() { wait(disconnect(ep_, false)); }

    void wait(ucs_status_ptr_t request)
    {
        finish(request, "message to itself", {&worker_});
    }

    static void configure(ucp_config_t *config)
    {
        for (const auto &[name, value] :
             {std::pair("TLS", "gaudi_cpy,self"),
              std::pair("PROTO_ENABLE", gaudi::test::default_protocols)}) {
            require(ucp_config_modify(config, name, value), name);
        }
    }

    std::mutex mutex_;
    context context_{
        {.features = UCP_FEATURE_TAG, .configure = &mover::configure}};
    /* Whoever holds the lock uses it. */
    worker worker_{context_, UCS_THREAD_MODE_SERIALIZED};
    ucp_ep_h ep_ = nullptr;
};

/* All bytes come from one sequence; a seed is a place in it. */
constexpr size_t seed_step  = 127;
constexpr size_t most_seeds = 4096;
constexpr size_t most_bytes = (16ul << 20) + 4096;
constexpr size_t mixing[]   = {0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9};

const char *pattern(unsigned seed)
{
    static const std::vector<char> sequence = [] {
        std::vector<char> bytes(most_bytes + most_seeds * seed_step);
        for (size_t i = 0; i < bytes.size(); ++i) {
            const size_t mixed = (i + 1) * mixing[0];
            bytes[i] =
                static_cast<char>(((mixed ^ (mixed >> 31)) * mixing[1]) >> 56);
        }
        return bytes;
    }();
    if (seed >= most_seeds) {
        die("pattern", "there are not that many seeds");
    }
    return sequence.data() + seed * seed_step;
}

/* Part of a slot, from a position relative to the guard's start. */
void expect_part(const slot &what, const char *there, size_t first, size_t end,
                 unsigned seed)
{
    const char *wanted = pattern(seed);
    if (std::memcmp(there + first, wanted + first, end - first) == 0) {
        return;
    }
    while (there[first] == wanted[first]) {
        ++first;
    }
    die(std::string(name_of(what.where.kind())) + " memory, byte " +
            std::to_string(static_cast<ssize_t>(first) -
                           static_cast<ssize_t>(guard)),
        "is " + std::to_string(there[first]) + ", not " +
            std::to_string(wanted[first]));
}

} // namespace

const char *name_of(kind_of_memory kind)
{
    switch (kind) {
    case kind_of_memory::heap:
        return "heap";
    case kind_of_memory::host:
        return "host";
    default:
        return "gaudi";
    }
}

ucs_memory_type_t type_of(kind_of_memory kind)
{
    if (kind != kind_of_memory::gaudi) {
        return UCS_MEMORY_TYPE_HOST;
    }
    for (int type = 0; type < UCS_MEMORY_TYPE_LAST; ++type) {
        if (std::strcmp("gaudi", ucs_memory_type_names[type]) == 0) {
            return static_cast<ucs_memory_type_t>(type);
        }
    }
    die("memory type gaudi", "UCX does not know it");
}

void description::send(const channel &to) const
{
    to.send(&address, sizeof(address));
    to.send_block(key);
}

description description::receive(const channel &from)
{
    description result;
    from.receive(&result.address, sizeof(result.address));
    result.key = from.receive_block();
    return result;
}

std::vector<char> pack_key(ucp_context_h context, ucp_mem_h handle)
{
    void *key   = nullptr;
    size_t size = 0;
    require(ucp_rkey_pack(context, handle, &key, &size), "ucp_rkey_pack");
    const char *bytes = static_cast<char *>(key);
    std::vector<char> result(bytes, bytes + size);
    ucp_rkey_buffer_release(key);
    return result;
}

/* UCP writes which memory domains there are, the type, and for each the length
 * of its part before it. */
size_t find_gaudi_part(const std::vector<char> &key)
{
    uint64_t domains = 0;
    std::memcpy(&domains, key.data(), sizeof(domains));
    size_t at = sizeof(domains) + 1;
    for (; domains != 0; domains &= domains - 1) {
        const auto length = static_cast<unsigned char>(key[at]);
        if (length == gaudi_part_size) {
            return at + 1;
        }
        at += 1 + length;
    }
    return key.size();
}

memory::memory(const context &of, kind_of_memory kind, size_t size,
               uint64_t wish, bool plain)
    : of_(of), kind_(kind), size_(size)
{
    ucp_mem_map_params_t params{};
    params.field_mask =
        UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
    params.length      = size;
    params.memory_type = type_of(kind);
    if (kind == kind_of_memory::heap) {
        heap_.resize(size);
        if (plain) {
            data_ = heap_.data();
            return;
        }
        params.field_mask |= UCP_MEM_MAP_PARAM_FIELD_ADDRESS;
        params.address = heap_.data();
    } else if ((kind == kind_of_memory::gaudi) && has_own_card()) {
        /* UCP has to find out what it is. */
        own_ = allocate_on_own_card(size);
        params.field_mask =
            UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_ADDRESS;
        params.address = reinterpret_cast<void *>(own_.address);
    } else {
        params.field_mask |= UCP_MEM_MAP_PARAM_FIELD_FLAGS;
        params.flags = UCP_MEM_MAP_ALLOCATE;
    }
    if ((kind == kind_of_memory::gaudi) && (wish != 0)) {
        params.field_mask |= UCP_MEM_MAP_PARAM_FIELD_ADDRESS;
        params.address = reinterpret_cast<void *>(wish);
    }
    require(ucp_mem_map(of.get(), &params, &handle_), "ucp_mem_map");

    ucp_mem_attr_t attr{};
    attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_MEM_TYPE;
    require(ucp_mem_query(handle_, &attr), "ucp_mem_query");
    if (attr.mem_type != params.memory_type) {
        die(name_of(kind), "is of another memory type");
    }
    data_ = static_cast<char *>(attr.address);
    if (((params.field_mask & UCP_MEM_MAP_PARAM_FIELD_ADDRESS) != 0) &&
        (data_ < params.address)) {
        die(name_of(kind), "is not near the wished address");
    }
}

memory::~memory()
{
    if (handle_ != nullptr) {
        require(ucp_mem_unmap(of_.get(), handle_), "ucp_mem_unmap");
    }
    if (own_.address != 0) {
        free_on_own_card(own_);
    }
}

description memory::describe() const
{
    return {reinterpret_cast<uint64_t>(data_), pack_key(of_.get(), handle_)};
}

void memory::store(size_t offset, const char *from, size_t size)
{
    if (kind_ == kind_of_memory::gaudi) {
        mover::instance().copy(data_ + offset, from, size);
    } else {
        std::memcpy(data_ + offset, from, size);
    }
}

void memory::load(size_t offset, char *to, size_t size) const
{
    if (kind_ == kind_of_memory::gaudi) {
        mover::instance().copy(to, data_ + offset, size);
    } else {
        std::memcpy(to, data_ + offset, size);
    }
}

void fill(char *data, size_t size, unsigned seed)
{
    std::memcpy(data, pattern(seed), size);
}

std::vector<char> bytes_of(unsigned seed, size_t size)
{
    return {pattern(seed), pattern(seed) + size};
}

void expect_bytes(const std::vector<char> &there, unsigned seed)
{
    if (std::memcmp(there.data(), pattern(seed), there.size()) != 0) {
        die("contents", "differ");
    }
}

void prepare(const slot &what, unsigned seed)
{
    what.where.store(what.offset - guard, pattern(seed), what.size + 2 * guard);
}

void expect(const slot &what, unsigned seed, unsigned around)
{
    thread_local std::vector<char> loaded;
    const size_t size = what.size + 2 * guard;
    const char *there = what.data() - guard;
    if (what.where.kind() == kind_of_memory::gaudi) {
        loaded.resize(std::max(loaded.size(), size));
        what.where.load(what.offset - guard, loaded.data(), size);
        there = loaded.data();
    }
    expect_part(what, there, 0, guard, around);
    expect_part(what, there, guard, guard + what.size, seed);
    expect_part(what, there, guard + what.size, size, around);
}

ucp_request_param_t parameters_for(const slot &what)
{
    ucp_request_param_t params{};
    if (what.registered && (what.where.handle() != nullptr)) {
        params.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH;
        params.memh         = what.where.handle();
    }
    return params;
}

} // namespace peer
