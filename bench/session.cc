#include "session.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <unistd.h>

namespace gaudi::bench {

namespace {

constexpr char module_path[] = GAUDI_BUILD_DIR "/lib/libuct_gaudi.so.0";
constexpr char emulator_path[] =
    GAUDI_BUILD_DIR "/lib/hlthunk-emu/libhl-thunk.so";

void require(bool good, const char *what)
{
    if (!good) {
        std::fprintf(stderr, "gaudi_bench: %s failed\n", what);
        std::exit(1);
    }
}

void require(ucs_status_t status, const char *what)
{
    require(status == UCS_OK, what);
}

uct_component_h find_component()
{
    uct_component_h *components;
    unsigned count;
    uct_component_h found = nullptr;

    require(uct_query_components(&components, &count), "query_components");
    for (unsigned i = 0; i < count; ++i) {
        uct_component_attr_t attr;
        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME;
        require(uct_component_query(components[i], &attr), "component_query");
        if (std::strcmp(attr.name, "gaudi_copy") == 0) {
            found = components[i];
        }
    }
    uct_release_component_list(components);
    require(found != nullptr, "finding component gaudi_copy");
    return found;
}

} // namespace

session &session::instance()
{
    static auto *opened = new session;
    return *opened;
}

session::session()
{
    setenv("UCX_GAUDI_DRIVER", "emulator", 1);
    setenv("UCX_GAUDI_DEVICES", "0", 1);
    require(dlopen(module_path, RTLD_NOW) != nullptr, "loading the module");

    uct_component_h component = find_component();
    uct_md_config_t *md_config;
    require(uct_md_config_read(component, nullptr, nullptr, &md_config),
            "md_config_read");
    require(uct_md_open(component, "gaudi_copy", md_config, &md), "md_open");
    uct_config_release(md_config);

    uct_iface_config_t *config;
    require(
        uct_md_iface_config_read(md, "gaudi_cpy", nullptr, nullptr, &config),
        "iface_config_read");
    require(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async_),
            "async_context_create");
    require(uct_worker_create(async_, UCS_THREAD_MODE_SINGLE, &worker),
            "worker_create");
    uct_iface_params_t params{};
    params.field_mask =
        UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE;
    params.open_mode            = UCT_IFACE_OPEN_MODE_DEVICE;
    params.mode.device.tl_name  = "gaudi_cpy";
    params.mode.device.dev_name = "gaudi0";
    require(uct_iface_open(md, worker, &params, config, &iface_), "iface_open");
    uct_config_release(config);
    require(uct_iface_query(iface_, &attr), "iface_query");
    uct_iface_progress_enable(iface_, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);

    std::vector<char> address(attr.iface_addr_len);
    auto *iface_address = reinterpret_cast<uct_iface_addr_t *>(address.data());
    require(uct_iface_get_address(iface_, iface_address), "get_address");
    uct_ep_params_t ep_params{};
    ep_params.field_mask = UCT_EP_PARAM_FIELD_IFACE |
                           UCT_EP_PARAM_FIELD_DEV_ADDR |
                           UCT_EP_PARAM_FIELD_IFACE_ADDR;
    ep_params.iface      = iface_;
    ep_params.dev_addr   = reinterpret_cast<uct_device_addr_t *>(iface_address);
    ep_params.iface_addr = iface_address;
    require(uct_ep_create(&ep_params, &ep), "ep_create");

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
    require(uct_mem_alloc(max_size, &method, 1, &alloc, &device_), "mem_alloc");
}

void session::zcopy(uct_ep_put_zcopy_func_t start, void *local, size_t size)
{
    uct_iov_t iov{};
    iov.buffer        = local;
    iov.length        = size;
    iov.count         = 1;
    completion_.count = 1;
    completion_.func  = [](uct_completion_t *) {};
    require(start(ep, &iov, 1, remote(), UCT_INVALID_RKEY, &completion_) ==
                UCS_INPROGRESS,
            "zcopy");
    while (completion_.count != 0) {
        uct_worker_progress(worker);
    }
}

bare_card &bare_card::instance()
{
    static auto *opened = new bare_card;
    return *opened;
}

bare_card::bare_card() : library_(emulator_path)
{
    constexpr size_t size          = 1 << 20;
    char bus_id[shim::bus_id_size] = {};

    require(library_.usable(), "loading the emulator");
    const int control = library_.hlthunk_open_control(1, nullptr);
    require((control >= 0) && (library_.hlthunk_get_pci_bus_id_from_fd(
                                   control, bus_id, sizeof(bus_id)) == 0),
            "identifying card 1");
    library_.hlthunk_close(control);
    require(shim::device::open(library_, bus_id, device_) == 0,
            "opening card 1");
    require(shim::memory_handle::allocate(*device_, size, handle_) == 0,
            "allocating");
    require(shim::mapping::map_device(*device_, handle_, 0, mapping_) == 0,
            "mapping");
    require(shim::pinned_buffer::create(*device_, size, host_) == 0, "pinning");
    require(shim::make_dma_queue(*device_, shim::dma_direction::host_to_device,
                                 {}, queue_) == 0,
            "creating a queue");
}

void bare_card::submit_and_poll(size_t size)
{
    uint64_t id;
    shim::dma_completion ended{};
    require(queue_->submit(mapping_.va(), host_.va(), size, nullptr, id) == 0,
            "submitting");
    while (queue_->poll(&ended, 1) == 0) {}
    require(ended.status == 0, "copying");
}

} // namespace gaudi::bench
