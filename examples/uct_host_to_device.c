/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends a file to a Gaudi card and back, with UCT.
 *
 * usage: uct_host_to_device FILE
 *
 * What a program has to do that talks to the transport itself: find the
 * component, its memory domain and its transport; allocate device memory and
 * register host memory; start a zero-copy put; call progress until the
 * completion comes; and the same back with a get. Public UCX headers only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <ucs/memory/memory_type.h>
#include <uct/api/uct.h>

/* Everything that is open, so that one place can close it. */
struct session {
    ucs_async_context_t *async;
    uct_worker_h worker;
    uct_component_h *components;
    uct_md_h md;
    uct_md_attr_t md_attr;
    ucs_memory_type_t device_type; /* UCX's number for Gaudi memory */
    char device_name[UCT_DEVICE_NAME_MAX];
    uct_iface_h iface;
    uct_ep_h ep;
};

#define CHECK(_call)                                                           \
    do {                                                                       \
        ucs_status_t _status = (_call);                                        \
        if (_status != UCS_OK) {                                               \
            fprintf(stderr, "%s: %s\n", #_call, ucs_status_string(_status));   \
            return -1;                                                         \
        }                                                                      \
    } while (0)

/* Open the memory domain of component gaudi_copy. */
static int open_md(struct session *s)
{
    uct_component_attr_t attr;
    uct_md_resource_desc_t md_resource;
    uct_md_config_t *config;
    unsigned i, count;

    CHECK(uct_query_components(&s->components, &count));
    for (i = 0; i < count; ++i) {
        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME |
                          UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
        CHECK(uct_component_query(s->components[i], &attr));
        if (!strcmp(attr.name, "gaudi_copy") && (attr.md_resource_count > 0)) {
            break;
        }
    }
    if (i == count) {
        fprintf(stderr, "No Gaudi card: UCX has no component gaudi_copy with a "
                        "memory domain.\nRun this program with 'ucx-gaudi run "
                        "[--emulate] -- ...'.\n");
        return -1;
    }

    attr.field_mask   = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attr.md_resources = &md_resource;
    CHECK(uct_component_query(s->components[i], &attr));
    CHECK(uct_md_config_read(s->components[i], NULL, NULL, &config));
    CHECK(uct_md_open(s->components[i], md_resource.md_name, config, &s->md));
    uct_config_release(config);
    CHECK(uct_md_query(s->md, &s->md_attr));

    /* The type that this memory domain allocates is Gaudi memory. */
    while (!(s->md_attr.cap.alloc_mem_types & (1ul << s->device_type))) {
        ++s->device_type;
    }
    return 0;
}

/* Open transport gaudi_cpy on the first card, and an endpoint to itself. */
static int open_transport(struct session *s)
{
    uct_tl_resource_desc_t *tls;
    uct_iface_config_t *config;
    uct_iface_params_t iface_params = {0};
    uct_ep_params_t ep_params       = {0};
    uct_iface_attr_t attr;
    unsigned count;
    char address[64];

    CHECK(uct_md_query_tl_resources(s->md, &tls, &count));
    if (count == 0) {
        fprintf(stderr, "gaudi_copy has no transport\n");
        return -1;
    }
    strcpy(s->device_name, tls[0].dev_name);

    iface_params.field_mask =
        UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE;
    iface_params.open_mode            = UCT_IFACE_OPEN_MODE_DEVICE;
    iface_params.mode.device.tl_name  = tls[0].tl_name;
    iface_params.mode.device.dev_name = tls[0].dev_name;
    CHECK(uct_md_iface_config_read(s->md, tls[0].tl_name, NULL, NULL, &config));
    CHECK(uct_iface_open(s->md, s->worker, &iface_params, config, &s->iface));
    uct_config_release(config);
    uct_release_tl_resource_list(tls);

    CHECK(uct_iface_query(s->iface, &attr));
    if ((attr.iface_addr_len > sizeof(address)) ||
        !(attr.cap.flags & UCT_IFACE_FLAG_PUT_ZCOPY)) {
        fprintf(stderr, "the transport cannot put\n");
        return -1;
    }
    CHECK(uct_iface_get_address(s->iface, (uct_iface_addr_t *)address));
    uct_iface_progress_enable(s->iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);

    ep_params.field_mask = UCT_EP_PARAM_FIELD_IFACE |
                           UCT_EP_PARAM_FIELD_DEV_ADDR |
                           UCT_EP_PARAM_FIELD_IFACE_ADDR;
    ep_params.iface      = s->iface;
    ep_params.dev_addr   = (uct_device_addr_t *)address; /* it has none */
    ep_params.iface_addr = (uct_iface_addr_t *)address;
    CHECK(uct_ep_create(&ep_params, &s->ep));
    return 0;
}

static int open_session(struct session *s)
{
    CHECK(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &s->async));
    CHECK(uct_worker_create(s->async, UCS_THREAD_MODE_SINGLE, &s->worker));
    if ((open_md(s) != 0) || (open_transport(s) != 0)) {
        return -1;
    }
    return 0;
}

