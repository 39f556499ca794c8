/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory domain: bytes drive a sequence of its operations on the software
 * Gaudi, with ranges, handles and keys that make sense and such that do not.
 * Every status is compared with what a simple model says. */
#include <config.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

extern "C" {
#include <ucs/debug/log.h>
#include <uct/api/uct.h>
#include <uct/api/v2/uct_v2.h>
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern "C" const char *__lsan_default_suppressions();

/* What UCX itself leaks when it parses its configuration. */
extern "C" const char *__lsan_default_suppressions()
{
    return "leak:libucs.so\nleak:libuct.so\nleak:libucm.so\n";
}

namespace {

/* Before the module's own constructor, which reads them. */
[[gnu::constructor(101)]] void set_environment()
{
    setenv("UCX_GAUDI_DRIVER", GAUDI_EMULATOR, 1);
    setenv("UCX_GAUDI_DEVICES", "0", 1);
    setenv("UCX_GAUDI_COPY_RCACHE", "y", 1);
    setenv("UCX_GAUDI_COPY_RCACHE_MAX_REGIONS", "8", 1);
    setenv("HLTHUNK_EMU_NODE", ("fuzz-" + std::to_string(getpid())).c_str(), 1);
}

void require(bool condition, int line = __builtin_LINE())
{
    if (!condition) {
        std::fprintf(stderr, "%s:%d: not as the model says\n", __FILE__, line);
        std::abort();
    }
}

constexpr size_t page         = 4096;
constexpr size_t arena_size   = 64 * page;
constexpr size_t most         = 32;
constexpr uint64_t host_limit = uint64_t{1} << 56; /* without tags */

/* Of Gaudi2, of Gaudi3, of memory of others, and of imports. */
bool is_device(uint64_t address)
{
    const uint64_t part = address >> 48;
    return (part == 0x1001) || (part == 0x0201) || (part == 0x4001) ||
           (part >= 0x8000);
}

using allocation = uct_allocated_memory_t;

uint64_t start_of(const allocation &memory)
{
    return reinterpret_cast<uintptr_t>(memory.address);
}

struct registration {
    uct_mem_h memh;
    uint64_t start;
    uint64_t length;
};

struct world {
    world()
    {
        ucs_log_push_handler(
            [](const char *, unsigned, const char *, ucs_log_level_t,
               const ucs_log_component_config_t *, const char *,
               va_list) { return UCS_LOG_FUNC_RC_STOP; });
        uct_component_h *components;
        unsigned count;
        require(uct_query_components(&components, &count) == UCS_OK);
        for (unsigned i = 0; i < count; ++i) {
            uct_component_attr_t attr;
            attr.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME;
            require(uct_component_query(components[i], &attr) == UCS_OK);
            if (std::strcmp(attr.name, "gaudi_copy") == 0) {
                component = components[i];
            }
        }
        uct_release_component_list(components);
        require(component != nullptr);
        uct_md_config_t *config;
        require(uct_md_config_read(component, nullptr, nullptr, &config) ==
                UCS_OK);
        require(uct_md_open(component, "gaudi_copy", config, &md) == UCS_OK);
        uct_config_release(config);
        uct_md_attr_t attr;
        require(uct_md_query(md, &attr) == UCS_OK);
        type = static_cast<ucs_memory_type_t>(
            __builtin_ctzl(attr.cap.alloc_mem_types));
        void *mapped = mmap(nullptr, arena_size, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        require(mapped != MAP_FAILED);
        arena = static_cast<char *>(mapped);
    }

    uct_component_h component = nullptr;
    uct_md_h md               = nullptr;
    ucs_memory_type_t type    = UCS_MEMORY_TYPE_UNKNOWN;
    char *arena               = nullptr;
};

world &here()
{
    static auto *opened = new world;
    return *opened;
}

class reader {
public:
    reader(const uint8_t *data, size_t size) : data_(data), left_(size) {}

    [[nodiscard]] bool empty() const { return left_ == 0; }

    /* Zeroes when the input is at its end. */
    template <typename Number>
    Number take()
    {
        Number number      = 0;
        const size_t bytes = std::min(sizeof(number), left_);
        std::memcpy(&number, data_, bytes);
        data_ += bytes;
        left_ -= bytes;
        return number;
    }

private:
    const uint8_t *data_;
    size_t left_;
};

class sequence {
public:
    explicit sequence(const reader &input) : in_(input) {}

    void run()
    {
        constexpr void (sequence::*steps[])() = {
            &sequence::allocate,
            &sequence::release,
            &sequence::register_host,
            &sequence::register_slice,
            &sequence::register_anything,
            &sequence::deregister,
            &sequence::advise,
            &sequence::pack_and_unpack,
            &sequence::unpack_anything,
            &sequence::query,
            &sequence::map_anew,
            &sequence::use_foreign_handles,
        };
        while (!in_.empty()) {
            (this->*steps[in_.take<uint8_t>() % std::size(steps)])();
        }
        while (!registrations_.empty()) {
            deregister_at(registrations_.size() - 1);
        }
        for (auto &left : allocations_) {
            require(uct_mem_free(&left) == UCS_OK);
        }
    }

private:
    /* The allocation around a range, or nullptr. An empty range is where its
     * first byte would be. */
    allocation *find(uint64_t start, uint64_t length)
    {
        length = std::max<uint64_t>(length, 1);
        for (auto &candidate : allocations_) {
            const uint64_t base = start_of(candidate);
            if ((start >= base) && (start - base <= candidate.length) &&
                (length <= candidate.length - (start - base))) {
                return &candidate;
            }
        }
        return nullptr;
    }

    void allocate()
    {
        const size_t length = in_.take<uint16_t>() + size_t{1};
        if (allocations_.size() == most) {
            return;
        }
        const uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
        uct_mem_alloc_params_t params{};
        params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS |
                            UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE |
                            UCT_MEM_ALLOC_PARAM_FIELD_MDS;
        params.flags    = UCT_MD_MEM_ACCESS_ALL;
        params.mem_type = here().type;
        params.mds      = {&here().md, 1};
        allocation made{};
        require(uct_mem_alloc(length, &method, 1, &params, &made) == UCS_OK);
        require(find(start_of(made), 1) == nullptr);
        allocations_.push_back(made);
    }

    void release()
    {
        const size_t index = in_.take<uint8_t>();
        if (index >= allocations_.size()) {
            return;
        }
        /* Registrations of it end when they will. */
        require(uct_mem_free(&allocations_[index]) == UCS_OK);
        allocations_.erase(allocations_.begin() + static_cast<long>(index));
    }

    void register_range(uint64_t start, uint64_t length)
    {
        if (registrations_.size() == most) {
            return;
        }
        ucs_status_t expected = UCS_OK;
        allocation *owner     = nullptr;
        if ((start == 0) || (length == 0)) {
            expected = UCS_ERR_INVALID_PARAM;
        } else if (is_device(start)) {
            owner = find(start, length);
            if ((owner == nullptr) && (start % 16 == 0) && (length % 16 == 0)) {
                owner = find(start, length - 15); /* as UCP rounds up */
            }
            expected = (owner != nullptr) ? UCS_OK : UCS_ERR_INVALID_ADDR;
        } else if (length > host_limit - start % host_limit) {
            expected = UCS_ERR_INVALID_ADDR;
        }
        uct_mem_h memh = nullptr;
        require(uct_md_mem_reg(here().md, reinterpret_cast<void *>(start),
                               length, UCT_MD_MEM_ACCESS_ALL,
                               &memh) == expected);
        if (expected != UCS_OK) {
            return;
        }
        require(memh != nullptr);
        registrations_.push_back({memh, start, length});
    }

    void register_host()
    {
        const uint64_t offset = in_.take<uint32_t>() % arena_size;
        const uint64_t length = in_.take<uint32_t>() % (arena_size - offset);
        register_range(reinterpret_cast<uintptr_t>(here().arena) + offset,
                       length);
    }

    void register_slice()
    {
        const size_t index    = in_.take<uint8_t>();
        const uint64_t offset = in_.take<uint16_t>();
        const uint64_t length = in_.take<uint16_t>();
        if (index < allocations_.size()) {
            register_range(start_of(allocations_[index]) + offset, length);
        }
    }

    void register_anything()
    {
        const auto start  = in_.take<uint64_t>();
        const auto length = in_.take<uint64_t>();
        register_range(start, length);
    }

    void deregister_at(size_t index)
    {
        require(uct_md_mem_dereg(here().md, registrations_[index].memh) ==
                UCS_OK);
        registrations_.erase(registrations_.begin() + static_cast<long>(index));
    }

    void deregister()
    {
        const size_t index = in_.take<uint8_t>();
        if (index < registrations_.size()) {
            deregister_at(index);
        }
    }

    void advise()
    {
        const size_t index = in_.take<uint8_t>();
        const auto offset  = in_.take<uint32_t>();
        const auto length  = in_.take<uint32_t>();
        const auto advice  = in_.take<uint8_t>();
        if (index >= registrations_.size()) {
            return;
        }
        const registration &chosen = registrations_[index];
        if (!is_device(chosen.start) && (chosen.length > arena_size)) {
            return; /* the card would look at each page */
        }
        const ucs_status_t status =
            uct_md_mem_advise(here().md, chosen.memh,
                              reinterpret_cast<void *>(chosen.start + offset),
                              length, static_cast<uct_mem_advice_t>(advice));
        if ((length == 0) || (advice > UCT_MADV_WILLNEED)) {
            require(status == UCS_ERR_INVALID_PARAM);
        } else if (offset + uint64_t{length} <= chosen.length) {
            require(status == UCS_OK);
        } else { /* the registration may be larger */
            require((status == UCS_OK) || (status == UCS_ERR_INVALID_PARAM));
        }
    }

    void pack_and_unpack()
    {
        const size_t index = in_.take<uint8_t>();
        if (index < registrations_.size()) {
            std::vector<char> key(key_size());
            require(uct_md_mkey_pack(here().md, registrations_[index].memh,
                                     key.data()) == UCS_OK);
            uct_rkey_bundle_t bundle;
            require(uct_rkey_unpack(here().component, key.data(), &bundle) ==
                    UCS_OK);
            require(uct_rkey_release(here().component, &bundle) == UCS_OK);
        }
    }

    void unpack_anything()
    {
        std::vector<char> key(key_size());
        for (char &byte : key) {
            byte = in_.take<char>();
        }
        uct_rkey_bundle_t bundle;
        if (uct_rkey_unpack(here().component, key.data(), &bundle) == UCS_OK) {
            require(uct_rkey_release(here().component, &bundle) == UCS_OK);
        }
    }

    void query()
    {
        const auto base   = in_.take<uint8_t>();
        const auto start  = in_.take<uint64_t>();
        const auto length = in_.take<uint64_t>();
        uint64_t address  = start;
        if (base < allocations_.size()) {
            address = start_of(allocations_[base]) + start % 65536;
        }
        uct_md_mem_attr_t attr{};
        attr.field_mask = UCT_MD_MEM_ATTR_FIELD_MEM_TYPE |
                          UCT_MD_MEM_ATTR_FIELD_SYS_DEV |
                          UCT_MD_MEM_ATTR_FIELD_BASE_ADDRESS |
                          UCT_MD_MEM_ATTR_FIELD_ALLOC_LENGTH;
        const auto *pointer = reinterpret_cast<void *>(address);
        const ucs_status_t expected =
            is_device(address) ? UCS_OK : UCS_ERR_INVALID_ADDR;
        require(uct_md_mem_query(here().md, pointer, length, &attr) ==
                expected);
        ucs_memory_type_t detected;
        require(uct_md_detect_memory_type(here().md, pointer, length,
                                          &detected) == expected);
        if (expected != UCS_OK) {
            return;
        }
        require((attr.mem_type == here().type) && (detected == here().type));
        const allocation *owner = find(address, length);
        if (owner != nullptr) {
            require(attr.base_address == owner->address);
            require(attr.sys_dev != UCS_SYS_DEVICE_ID_UNKNOWN);
        } else {
            require(attr.base_address == pointer);
            require(attr.alloc_length == length);
            require(attr.sys_dev == UCS_SYS_DEVICE_ID_UNKNOWN);
        }
    }

    /* As a program that unmaps and gets the same address again. */
    void map_anew()
    {
        char *at = here().arena + (in_.take<uint8_t>() % 64) * page;
        munmap(at, page);
        require(mmap(at, page, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
    }

    void use_foreign_handles()
    {
        static uint64_t foreign[16];
        foreign[0] = in_.take<uint64_t>() & 0xffff;
        require(uct_md_mem_dereg(here().md, foreign) == UCS_ERR_INVALID_PARAM);
        require(uct_md_mem_advise(here().md, foreign, foreign, 1,
                                  UCT_MADV_NORMAL) == UCS_ERR_INVALID_PARAM);
        for (const auto &each : allocations_) {
            require(uct_md_mem_dereg(here().md, each.memh) ==
                    UCS_ERR_INVALID_PARAM);
        }
    }

    static size_t key_size()
    {
        uct_md_attr_t attr;
        require(uct_md_query(here().md, &attr) == UCS_OK);
        return attr.rkey_packed_size + 1;
    }

    reader in_;
    std::vector<allocation> allocations_;
    std::vector<registration> registrations_;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sequence({data, size}).run();
    return 0;
}
