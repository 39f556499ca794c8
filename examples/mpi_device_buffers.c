/*
 * Gaudi memory in MPI calls: a ring of MPI_Sendrecv, then MPI_Bcast.
 *
 * usage, with MPICH:
 *   mpiexec.mpich -n 4 build/bin/ucx-gaudi run --emulate --
 *       build/bin/mpi_device_buffers.mpich
 * and with Open MPI, which has to be told to use UCX on any transport:
 *   mpirun.openmpi -n 4 --mca pml ucx --mca osc ucx
 *       --mca pml_ucx_tls any --mca pml_ucx_devices any
 *       --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any
 *       build/bin/ucx-gaudi run --emulate --
 *       build/bin/mpi_device_buffers.openmpi
 *
 * Without --emulate on a machine that has the cards. Each rank opens a card.
 */
#include "gaudi_memory.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT (1 << 20)

static void fill(int *values, int rank)
{
    for (int i = 0; i < COUNT; ++i) {
        values[i] = rank * 1000003 + i;
    }
}

static void expect(const int *values, int rank, const char *what)
{
    for (int i = 0; i < COUNT; ++i) {
        if (values[i] != rank * 1000003 + i) {
            fprintf(stderr, "%s: element %d is wrong\n", what, i);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

int main(int argc, char **argv)
{
    struct gaudi_buffer to_send, received;
    int *host = malloc(COUNT * sizeof(*host));
    int rank, size, left, right;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    left  = (rank + size - 1) % size;
    right = (rank + 1) % size;

    if ((host == NULL) || gaudi_open() ||
        gaudi_alloc(&to_send, COUNT * sizeof(*host)) ||
        gaudi_alloc(&received, COUNT * sizeof(*host))) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }

    /* From card to card. */
    fill(host, rank);
    gaudi_write(&to_send, 0, host, COUNT * sizeof(*host));
    MPI_Sendrecv(to_send.address, COUNT, MPI_INT, right, 0, received.address,
                 COUNT, MPI_INT, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    gaudi_read(&received, 0, host, COUNT * sizeof(*host));
    expect(host, left, "MPI_Sendrecv");

    /* From the card of rank 0 to all cards. */
    MPI_Bcast(to_send.address, COUNT, MPI_INT, 0, MPI_COMM_WORLD);
    gaudi_read(&to_send, 0, host, COUNT * sizeof(*host));
    expect(host, 0, "MPI_Bcast");

    printf("rank %d of %d: the cards have what was sent\n", rank, size);
    gaudi_free(&received);
    gaudi_free(&to_send);
    gaudi_close();
    free(host);
    MPI_Finalize();
    return 0;
}
