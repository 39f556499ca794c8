/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hands memory of one card to another process as a dma-buf, which copies it to
 * its own card: directly, without host memory between.
 *
 * usage: dmabuf [BYTES]
 *
 * Two processes, each with a card of its own. One exports a part of its device
 * memory and sends the file descriptor over a socket. The other imports it,
 * and from then on has an address that every UCX call takes as device memory.
 * Built with `pkg-config --cflags --libs ucx-gaudi-transports`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ucx_gaudi.h>

/* Where the part starts in the exporter's memory: anywhere. */
#define PLACE 12345

/* What has to be known of a part, beside the descriptor. */
struct part {
    size_t offset; /* of its first byte in the dma-buf */
    size_t length;
};

static int send_part(int socket, int fd, const struct part *part)
{
    struct iovec data = {(void *)part, sizeof(*part)};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control              = {{0}};
    struct msghdr message  = {.msg_iov        = &data,
                              .msg_iovlen     = 1,
                              .msg_control    = control.bytes,
                              .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);

    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type  = SCM_RIGHTS;
    rights->cmsg_len   = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &fd, sizeof(int));
    return (sendmsg(socket, &message, 0) == sizeof(*part)) ? 0 : -1;
}

static int receive_part(int socket, struct part *part)
{
    struct iovec data = {part, sizeof(*part)};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control             = {{0}};
    struct msghdr message = {.msg_iov        = &data,
                             .msg_iovlen     = 1,
                             .msg_control    = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *rights;
    int fd;

    if ((recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != sizeof(*part)) ||
        ((rights = CMSG_FIRSTHDR(&message)) == NULL)) {
        return -1;
    }
    memcpy(&fd, CMSG_DATA(rights), sizeof(int));
    return fd;
}

static unsigned char byte_at(size_t i)
{
    return (unsigned char)((i * 2654435761u) >> 13);
}

static int failed(const char *what, ucs_status_t status)
{
    fprintf(stderr, "dmabuf: %s: %s\n", what, ucs_status_string(status));
    return -1;
}

static int export_to(int socket, size_t length)
{
    struct part part = {0, length};
    char *host       = malloc(length);
    int result       = -1;
    int fd           = -1;
    void *buffer     = NULL;
    ucs_status_t status;
    char done;
    size_t i;

    if (host == NULL) {
        return failed("malloc", UCS_ERR_NO_MEMORY);
    }
    for (i = 0; i < length; ++i) {
        host[i] = (char)byte_at(i);
    }
    status = ucx_gaudi_mem_alloc(PLACE + length, NULL, &buffer);
    if (status == UCS_OK) {
        status = ucx_gaudi_mem_copy((char *)buffer + PLACE, host, length);
    }
    if (status == UCS_OK) {
        status = ucx_gaudi_dmabuf_export((char *)buffer + PLACE, length, &fd,
                                         &part.offset);
    }
    if (status != UCS_OK) {
        result = failed("allocation, copy or export", status);
    } else if (send_part(socket, fd, &part) != 0) {
        perror("dmabuf: sendmsg");
    } else {
        result = 0;
    }
    if (fd >= 0) {
        close(fd); /* the other process has its own */
    }
    /* The importer says when it is done, or closes its end. */
    if ((result == 0) && (read(socket, &done, 1) != 1)) {
        result = -1;
    }
    (void)ucx_gaudi_mem_free(buffer);
    free(host);
    return result;
}

/* Copy the imported part to memory of the own card, and look at it. */
static int copy_and_compare(void *imported, size_t length)
{
    unsigned char *host = malloc(length);
    void *buffer        = NULL;
    ucs_status_t status = UCS_ERR_NO_MEMORY;
    size_t i            = 0;

    if (host != NULL) {
        status = ucx_gaudi_mem_alloc(length, NULL, &buffer);
    }
    if (status == UCS_OK) {
        status = ucx_gaudi_mem_copy(buffer, imported, length);
    }
    if (status == UCS_OK) {
        status = ucx_gaudi_mem_copy(host, buffer, length);
    }
    while ((status == UCS_OK) && (i < length) && (host[i] == byte_at(i))) {
        ++i;
    }
    if ((status == UCS_OK) && (i < length)) {
        fprintf(stderr, "dmabuf: byte %zu is wrong\n", i);
    }
    (void)ucx_gaudi_mem_free(buffer);
    free(host);
    if (status != UCS_OK) {
        return failed("copy of what was imported", status);
    }
    return (i == length) ? 0 : -1;
}

static int import_from(int socket)
{
    ucx_gaudi_mem_attr_t attr = {.field_mask = UCX_GAUDI_MEM_ATTR_FIELD_CARD};
    struct part part;
    void *imported;
    ucs_status_t status;
    int result = -1;
    int fd     = receive_part(socket, &part);

    if (fd < 0) {
        fprintf(stderr, "dmabuf: no dma-buf came\n");
        return -1;
    }
    status = ucx_gaudi_open(NULL);
    if (status == UCS_OK) {
        status = ucx_gaudi_dmabuf_import(fd, part.offset, part.length, NULL,
                                         &imported);
    }
    close(fd); /* the import does not need it */
    if (status != UCS_OK) {
        return failed("import", status);
    }
    status = ucx_gaudi_mem_query(imported, part.length, &attr);
    if (status == UCS_OK) {
        printf("%zu bytes of another process's card are at %p for %s\n",
               part.length, imported, attr.card);
        result = copy_and_compare(imported, part.length);
    }
    status = ucx_gaudi_dmabuf_release(imported);
    if (status != UCS_OK) {
        result = failed("release", status);
    }
    if ((result == 0) && (write(socket, "x", 1) != 1)) {
        result = -1;
    }
    return result;
}

int main(int argc, char **argv)
{
    char *end     = "";
    size_t length = (argc > 1) ? strtoull(argv[1], &end, 10) : 1000000;
    int sockets[2];
    int status;
    int result;
    pid_t importer;

    if ((argc > 2) || (*end != '\0') || (length == 0) ||
        (length > (size_t)1 << 40)) {
        fprintf(stderr, "usage: dmabuf [BYTES]\n");
        return 2;
    }
    if (ucx_gaudi_memory_type() == UCS_MEMORY_TYPE_UNKNOWN) {
        fprintf(stderr, "dmabuf: ucx-gaudi is not active\n");
        return 1;
    }
    /* Before cards are open: a child has no part in its parent's. */
    if ((socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0) ||
        ((importer = fork()) < 0)) {
        perror("dmabuf");
        return 1;
    }
    close(sockets[importer != 0]); /* the other's end */
    result = (importer == 0) ? import_from(sockets[1])
                             : export_to(sockets[0], length);
    close(sockets[importer == 0]);
    if (importer == 0) {
        return (result == 0) ? 0 : 1;
    }
    if ((waitpid(importer, &status, 0) != importer) || (status != 0) ||
        (result != 0)) {
        return 1;
    }
    printf("the bytes that arrived on the other card are the same\n");
    return 0;
}
