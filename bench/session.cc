/* SPDX-License-Identifier: BSD-3-Clause */
#include "session.h"

#include "hlthunk_shim/hlthunk/library.h"

#include <cstdlib>
#include <cstring>

#include <dlfcn.h>
#include <sys/mman.h>

namespace gaudi::bench {

namespace {

constexpr char module_path[] = GAUDI_BUILD_DIR "/lib/libuct_hlthunk.so.0";
constexpr char emulator_path[] =
    GAUDI_BUILD_DIR "/lib/hlthunk-emu/libhl-thunk.so";

} // namespace

session &session::instance()
{
    static auto *opened = new session;
    return *opened;
}

void load_module(const char *card)
{
    setenv("UCX_GAUDI_DRIVER", "emulator", 1);
    setenv("UCX_GAUDI_DEVICES", card, 1);
    require(dlopen(module_path, RTLD_NOW) != nullptr, "loading the module");
}

device_allocation::device_allocation(uct_md_h md, size_t size)
{
    uct_md_attr_t md_attr;
    require(uct_md_query(md, &md_attr), "md_query");
    const uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
    uct_mem_alloc_params_t alloc{};
    alloc.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS |
                       UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE |
                       UCT_MEM_ALLOC_PARAM_FIELD_MDS;
    alloc.flags    = UCT_MD_MEM_ACCESS_ALL;
    alloc.mem_type = static_cast<ucs_memory_type_t>(
        __builtin_ctzl(md_attr.cap.alloc_mem_types));
    alloc.mds = {&md, 1};
    require(uct_mem_alloc(size, &method, 1, &alloc, &memory_), "mem_alloc");
}

session::session() : transport("gaudi_copy", "gaudi_cpy", "gaudi0")
{}

host_buffer::host_buffer(size_t size, bool registered) : size_(size)
{
    void *mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(mapped != MAP_FAILED, "mmap");
    data_ = static_cast<char *>(mapped);
    std::memset(data_, 1, size);
    if (registered) {
        require(uct_md_mem_reg(session::instance().md, data_, size,
                               UCT_MD_MEM_ACCESS_ALL, &memh_),
                "mem_reg");
    }
}

host_buffer::~host_buffer()
{
    if (memh_ != nullptr) {
        (void)uct_md_mem_dereg(session::instance().md, memh_);
    }
    munmap(data_, size_);
}

bare_card &bare_card::instance()
{
    static auto *opened = new bare_card;
    return *opened;
}

bare_card::bare_card() : driver_(emulator_path)
{
    constexpr size_t size          = 1 << 20;
    char bus_id[shim::bus_id_size] = {};

    const shim::library &lib = driver_.lib();
    require(lib.usable(), "loading the emulator");
    const int control = lib.hlthunk_open_control(1, nullptr);
    require((control >= 0) && (lib.hlthunk_get_pci_bus_id_from_fd(
                                   control, bus_id, sizeof(bus_id)) == 0),
            "identifying card 1");
    lib.hlthunk_close(control);
    require(driver_.open(bus_id, card_) == 0, "opening card 1");
    /* Away from what UCX has on card 0: an address of two cards is neither's.
     */
    const shim::capabilities &known = card_->capabilities();
    const uint64_t hint =
        known.next_page(known.memory_start + (uint64_t{1} << 43));
    require(card_->allocate(size, hint, memory_) == 0, "allocating");
    require(memory_.address() == hint, "mapping at the wished address");
    require(shim::pinned_buffer::create(*card_, size, host_) == 0, "pinning");
    require(
        card_->make_queue(shim::dma_direction::host_to_device, {}, queue_) == 0,
        "creating a queue");
}

void bare_card::submit_and_poll(size_t size)
{
    uint64_t id;
    shim::dma_completion ended{};
    require(queue_->submit(memory_.address(), host_.address(), size, nullptr,
                           id) == 0,
            "submitting");
    while (queue_->poll(&ended, 1) == 0) {}
    require(ended.status == 0, "copying");
}

} // namespace gaudi::bench
