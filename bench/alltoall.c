/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every rank sends a block to every other one, in host memory or in that of its
 * card, by an MPI library that knows nothing of cards.
 *
 * usage: gaudi_bench_alltoall gaudi|host BYTES ROUNDS [STEPS]      under
 * mpiexec
 *
 * BYTES is the size of a block. With STEPS, but 0, a round is so many steps of
 * a ring instead, in each of which every rank sends a block to the next one.
 * Rank 0 prints the median time of a round in nanoseconds. Afterwards each rank
 * looks at all that it received; a wrong byte ends the job.
 *
 * MPI_Alltoall itself is not used: MPI libraries move a rank's block to itself
 * by the CPU, which cannot touch device memory. So that block stays where it
 * is.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ucx_gaudi.h>

static void require(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "gaudi_bench_alltoall: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
        abort();
    }
}

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Differs for every pair of ranks of a box. */
static unsigned char mark(int from, int to)
{
    return (unsigned char)(1 + from * 15 + to);
}

/* There may be fewer cores than ranks: who waits gives its own away. It sleeps,
 * since ranks that yield leave none to the threads of software cards. */
static void wait_all(int count, MPI_Request *requests, MPI_Status *statuses)
{
    const struct timespec pause = {.tv_nsec = 20000};
    int done                    = 0;
    for (;;) {
        MPI_Testall(count, requests, &done, statuses);
        if (done) {
            return;
        }
        nanosleep(&pause, NULL);
    }
}

static void wait_for_all_ranks(void)
{
    MPI_Request request;
    MPI_Status status;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    wait_all(1, &request, &status);
}

static void exchange(char *out, char *in, int bytes, int rank, int ranks,
                     MPI_Request *requests, MPI_Status *statuses)
{
    int count = 0;
    for (int i = 1; i < ranks; ++i) {
        const int peer = (rank + ranks - i) % ranks;
        MPI_Irecv(in + (size_t)peer * bytes, bytes, MPI_BYTE, peer, 0,
                  MPI_COMM_WORLD, &requests[count++]);
    }
    for (int i = 1; i < ranks; ++i) {
        const int peer = (rank + i) % ranks;
        MPI_Isend(out + (size_t)peer * bytes, bytes, MPI_BYTE, peer, 0,
                  MPI_COMM_WORLD, &requests[count++]);
    }
    wait_all(count, requests, statuses);
}

static void pass_on(char *out, char *in, int bytes, int rank, int ranks,
                    int steps)
{
    const int next = (rank + 1) % ranks;
    const int last = (rank + ranks - 1) % ranks;
    for (int i = 0; i < steps; ++i) {
        MPI_Request requests[2];
        MPI_Status statuses[2];
        MPI_Irecv(in, bytes, MPI_BYTE, last, 0, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, bytes, MPI_BYTE, next, 0, MPI_COMM_WORLD, &requests[1]);
        wait_all(2, requests, statuses);
    }
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    require(ranks > 1, "at least two ranks are needed");
    require((argc == 4) || (argc == 5),
            "usage: gaudi_bench_alltoall gaudi|host BYTES ROUNDS [STEPS]");

    const int on_card     = (strcmp(argv[1], "gaudi") == 0);
    const int bytes       = atoi(argv[2]);
    const int rounds      = atoi(argv[3]);
    const int steps       = (argc > 4) ? atoi(argv[4]) : 0;
    const int last        = (rank + ranks - 1) % ranks;
    const int blocks      = (steps > 0) ? 1 : ranks;
    const size_t size     = (size_t)bytes * (size_t)blocks;
    char *image           = malloc(size);
    char *received        = calloc(1, size);
    MPI_Request *requests = calloc(2 * (size_t)ranks, sizeof(*requests));
    MPI_Status *statuses  = calloc(2 * (size_t)ranks, sizeof(*statuses));
    double *times         = calloc((size_t)rounds + 1, sizeof(*times));
    void *out             = NULL;
    void *in              = NULL;
    require((bytes > 0) && (rounds > 0) && (image != NULL) &&
                (received != NULL) && (requests != NULL) &&
                (statuses != NULL) && (times != NULL),
            "bad sizes, or no memory");

    for (int i = 0; i < blocks; ++i) {
        memset(image + (size_t)i * bytes,
               mark(rank, (steps > 0) ? (rank + 1) % ranks : i), bytes);
    }
    if (on_card) {
        require((ucx_gaudi_mem_alloc(size, NULL, &out) == UCS_OK) &&
                    (ucx_gaudi_mem_alloc(size, NULL, &in) == UCS_OK),
                "no device memory");
        require((ucx_gaudi_mem_copy(out, image, size) == UCS_OK) &&
                    (ucx_gaudi_mem_fill(in, size, "", 1) == UCS_OK),
                "cannot write device memory");
    }

    /* The first round, or step, opens buffers, and is not counted. */
    for (int i = 0; i <= rounds; ++i) {
        wait_for_all_ranks();
        const double start = MPI_Wtime();
        char *from         = on_card ? out : image;
        char *to           = on_card ? in : received;
        if (steps > 0) {
            pass_on(from, to, bytes, rank, ranks, (i == 0) ? 1 : steps);
        } else {
            exchange(from, to, bytes, rank, ranks, requests, statuses);
        }
        wait_for_all_ranks();
        times[i] = MPI_Wtime() - start;
    }

    if (on_card) {
        require(ucx_gaudi_mem_copy(received, in, size) == UCS_OK,
                "cannot read device memory");
    }
    for (int block = 0; block < blocks; ++block) {
        const int peer           = (steps > 0) ? last : block;
        const char *bytes_of     = received + (size_t)block * bytes;
        const unsigned char want = mark(peer, rank);
        for (int i = 0; (peer != rank) && (i < bytes); ++i) {
            require((unsigned char)bytes_of[i] == want, "a wrong byte came");
        }
    }
    if (rank == 0) {
        qsort(times + 1, (size_t)rounds, sizeof(*times), compare);
        printf("%.0f\n", times[1 + rounds / 2] * 1e9);
    }
    require((ucx_gaudi_mem_free(in) == UCS_OK) &&
                (ucx_gaudi_mem_free(out) == UCS_OK),
            "cannot free device memory");
    free(times);
    free(statuses);
    free(requests);
    free(received);
    free(image);
    MPI_Finalize();
    return 0;
}
