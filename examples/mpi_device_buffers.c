/*
 * Gaudi memory in MPI calls: a ring of MPI_Sendrecv, then MPI_Bcast.
 *
 * usage, with MPICH or Open MPI:
 *   mpiexec.mpich -n 4 build/bin/ucx-gaudi run --emulate
 *       build/bin/mpi_device_buffers.mpich
 *   mpiexec.openmpi -n 4 build/bin/ucx-gaudi run --emulate
 *       build/bin/mpi_device_buffers.openmpi
 *
 * Without --emulate on a machine that has the cards. Each rank opens a card.
 *
 * Instead of the launcher, the environment of the ranks will do. Open MPI then
 * has to be told to use UCX on any transport:
 *   mpiexec.mpich -genv LD_PRELOAD $PWD/build/lib/libucx_gaudi_preload.so ...
 *   mpiexec.openmpi -x LD_PRELOAD=$PWD/build/lib/libucx_gaudi_preload.so
 *       --mca pml ucx --mca osc ucx --mca opal_common_ucx_tls any ...
 *
 * MPI libraries pass the address on to UCX when they send, receive or broadcast
 * contiguous data. In reductions, MPI_Gather, MPI_Scatter, MPI_Allgather
 * without MPI_IN_PLACE, MPI_Alltoall, MPI_Sendrecv_replace, MPI_Bsend, MPI_Pack
 * and datatypes with holes they use the CPU, which cannot touch device memory:
 * the rank dies of SIGSEGV. Copy such data to host memory first (gaudi_read).
 * MPI_Put and MPI_Get need UCX_PROTO_ENABLE=y.
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

/* Ends the job. What went wrong has been printed. */
static void require(int result)
{
    if (result != 0) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv)
{
    const size_t bytes = COUNT * sizeof(int);
    struct gaudi_buffer to_send, received;
    int *host = malloc(bytes);
    int rank, size, left, right;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    left  = (rank + size - 1) % size;
    right = (rank + 1) % size;

    if (host == NULL) {
        perror("malloc");
    }
    require((host == NULL) ? -1 : 0);
    require(gaudi_open());
    require(gaudi_alloc(&to_send, bytes));
    require(gaudi_alloc(&received, bytes));

    /* From card to card. */
    fill(host, rank);
    require(gaudi_write(&to_send, 0, host, bytes));
    MPI_Sendrecv(to_send.address, COUNT, MPI_INT, right, 0, received.address,
                 COUNT, MPI_INT, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    require(gaudi_read(&received, 0, host, bytes));
    expect(host, left, "MPI_Sendrecv");

    /* From the card of rank 0 to all cards. */
    MPI_Bcast(to_send.address, COUNT, MPI_INT, 0, MPI_COMM_WORLD);
    require(gaudi_read(&to_send, 0, host, bytes));
    expect(host, 0, "MPI_Bcast");

    printf("rank %d of %d: the cards have what was sent\n", rank, size);
    gaudi_free(&received);
    gaudi_free(&to_send);
    gaudi_close();
    free(host);
    MPI_Finalize();
    return 0;
}
