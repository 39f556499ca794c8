/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends a file to a Gaudi card and back, with UCP.
 *
 * usage: ucp_host_to_device FILE
 *
 * The same copy as uct_host_to_device, one level up, where UCP picks transports
 * and protocols: map the host buffers, allocate and map device memory, make an
 * endpoint to the own worker, put, flush, and get. Public UCX headers only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <ucp/api/ucp.h>
#include <ucs/memory/memory_type.h>

/* A buffer that UCP knows. */
struct buffer {
    ucp_mem_h memh;
    void *address;
    ucs_memory_type_t type;
};

/* Everything that is open, so that one place can close it. */
struct session {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;                   /* to the worker itself */
    ucs_memory_type_t device_type; /* UCX's number for Gaudi memory */
    struct buffer sent;
    struct buffer device;
    struct buffer received;
    ucp_rkey_h rkey; /* with which the endpoint reaches `device` */
};

static int failed(const char *what, ucs_status_t status)
{
    fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
    return -1;
}

#define CHECK(_call)                                                           \
    do {                                                                       \
        ucs_status_t _status = (_call);                                        \
        if (_status != UCS_OK) {                                               \
            return failed(#_call, _status);                                    \
        }                                                                      \
    } while (0)

/* Call progress until a request has ended, and free it. */
static ucs_status_t wait_for(struct session *s, ucs_status_ptr_t request)
{
    ucs_status_t status = UCS_INPROGRESS;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request); /* ended at once, or refused */
    }
    while (status == UCS_INPROGRESS) {
        ucp_worker_progress(s->worker);
        status = ucp_request_check_status(request);
    }
    ucp_request_free(request);
    return status;
}

/* Gaudi memory is the type of that name, if UCP can use it. */
static int find_device_type(struct session *s)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    int type                = 0;

    CHECK(ucp_context_query(s->context, &attr));
    while ((type < UCS_MEMORY_TYPE_LAST) &&
           strcmp(ucs_memory_type_names[type], "gaudi")) {
        ++type;
    }
    if (type == UCS_MEMORY_TYPE_LAST) {
        fprintf(stderr, "UCX knows no Gaudi memory: the module is not loaded.\n"
                        "Run this program with 'ucx-gaudi run [--emulate] -- "
                        "...'.\n");
        return -1;
    }
    if (!(attr.memory_types & (1ul << type))) {
        fprintf(stderr,
                "No Gaudi card: the machine has none (software cards: "
                "'ucx-gaudi run --emulate -- ...'),\nUCX_TLS does not name "
                "gaudi_copy, or the module is not loaded\n(run this program "
                "with 'ucx-gaudi run -- ...').\n");
        return -1;
    }
    s->device_type = type;
    return 0;
}

static int open_session(struct session *s)
{
    ucp_params_t params               = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                         .features   = UCP_FEATURE_RMA};
    ucp_worker_params_t worker_params = {0};
    ucp_ep_params_t ep_params         = {.field_mask =
                                             UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_config_t *config;
    ucp_address_t *address;
    ucs_status_t status;
    size_t length;

    CHECK(ucp_config_read(NULL, NULL, &config));
    status = ucp_init(&params, config, &s->context);
    ucp_config_release(config);
    if (status != UCS_OK) {
        return failed("ucp_init", status);
    }
    if (find_device_type(s) != 0) {
        return -1;
    }

    CHECK(ucp_worker_create(s->context, &worker_params, &s->worker));
    CHECK(ucp_worker_get_address(s->worker, &address, &length));
    ep_params.address = address;
    status            = ucp_ep_create(s->worker, &ep_params, &s->ep);
    ucp_worker_release_address(s->worker, address);
    return (status == UCS_OK) ? 0 : failed("ucp_ep_create", status);
}

static void close_session(struct session *s)
{
    ucp_request_param_t defaults = {0};
    struct buffer *buffers[]     = {&s->sent, &s->device, &s->received};
    size_t i;

    if (s->rkey != NULL) {
        ucp_rkey_destroy(s->rkey);
    }
    if (s->ep != NULL) {
        wait_for(s, ucp_ep_close_nbx(s->ep, &defaults));
    }
    for (i = 0; i < 3; ++i) {
        if (buffers[i]->memh != NULL) {
            ucp_mem_unmap(s->context, buffers[i]->memh);
        }
    }
    if (s->worker != NULL) {
        ucp_worker_destroy(s->worker);
    }
    if (s->context != NULL) {
        ucp_cleanup(s->context);
    }
}

/* Map host memory, or allocate and map device memory when `host` is NULL. */
static int map_buffer(struct session *s, void *host, size_t length,
                      struct buffer *buffer)
{
    ucp_mem_map_params_t params = {0};
    ucp_mem_attr_t attr         = {0};
    ucs_status_t status;

