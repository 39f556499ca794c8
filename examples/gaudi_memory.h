/*
 * Gaudi memory for programs that leave their communication to somebody else, an
 * MPI library for instance: allocate, write, read, free.
 *
 * The addresses go to MPI_Send and its like as they are. One thread at a time.
 * Functions that return int give 0, or -1 after a message on stderr.
 */
#ifndef GAUDI_MEMORY_H
#define GAUDI_MEMORY_H

#include <stddef.h>
#include <ucp/api/ucp.h>

/* Memory of the process's first card. */
struct gaudi_buffer {
    void *address; /* of the device: the CPU must not touch it */
    size_t size;   /* bytes */
    ucp_mem_h memh;
    ucp_rkey_h rkey;
};

/* Open the card. Call once, before anything else. */
int gaudi_open(void);

/* Close what gaudi_open opened, when all buffers are freed. */
void gaudi_close(void);

int gaudi_alloc(struct gaudi_buffer *buffer, size_t size);
void gaudi_free(struct gaudi_buffer *buffer);

/* Copy host memory to the buffer, or back; complete at return. */
int gaudi_write(struct gaudi_buffer *buffer, size_t offset, const void *host,
                size_t size);
int gaudi_read(struct gaudi_buffer *buffer, size_t offset, void *host,
               size_t size);

#endif
