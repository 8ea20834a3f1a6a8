/* A latency benchmark of MPI_Allreduce as a program of its own: what a C programmer would compare collbench with.
 *
 * c_program SECONDS BYTES...: for each size (a float32 sum, out of place) barrier, clock, call, clock, for so many
 * seconds after a warm-up; each sample is the largest duration over ranks. Rank 0 prints, a line for each size,
 * the bytes, the number of samples and their median in nanoseconds.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LEAST_SAMPLES = 9, PAGE = 4096 };
static const double WARM_UP_S = 0.05;
static const double BLOCK_S = 0.02; /* between two looks at the clock that ends the sampling */

static inline int64_t now(void)
{
    struct timespec reading;
    clock_gettime(CLOCK_MONOTONIC, &reading);
    return reading.tv_sec * INT64_C(1000000000) + reading.tv_nsec;
}

static void require(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "c_program: %s failed\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void measure(const float *send, float *recv, int count, long samples, int64_t *durations)
{
    for (long sample = 0; sample < samples; sample++) {
        MPI_Barrier(MPI_COMM_WORLD);
        int64_t start = now();
        MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        durations[sample] = now() - start;
    }
}

/* Sample in blocks for so many seconds; the number of samples, the same on all ranks. */
static long collect(const float *send, float *recv, int count, double seconds, int64_t **durations)
{
    long taken = 0, block = 1;
    int64_t began = now();
    while (block > 0) {
        *durations = realloc(*durations, (size_t)(taken + block) * sizeof **durations);
        require(*durations != NULL, "memory for the samples");
        int64_t start = now();
        measure(send, recv, count, block, *durations + taken);
        int64_t end = now();
        taken += block;
        if ((double)(end - start) * 1e-9 < BLOCK_S / 2)
            block *= 2;
        if ((double)(end - began) * 1e-9 >= seconds && taken >= LEAST_SAMPLES)
            block = 0;
        MPI_Bcast(&block, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    }
    return taken;
}

static int ascending(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    require(argc > 2, "usage: c_program SECONDS BYTES...");
    double seconds = atof(argv[1]);
    for (int i = 2; i < argc; i++) {
        size_t bytes = strtoull(argv[i], NULL, 10), whole = (bytes + PAGE - 1) / PAGE * PAGE;
        int count = (int)(bytes / sizeof(float));
        float *send = aligned_alloc(PAGE, whole), *recv = aligned_alloc(PAGE, whole);
        require(send != NULL && recv != NULL, "memory for the buffers");
        for (int k = 0; k < count; k++) {
            send[k] = (float)(rank + 1);
            recv[k] = 0;
        }
        int64_t *durations = NULL;
        collect(send, recv, count, WARM_UP_S, &durations);
        long samples = collect(send, recv, count, seconds, &durations);
        int64_t *worst = malloc((size_t)samples * sizeof *worst);
        require(worst != NULL, "memory for the samples");
        for (int k = 0; k < count; k++)
            require(recv[k] == (float)(size * (size + 1) / 2), "the sum");
        MPI_Reduce(durations, worst, (int)samples, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0) {
            qsort(worst, (size_t)samples, sizeof *worst, ascending);
            double median = (double)(worst[(samples - 1) / 2] + worst[samples / 2]) / 2;
            printf("%zu %ld %.1f\n", bytes, samples, median);
            fflush(stdout);
        }
        free(durations);
        free(worst);
        free(send);
        free(recv);
    }
    MPI_Finalize();
    return 0;
}
