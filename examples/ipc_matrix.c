/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moves memory between two processes with an engine of its own, as frameworks
 * do that know their buffers better than a message library: all four pairs of
 * host and card memory.
 *
 * usage: ipc_matrix [BYTES]
 *
 * The two agree over a socket on who copies. A receiver with card memory sends
 * a handle of it, and the sender pushes; any other receiver gets a handle of
 * the sender's memory, and pulls: the bytes are moved by the process that has
 * opened the other one's memory. Host memory is registered, so that over ports
 * a card reads it without staging.
 *
 * With UCX_LOG_LEVEL=info each step is a line of the log. Built with
 * `pkg-config --cflags --libs ucx-gaudi-transports`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ucx_gaudi.h>

/* Where the bytes begin in the memory that one end has: anywhere. */
#define PLACE 4099

static const char *process; /* "sender" or "receiver" */

/* Memory of one end. */
struct buffer {
    int of_card;
    size_t length;
    char *start;  /* of what was allocated */
    char *window; /* of the bytes that are moved */
};

/* What the two tell each other. */
struct message {
    int has_handle;
    ucx_gaudi_ipc_handle_t handle;
    size_t copied; /* bytes, by whoever copies */
};

static int failed(const char *what, ucs_status_t status)
{
    fprintf(stderr, "ipc_matrix: %s: %s: %s\n", process, what,
            ucs_status_string(status));
    return -1;
}

static unsigned char byte_at(size_t i, unsigned seed)
{
    return (unsigned char)(((i + seed) * 2654435761u) >> 13);
}

static int tell(int socket, const struct message *message)
{
    return (send(socket, message, sizeof(*message), MSG_NOSIGNAL) ==
            sizeof(*message))
               ? 0
               : failed("the other process does not listen",
                        UCS_ERR_CONNECTION_RESET);
}

static int hear(int socket, struct message *message)
{
    return (recv(socket, message, sizeof(*message), 0) == sizeof(*message))
               ? 0
               : failed("the other process says nothing",
                        UCS_ERR_CONNECTION_RESET);
}

static int allocate(struct buffer *buffer, int of_card, size_t length)
{
    const size_t all    = PLACE + length;
    ucs_status_t status = UCS_ERR_NO_MEMORY;
    void *address       = NULL;

    buffer->of_card = of_card;
    buffer->length  = length;
    if (of_card) {
        status = ucx_gaudi_mem_alloc(all, NULL, &address);
    } else if ((address = calloc(1, all)) != NULL) {
        status = ucx_gaudi_host_register(address, all);
    }
    buffer->start  = address;
    buffer->window = (address != NULL) ? (char *)address + PLACE : NULL;
    return (status == UCS_OK) ? 0 : failed("allocation", status);
}

static void release(const struct buffer *buffer)
{
    if (buffer->of_card) {
        (void)ucx_gaudi_mem_free(buffer->start);
    } else {
        (void)ucx_gaudi_host_unregister(buffer->start);
        free(buffer->start);
    }
}

/* Wait for a copy as an engine does that has other work meanwhile. */
static ucs_status_t copy(void *dst, const void *src, size_t length)
{
    ucx_gaudi_stream_h stream = NULL;
    ucx_gaudi_event_h event   = NULL;
    ucs_status_t status       = ucx_gaudi_stream_create(&stream);
    ucs_status_t ended;

    if (status == UCS_OK) {
        status = ucx_gaudi_event_create(&event);
    }
    if (status == UCS_OK) {
        status = ucx_gaudi_mem_copy_async(dst, src, length, stream);
    }
    if (status == UCS_OK) {
        status = ucx_gaudi_event_record(event, stream);
    }
    if (status == UCS_OK) {
        do {
            status = ucx_gaudi_event_query(event);
        } while (status == UCS_INPROGRESS);
    }
    (void)ucx_gaudi_event_destroy(event);
    ended = ucx_gaudi_stream_destroy(stream);
    return (status == UCS_OK) ? ended : status;
}

/* Copy to or from what a handle stands for, and tell the other end. */
static int copy_opened(int socket, const ucx_gaudi_ipc_handle_t *handle,
                       const struct buffer *own, int pushes)
{
    struct message done = {0};
    void *other;
    size_t length;
    ucs_status_t status = ucx_gaudi_ipc_open(handle, &other, &length);
    ucs_status_t closed;

    if (status != UCS_OK) {
        return failed("opening a handle", status);
    }
    if (length != own->length) {
        status = UCS_ERR_MESSAGE_TRUNCATED;
    } else if (pushes) {
        status = copy(other, own->window, length);
    } else {
        status = copy(own->window, other, length);
    }
    closed = ucx_gaudi_ipc_close(other);
    if ((status != UCS_OK) || ((status = closed) != UCS_OK)) {
        return failed(pushes ? "push" : "pull", status);
    }
    done.copied = length;
    return tell(socket, &done);
}

