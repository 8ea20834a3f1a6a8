/* The loop that a C programmer would write, to hold collbench's compiled loop against, in the same process.
 *
 * It takes its arguments as the words that collbench passes to the MPI function (argument i is word i), so both loops
 * work on the same buffers, type, operation and communicator. To measure another function, add its line below: its MPI
 * prototype, argument by argument.
 */
#include <mpi.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

enum { WORDS = 12 };

static inline int64_t now(void)
{
    struct timespec reading;
    clock_gettime(CLOCK_MONOTONIC, &reading);
    return reading.tv_sec * INT64_C(1000000000) + reading.tv_nsec;
}

#define BUFFER(i) ((void *)(uintptr_t)word[i])
#define INT(i) ((int)word[i])
#define TYPE(i) ((MPI_Datatype)word[i])
#define OP(i) ((MPI_Op)word[i])
#define COMM(i) ((MPI_Comm)word[i])
#define STATUS(i) ((MPI_Status *)(uintptr_t)word[i])

#define LOOP(function, ...)                                                                                            \
    static int loop_##function(const uint64_t *words, MPI_Comm meeting, long samples, int64_t *durations)              \
    {                                                                                                                  \
        uint64_t word[WORDS];                                                                                          \
        memcpy(word, words, sizeof word);                                                                              \
        int failed = 0;                                                                                                \
        for (long sample = 0; sample < samples; sample++) {                                                            \
            failed |= MPI_Barrier(meeting);                                                                            \
            int64_t start = now();                                                                                     \
            failed |= function(__VA_ARGS__);                                                                           \
            durations[sample] = now() - start;                                                                         \
        }                                                                                                              \
        return failed;                                                                                                 \
    }
#define FUNCTIONS                                                                                                      \
    FUNCTION(MPI_Allreduce, BUFFER(0), BUFFER(1), INT(2), TYPE(3), OP(4), COMM(5))                                     \
    FUNCTION(MPI_Reduce, BUFFER(0), BUFFER(1), INT(2), TYPE(3), OP(4), INT(5), COMM(6))                                \
    FUNCTION(MPI_Reduce_scatter_block, BUFFER(0), BUFFER(1), INT(2), TYPE(3), OP(4), COMM(5))                          \
    FUNCTION(MPI_Allgather, BUFFER(0), INT(1), TYPE(2), BUFFER(3), INT(4), TYPE(5), COMM(6))                           \
    FUNCTION(MPI_Gather, BUFFER(0), INT(1), TYPE(2), BUFFER(3), INT(4), TYPE(5), INT(6), COMM(7))                      \
    FUNCTION(MPI_Scatter, BUFFER(0), INT(1), TYPE(2), BUFFER(3), INT(4), TYPE(5), INT(6), COMM(7))                     \
    FUNCTION(MPI_Bcast, BUFFER(0), INT(1), TYPE(2), INT(3), COMM(4))                                                   \
    FUNCTION(MPI_Alltoall, BUFFER(0), INT(1), TYPE(2), BUFFER(3), INT(4), TYPE(5), COMM(6))                            \
    FUNCTION(MPI_Alltoallv, BUFFER(0), BUFFER(1), BUFFER(2), TYPE(3), BUFFER(4), BUFFER(5), BUFFER(6), TYPE(7),        \
             COMM(8))                                                                                                  \
    FUNCTION(MPI_Scan, BUFFER(0), BUFFER(1), INT(2), TYPE(3), OP(4), COMM(5))                                          \
    FUNCTION(MPI_Sendrecv, BUFFER(0), INT(1), TYPE(2), INT(3), INT(4), BUFFER(5), INT(6), TYPE(7), INT(8), INT(9),     \
             COMM(10), STATUS(11))

#define FUNCTION LOOP
FUNCTIONS
#undef FUNCTION

static const struct {
    const char *name;
    void (*function)(void);
    int (*loop)(const uint64_t *, MPI_Comm, long, int64_t *);
} table[] = {
#define FUNCTION(function, ...) {#function, (void (*)(void))function, loop_##function},
    FUNCTIONS
#undef FUNCTION
};
enum { ENTRIES = sizeof table / sizeof *table };

/* Where in the table a function is; -1 where it is not. */
int find_function(const char *name)
{
    for (int entry = 0; entry < ENTRIES; entry++)
        if (strcmp(table[entry].name, name) == 0)
            return entry;
    return -1;
}

/* The address that the loop calls, or that of its barrier for -1: they must be collbench's. */
uint64_t address_of(int entry)
{
    return entry < 0 ? (uint64_t)(uintptr_t)MPI_Barrier : (uint64_t)(uintptr_t)table[entry].function;
}

/* `durations` gets the nanoseconds of `samples` calls, each after a barrier; not 0 if any call failed. */
int run_loop(int entry, const uint64_t *words, const uint64_t *meeting, long samples, int64_t *durations)
{
    const uint64_t *word = meeting;
    return table[entry].loop(words, COMM(0), samples, durations);
}