    params.field_mask =
        UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
        UCP_MEM_MAP_PARAM_FIELD_FLAGS | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
    params.address     = host;
    params.length      = length;
    params.flags       = (host == NULL) ? UCP_MEM_MAP_ALLOCATE : 0;
    params.memory_type = (host == NULL) ? s->device_type : UCS_MEMORY_TYPE_HOST;
    status             = ucp_mem_map(s->context, &params, &buffer->memh);
    if (status != UCS_OK) {
        fprintf(stderr, "cannot %s %zu bytes of %s memory: %s\n",
                (host == NULL) ? "allocate" : "map", length,
                ucs_memory_type_names[params.memory_type],
                ucs_status_string(status));
        buffer->memh = NULL;
        return -1;
    }

    attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_MEM_TYPE;
    CHECK(ucp_mem_query(buffer->memh, &attr));
    buffer->address = attr.address;
    buffer->type    = attr.mem_type;
    return 0;
}

/* Make the key of the device buffer, as another process would get it. */
static int unpack_key(struct session *s)
{
    ucs_status_t status;
    void *packed;
    size_t size;

    CHECK(ucp_rkey_pack(s->context, s->device.memh, &packed, &size));
    status = ucp_ep_rkey_unpack(s->ep, packed, &s->rkey);
    ucp_rkey_buffer_release(packed);
    return (status == UCS_OK) ? 0 : failed("ucp_ep_rkey_unpack", status);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

/* Put the file to the card and wait until it is there. */
static int put(struct session *s, size_t length, double *seconds)
{
    ucp_request_param_t defaults = {0};
    ucp_request_param_t param    = {.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH,
                                    .memh         = s->sent.memh};
    double start                 = now();

    CHECK(wait_for(s,
                   ucp_put_nbx(s->ep, s->sent.address, length,
                               (uintptr_t)s->device.address, s->rkey, &param)));
    /* A put has ended when its source may change; a flush when it arrived. */
    CHECK(wait_for(s, ucp_ep_flush_nbx(s->ep, &defaults)));
    *seconds = now() - start;
    return 0;
}

/* Get the bytes back; a get has ended when they are here. */
static int get(struct session *s, size_t length, double *seconds)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH,
                                 .memh         = s->received.memh};
    double start              = now();

    CHECK(wait_for(s,
                   ucp_get_nbx(s->ep, s->received.address, length,
                               (uintptr_t)s->device.address, s->rkey, &param)));
    *seconds = now() - start;
    return 0;
}

/* Send the bytes to the card and back, and compare. */
static int round_trip(struct session *s, void *sent, void *received,
                      size_t length)
{
    double put_time = 0, get_time = 0;
    int result;

    if (map_buffer(s, sent, length, &s->sent) ||
        map_buffer(s, received, length, &s->received) ||
        map_buffer(s, NULL, length, &s->device) || unpack_key(s) ||
        put(s, length, &put_time) || get(s, length, &get_time)) {
        return -1;
    }
    result = memcmp(sent, received, length);
    printf("%zu bytes to %p (%s memory): %.1f MB/s\n", length,
           s->device.address, ucs_memory_type_names[s->device.type],
           length / put_time / 1e6);
    printf("%zu bytes back: %.1f MB/s\n", length, length / get_time / 1e6);
    printf("the bytes that came back are %s\n",
           (result == 0) ? "the same" : "DIFFERENT");
    return result;
}

/* Read a whole file; -1 when that fails, which was reported. Both of the host
 * buffers must fit: what the system promises beyond its memory, it may take
 * back by killing us. */
static int read_file(const char *name, void **data_p, size_t *length_p)
{
    double memory = (double)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    FILE *file    = fopen(name, "rb");
    struct stat info;
    int result = -1;

    *data_p = NULL;
    if ((file == NULL) || (fstat(fileno(file), &info) != 0)) {
        perror(name);
    } else if (!S_ISREG(info.st_mode)) {
        fprintf(stderr, "%s: not a regular file\n", name);
    } else if (2.0 * info.st_size > memory) {
        fprintf(stderr,
                "%s: twice its %lld bytes are more than the memory of "
                "this machine\n",
                name, (long long)info.st_size);
    } else if ((*data_p = malloc(info.st_size + 1)) == NULL) {
        perror(name);
    } else {
        /* One byte more than there should be. */
        *length_p = fread(*data_p, 1, info.st_size + 1, file);
        if (ferror(file)) {
            perror(name);
        } else if (*length_p != (size_t)info.st_size) {
            fprintf(stderr, "%s: its size is not what it says\n", name);
        } else {
            result = 0;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return result;
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
    if (read_file(argv[1], &sent, &length) == 0) {
        received = calloc(1, length + 1);
        if (received == NULL) {
            perror("memory to get the file back");
        } else if (length == 0) {
            printf("0 bytes: nothing to copy\n");
            result = 0;
        } else {
            if (open_session(&s) == 0) {
                result = round_trip(&s, sent, received, length);
            }
            close_session(&s);
        }
        free(received);
    }
    free(sent);
    return (result == 0) ? 0 : 1;
}