/* Let the other end do so. */
static int have_copied(int socket, const struct buffer *own)
{
    struct message message = {.has_handle = 1};
    ucs_status_t status =
        ucx_gaudi_ipc_export(own->window, own->length, &message.handle);
    int result;

    if (status != UCS_OK) {
        return failed("export", status);
    }
    result = tell(socket, &message);
    if (result == 0) {
        result = hear(socket, &message);
    }
    status = ucx_gaudi_ipc_withdraw(own->window, own->length);
    if (status != UCS_OK) {
        return failed("withdrawal", status);
    }
    if ((result == 0) && (message.copied != own->length)) {
        fprintf(stderr, "ipc_matrix: %zu bytes were copied, not %zu\n",
                message.copied, own->length);
        result = -1;
    }
    return result;
}

static int send_bytes(int socket, const struct buffer *own)
{
    struct message offer;

    if (hear(socket, &offer) != 0) {
        return -1;
    }
    return offer.has_handle ? copy_opened(socket, &offer.handle, own, 1)
                            : have_copied(socket, own);
}

static int receive_bytes(int socket, const struct buffer *own)
{
    struct message offer = {0};

    if (own->of_card) {
        return have_copied(socket, own);
    }
    if ((tell(socket, &offer) != 0) || (hear(socket, &offer) != 0)) {
        return -1;
    }
    return copy_opened(socket, &offer.handle, own, 0);
}

/* Write, or compare, the bytes that are moved. */
static int fill(const struct buffer *buffer, unsigned seed)
{
    char *host          = malloc(buffer->length);
    ucs_status_t status = UCS_ERR_NO_MEMORY;
    size_t i;

    if (host != NULL) {
        for (i = 0; i < buffer->length; ++i) {
            host[i] = (char)byte_at(i, seed);
        }
        status = ucx_gaudi_mem_copy(buffer->window, host, buffer->length);
    }
    free(host);
    return (status == UCS_OK) ? 0 : failed("writing the bytes", status);
}

static int compare(const struct buffer *buffer, unsigned seed, size_t *same_p)
{
    unsigned char *host = malloc(buffer->length);
    ucs_status_t status = UCS_ERR_NO_MEMORY;
    size_t i            = 0;

    if (host != NULL) {
        status = ucx_gaudi_mem_copy(host, buffer->window, buffer->length);
    }
    while ((status == UCS_OK) && (i < buffer->length) &&
           (host[i] == byte_at(i, seed))) {
        ++i;
    }
    free(host);
    *same_p = i;
    return (status == UCS_OK) ? 0 : failed("reading the bytes", status);
}

/* One pair, at one end. */
static int run_pair(int socket, int sends, int from_card, int to_card,
                    size_t length)
{
    const unsigned seed = 1 + (unsigned)(2 * from_card + to_card);
    struct buffer own;
    size_t same = 0;
    int result  = allocate(&own, sends ? from_card : to_card, length);

    if (result != 0) {
        return result;
    }
    if (sends) {
        result = fill(&own, seed);
        if (result == 0) {
            result = send_bytes(socket, &own);
        }
    } else {
        result = receive_bytes(socket, &own);
        if (result == 0) {
            result = compare(&own, seed, &same);
        }
        if (result == 0) {
            printf("%s to %s: %s, %zu of %zu bytes are the same\n",
                   from_card ? "card" : "host", to_card ? "card" : "host",
                   to_card ? "pushed by the sender" : "pulled by the receiver",
                   same, length);
            fflush(stdout);
            result = (same == length) ? 0 : -1;
        }
    }
    release(&own);
    return result;
}

static int run_matrix(int socket, int sends, size_t length)
{
    int pair;
    int result = 0;

    process = sends ? "sender" : "receiver";
    for (pair = 0; (pair < 4) && (result == 0); ++pair) {
        result = run_pair(socket, sends, pair / 2, pair % 2, length);
    }
    return result;
}

int main(int argc, char **argv)
{
    char *end     = "";
    size_t length = (argc > 1) ? strtoull(argv[1], &end, 10) : 1000003;
    int sockets[2];
    int status;
    int result;
    pid_t receiver;

    if ((argc > 2) || (*end != '\0') || (length == 0) ||
        (length > (size_t)1 << 40)) {
        fprintf(stderr, "usage: ipc_matrix [BYTES]\n");
        return 2;
    }
    if (ucx_gaudi_memory_type() == UCS_MEMORY_TYPE_UNKNOWN) {
        fprintf(stderr, "ipc_matrix: ucx-gaudi is not active\n");
        return 1;
    }
    /* Before cards are open: a child has no part in its parent's. */
    if ((socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0) ||
        ((receiver = fork()) < 0)) {
        perror("ipc_matrix");
        return 1;
    }
    close(sockets[receiver != 0]); /* the other's end */
    result = run_matrix(sockets[receiver == 0], receiver != 0, length);
    close(sockets[receiver == 0]);
    if (receiver == 0) {
        return (result == 0) ? 0 : 1;
    }
    if ((waitpid(receiver, &status, 0) != receiver) || (status != 0)) {
        result = -1;
    }
    return (result == 0) ? 0 : 1;
}
