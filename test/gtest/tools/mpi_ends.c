/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks with Gaudi memory that do not come to a good end.
 *
 * usage: mpi_ends wait|exit|die|abort FOLDER      under mpiexec
 *
 * After a broadcast on Gaudi memory each rank makes the file FOLDER/ready.RANK.
 * When all have, the last one exits with code 3, is killed, or calls MPI_Abort
 * with code 7, and the others wait for it; with "wait" so does the last.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ucx_gaudi.h>

#define SIZE (1 << 20)
#define LIFE_SECONDS 60

static void announce(const char *folder, int rank)
{
    char name[4096];
    FILE *file;

    snprintf(name, sizeof(name), "%s/ready.%d", folder, rank);
    file = fopen(name, "w");
    if ((file == NULL) || (fclose(file) != 0)) {
        perror(name);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv)
{
    void *buffer;
    int rank, ranks;

    if (argc != 3) {
        fprintf(stderr, "usage: mpi_ends wait|exit|die|abort FOLDER\n");
        return 2;
    }
    alarm(LIFE_SECONDS);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if ((ucx_gaudi_mem_alloc(SIZE, NULL, &buffer) != UCS_OK) ||
        (ucx_gaudi_mem_fill(buffer, SIZE, "", 1) != UCS_OK)) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Bcast(buffer, SIZE, MPI_CHAR, 0, MPI_COMM_WORLD);
    announce(argv[2], rank);
    MPI_Barrier(MPI_COMM_WORLD);

    if (rank == ranks - 1) {
        if (!strcmp(argv[1], "exit")) {
            _exit(3);
        } else if (!strcmp(argv[1], "die")) {
            kill(getpid(), SIGKILL);
        } else if (!strcmp(argv[1], "abort")) {
            MPI_Abort(MPI_COMM_WORLD, 7);
        }
    }
    /* A message that nobody sends. */
    MPI_Recv(buffer, 1, MPI_CHAR, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    return 0;
}
