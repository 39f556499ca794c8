/* SPDX-License-Identifier: BSD-3-Clause */
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
 *       --mca pml ucx --mca osc ucx --mca opal_common_ucx_tls any
 *       --mca opal_common_ucx_devices any --mca accelerator ^cuda,rocm ...
 *
 * All MPI libraries take device memory in sends, receives and broadcasts of
 * contiguous data, as here. docs/mpi.md says, library by library, in which
 * other calls, and in which the CPU touches the memory, which ends the rank by
 * SIGSEGV: copy such data to host memory first (ucx_gaudi_mem_copy).
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include <ucx_gaudi.h>

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

/* Ends the job unless a call of ucx_gaudi.h was successful. */
static void require(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv)
{
    const size_t bytes = COUNT * sizeof(int);
    int *host          = malloc(bytes);
    void *to_send, *received; /* device addresses: not for the CPU */
    int rank, size, left, right;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    left  = (rank + size - 1) % size;
    right = (rank + 1) % size;

    require((host == NULL) ? UCS_ERR_NO_MEMORY : UCS_OK, "malloc");
    require(ucx_gaudi_mem_alloc(bytes, NULL, &to_send), "allocation");
    require(ucx_gaudi_mem_alloc(bytes, NULL, &received), "allocation");

    /* From card to card. */
    fill(host, rank);
    require(ucx_gaudi_mem_copy(to_send, host, bytes), "copy to the card");
    MPI_Sendrecv(to_send, COUNT, MPI_INT, right, 0, received, COUNT, MPI_INT,
                 left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    require(ucx_gaudi_mem_copy(host, received, bytes), "copy from the card");
    expect(host, left, "MPI_Sendrecv");

    /* From the card of rank 0 to all cards. */
    MPI_Bcast(to_send, COUNT, MPI_INT, 0, MPI_COMM_WORLD);
    require(ucx_gaudi_mem_copy(host, to_send, bytes), "copy from the card");
    expect(host, 0, "MPI_Bcast");

    printf("rank %d of %d: the cards have what was sent\n", rank, size);
    require(ucx_gaudi_mem_free(received), "free");
    require(ucx_gaudi_mem_free(to_send), "free");
    free(host);
    MPI_Finalize();
    return 0;
}
