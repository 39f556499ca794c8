/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace gaudi::bench {

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

uct_component_h find_component(const char *name)
{
    uct_component_h *components;
    unsigned count;
    uct_component_h found = nullptr;

    require(uct_query_components(&components, &count), "query_components");
    for (unsigned i = 0; i < count; ++i) {
        uct_component_attr_t attr;
        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME;
        require(uct_component_query(components[i], &attr), "component_query");
        if (std::strcmp(attr.name, name) == 0) {
            found = components[i];
        }
    }
    uct_release_component_list(components);
    require(found != nullptr, name);
    return found;
}

transport::transport(const char *component, const char *name,
                     const char *device)
{
    uct_component_h found = find_component(component);
    uct_md_config_t *md_config;
    require(uct_md_config_read(found, nullptr, nullptr, &md_config),
            "md_config_read");
    require(uct_md_open(found, component, md_config, &md), "md_open");
    uct_config_release(md_config);

    uct_iface_config_t *config;
    require(uct_md_iface_config_read(md, name, nullptr, nullptr, &config),
            "iface_config_read");
    require(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async_),
            "async_context_create");
    require(uct_worker_create(async_, UCS_THREAD_MODE_SINGLE, &worker),
            "worker_create");
    uct_iface_params_t params{};
    params.field_mask =
        UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE;
    params.open_mode            = UCT_IFACE_OPEN_MODE_DEVICE;
    params.mode.device.tl_name  = name;
    params.mode.device.dev_name = device;
    require(uct_iface_open(md, worker, &params, config, &iface), "iface_open");
    uct_config_release(config);
    require(uct_iface_query(iface, &attr), "iface_query");
    uct_iface_progress_enable(iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);

    /* Never without room: an empty address has to point somewhere, too. */
    std::vector<char> own(attr.iface_addr_len + 1);
    std::vector<char> own_device(attr.device_addr_len + 1);
    auto *iface_address = reinterpret_cast<uct_iface_addr_t *>(own.data());
    auto *device_address =
        reinterpret_cast<uct_device_addr_t *>(own_device.data());
    require(uct_iface_get_address(iface, iface_address), "get_address");
    require(uct_iface_get_device_address(iface, device_address),
            "get_device_address");
    uct_ep_params_t ep_params{};
    ep_params.field_mask = UCT_EP_PARAM_FIELD_IFACE |
                           UCT_EP_PARAM_FIELD_DEV_ADDR |
                           UCT_EP_PARAM_FIELD_IFACE_ADDR;
    ep_params.iface      = iface;
    ep_params.dev_addr   = device_address;
    ep_params.iface_addr = iface_address;
    require(uct_ep_create(&ep_params, &ep), "ep_create");
}

void transport::begin_zcopy(uct_ep_put_zcopy_func_t start, uct_ep_h to,
                            void *local, size_t size, uint64_t remote,
                            uct_rkey_t rkey)
{
    uct_iov_t iov{};
    iov.buffer = local;
    iov.length = size;
    iov.count  = 1;
    ++completion_.count;
    completion_.func = [](uct_completion_t *) {};
    ucs_status_t status;
    while ((status = start(to, &iov, 1, remote, rkey, &completion_)) ==
           UCS_ERR_NO_RESOURCE) { /* ports are being connected */
        uct_worker_progress(worker);
    }
    require(status == UCS_INPROGRESS, "zcopy");
}

void transport::complete()
{
    while (completion_.count != 0) {
        uct_worker_progress(worker);
    }
    require(completion_.status, "completing a zcopy");
}

} // namespace gaudi::bench