static void close_session(struct session *s)
{
    if (s->ep != NULL) {
        uct_ep_destroy(s->ep);
    }
    if (s->iface != NULL) {
        uct_iface_close(s->iface);
    }
    if (s->md != NULL) {
        uct_md_close(s->md);
    }
    if (s->components != NULL) {
        uct_release_component_list(s->components);
    }
    if (s->worker != NULL) {
        uct_worker_destroy(s->worker);
    }
    if (s->async != NULL) {
        ucs_async_context_destroy(s->async);
    }
}

/* A completion, and whether it was called. */
struct transfer {
    uct_completion_t completion;
    int done;
};

static void transfer_done(uct_completion_t *completion)
{
    ((struct transfer *)completion)->done = 1;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

/* Put or get `length` bytes and wait for the completion. */
static int transfer(struct session *s, int is_put, void *host, uct_mem_h memh,
                    size_t length, void *device, double *seconds)
{
    struct transfer t = {
        .completion = {.func = transfer_done, .count = 1, .status = UCS_OK}};
    uct_iov_t iov = {
        .buffer = host, .length = length, .memh = memh, .count = 1};
    double start = now();
    ucs_status_t status;

    status = (is_put ? uct_ep_put_zcopy : uct_ep_get_zcopy)(
        s->ep, &iov, 1, (uintptr_t)device, UCT_INVALID_RKEY, &t.completion);
    if (status == UCS_OK) {
        t.done = 1; /* ended at once, the completion is not called */
    } else if (status != UCS_INPROGRESS) {
        fprintf(stderr, "zcopy: %s\n", ucs_status_string(status));
        return -1;
    }
    while (!t.done) {
        uct_worker_progress(s->worker);
    }
    CHECK(t.completion.status);
    *seconds = now() - start;
    return 0;
}

/* Send the bytes to the card and back, and compare. */
static int round_trip(struct session *s, void *sent, void *received,
                      size_t length)
{
    uct_alloc_method_t method     = UCT_ALLOC_METHOD_MD;
    uct_mem_alloc_params_t params = {0};
    uct_allocated_memory_t device;
    uct_mem_h sent_memh, received_memh;
    double put_time, get_time;
    int result;

    params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS |
                        UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE |
                        UCT_MEM_ALLOC_PARAM_FIELD_MDS;
    params.flags     = UCT_MD_MEM_ACCESS_ALL;
    params.mem_type  = s->device_type;
    params.mds.mds   = &s->md;
    params.mds.count = 1;
    CHECK(uct_mem_alloc(length, &method, 1, &params, &device));
    CHECK(
        uct_md_mem_reg(s->md, sent, length, UCT_MD_MEM_ACCESS_ALL, &sent_memh));
    CHECK(uct_md_mem_reg(s->md, received, length, UCT_MD_MEM_ACCESS_ALL,
                         &received_memh));

    result = -1;
    if (!transfer(s, 1, sent, sent_memh, length, device.address, &put_time) &&
        !transfer(s, 0, received, received_memh, length, device.address,
                  &get_time)) {
        result = memcmp(sent, received, length);
        printf("%zu bytes to %s at %p (%s memory): %.1f MB/s\n", length,
               s->device_name, device.address,
               ucs_memory_type_names[s->device_type], length / put_time / 1e6);
        printf("%zu bytes back: %.1f MB/s\n", length, length / get_time / 1e6);
        printf("the bytes that came back are %s\n",
               (result == 0) ? "the same" : "DIFFERENT");
    }

    CHECK(uct_md_mem_dereg(s->md, received_memh));
    CHECK(uct_md_mem_dereg(s->md, sent_memh));
    CHECK(uct_mem_free(&device));
    return result;
}

/* Read a whole file; NULL when that fails, which was reported. */
static void *read_file(const char *name, size_t *length)
{
    FILE *file = fopen(name, "rb");
    void *data = NULL;
    struct stat info;

    if ((file == NULL) || (fstat(fileno(file), &info) != 0)) {
        perror(name);
    } else if (!S_ISREG(info.st_mode) || (info.st_size == 0)) {
        fprintf(stderr, "%s: not a file with something in it\n", name);
    } else {
        *length = info.st_size;
        data    = malloc(*length);
        if ((data == NULL) || (fread(data, *length, 1, file) != 1)) {
            perror(name);
            free(data);
            data = NULL;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return data;
}

int main(int argc, char **argv)
{
    struct session s = {0};
    void *sent, *received;
    size_t length;
    int result = -1;

    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE\n", argv[0]);
        return 2;
    }
    sent = read_file(argv[1], &length);
    if (sent == NULL) {
        return 1;
    }
    received = calloc(1, length);
    if (received != NULL) {
        if (open_session(&s) == 0) {
            result = round_trip(&s, sent, received, length);
        }
        close_session(&s);
    }
    free(received);
    free(sent);
    return (result == 0) ? 0 : 1;
}
