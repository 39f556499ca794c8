#include "gaudi_memory.h"

#include <stdio.h>
#include <string.h>
#include <ucs/memory/memory_type.h>

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h self;
static ucs_memory_type_t gaudi_type;

static int failed(const char *what, ucs_status_t status)
{
    fprintf(stderr, "gaudi memory: %s: %s\n", what, ucs_status_string(status));
    return -1;
}

#define CHECK(_call)                                                           \
    do {                                                                       \
        ucs_status_t _status = (_call);                                        \
        if (_status != UCS_OK) {                                               \
            return failed(#_call, _status);                                    \
        }                                                                      \
    } while (0)

static ucs_status_t wait_for(ucs_status_ptr_t request)
{
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
        ucp_worker_progress(worker);
    }
    ucp_request_free(request);
    return status;
}

static ucs_status_t flush(void)
{
    const ucp_request_param_t defaults = {0};

    return wait_for(ucp_ep_flush_nbx(self, &defaults));
}

/* UCX 1.13 has no constant for the type: it is the one of this name. */
static int find_type(void)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    int type;

    CHECK(ucp_context_query(context, &attr));
    for (type = 0; type < UCS_MEMORY_TYPE_LAST; ++type) {
        if (!strcmp(ucs_memory_type_names[type], "gaudi") &&
            (attr.memory_types & (1ul << type))) {
            gaudi_type = (ucs_memory_type_t)type;
            return 0;
        }
    }
    fprintf(stderr,
            "gaudi memory: there is no free card, or the transports are not "
            "loaded; run this under ucx-gaudi\n");
    return -1;
}

/* A worker, and an endpoint from it to itself. */
static int open_worker(void)
{
    ucp_worker_params_t worker_params = {0};
    ucp_ep_params_t ep_params         = {.field_mask =
                                             UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t *address;
    ucs_status_t status;
    size_t length;

    CHECK(ucp_worker_create(context, &worker_params, &worker));
    status = ucp_worker_get_address(worker, &address, &length);
    if (status == UCS_OK) {
        ep_params.address = address;
        status            = ucp_ep_create(worker, &ep_params, &self);
        ucp_worker_release_address(worker, address);
    }
    if (status != UCS_OK) {
        ucp_worker_destroy(worker);
        return failed("cannot reach the own process", status);
    }
    return 0;
}

int gaudi_open(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features   = UCP_FEATURE_RMA};
    ucp_config_t *config;
    ucs_status_t status;

    CHECK(ucp_config_read(NULL, NULL, &config));
    status = ucp_init(&params, config, &context);
    ucp_config_release(config);
    if (status != UCS_OK) {
        return failed("ucp_init", status);
    }
    if ((find_type() != 0) || (open_worker() != 0)) {
        ucp_cleanup(context);
        return -1;
    }
    return 0;
}

void gaudi_close(void)
{
    const ucp_request_param_t defaults = {0};

    (void)wait_for(ucp_ep_close_nbx(self, &defaults));
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

int gaudi_alloc(struct gaudi_buffer *buffer, size_t size)
{
    ucp_mem_map_params_t params = {.field_mask =
                                       UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                       UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                                       UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
                                   .length      = size,
                                   .flags       = UCP_MEM_MAP_ALLOCATE,
                                   .memory_type = gaudi_type};
    ucp_mem_attr_t attr         = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    size_t packed_size;
    ucs_status_t status;
    void *packed;

    CHECK(ucp_mem_map(context, &params, &buffer->memh));
    status = ucp_mem_query(buffer->memh, &attr);
    if (status == UCS_OK) {
        status = ucp_rkey_pack(context, buffer->memh, &packed, &packed_size);
    }
    if (status == UCS_OK) {
        status = ucp_ep_rkey_unpack(self, packed, &buffer->rkey);
        ucp_rkey_buffer_release(packed);
    }
    if (status != UCS_OK) {
        (void)ucp_mem_unmap(context, buffer->memh);
        return failed("cannot use what was allocated", status);
    }
    buffer->address = attr.address;
    buffer->size    = size;
    return 0;
}

void gaudi_free(struct gaudi_buffer *buffer)
{
    ucp_rkey_destroy(buffer->rkey);
    (void)ucp_mem_unmap(context, buffer->memh);
}

static uint64_t position(const struct gaudi_buffer *buffer, size_t offset)
{
    return (uint64_t)(uintptr_t)buffer->address + offset;
}

int gaudi_write(struct gaudi_buffer *buffer, size_t offset, const void *host,
                size_t size)
{
    const ucp_request_param_t defaults = {0};

    CHECK(wait_for(ucp_put_nbx(self, host, size, position(buffer, offset),
                               buffer->rkey, &defaults)));
    CHECK(flush());
    return 0;
}

int gaudi_read(struct gaudi_buffer *buffer, size_t offset, void *host,
               size_t size)
{
    const ucp_request_param_t defaults = {0};

    CHECK(wait_for(ucp_get_nbx(self, host, size, position(buffer, offset),
                               buffer->rkey, &defaults)));
    CHECK(flush());
    return 0;
}
