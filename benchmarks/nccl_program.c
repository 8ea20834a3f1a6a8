/* ncclAllReduce on one device as a program of its own: what a C programmer would compare collbench's `throughput` with.
 *
 * nccl_program LIBNCCL SECONDS BYTES:BATCH...: one rank; for each size (a float32 sum, out of place) clock, BATCH times
 * ncclAllReduce, stream synchronise, clock, for so many seconds after a warm-up. Prints a line with NCCL's version, then
 * a line for each size: the bytes, the number of samples, and in nanoseconds a sample divided by the batch and its part
 * until the last call had returned, the medians of both.
 *
 * LIBNCCL is a path or a name such as libnccl.so.2. Both libraries are loaded here and their few functions declared, so
 * that neither CUDA's nor NCCL's headers are needed; the declarations are those of nccl.h 2 and cuda.h 12.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LEAST_SAMPLES = 9, FLOAT32 = 7, SUM = 0, NON_BLOCKING = 1 };
static const double WARM_UP_S = 0.1;

typedef struct { char internal[128]; } UniqueId;

static int (*get_version)(int *);
static int (*get_unique_id)(UniqueId *);
static int (*comm_init_rank)(void **, int, UniqueId, int);
static int (*all_reduce)(const void *, void *, size_t, int, int, void *, void *);
static int (*comm_destroy)(void *);
static int (*initialise)(unsigned);
static int (*get_device)(int *, int);
static int (*retain_context)(void **, int);
static int (*set_context)(void *);
static int (*create_stream)(void **, unsigned);
static int (*synchronise)(void *);
static int (*allocate)(uint64_t *, size_t);
static int (*release)(uint64_t);
static int (*to_device)(uint64_t, const void *, size_t);
static int (*to_host)(void *, uint64_t, size_t);

static void require(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "nccl_program: %s failed\n", what);
        exit(1);
    }
}

static void *function(void *library, const char *name)
{
    void *found = dlsym(library, name);
    require(found != NULL, name);
    return found;
}

static void load(const char *path)
{
    void *nccl = dlopen(path, RTLD_NOW | RTLD_GLOBAL), *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    require(nccl != NULL, path);
    require(cuda != NULL, "libcuda.so.1");
    *(void **)&get_version = function(nccl, "ncclGetVersion");
    *(void **)&get_unique_id = function(nccl, "ncclGetUniqueId");
    *(void **)&comm_init_rank = function(nccl, "ncclCommInitRank");
    *(void **)&all_reduce = function(nccl, "ncclAllReduce");
    *(void **)&comm_destroy = function(nccl, "ncclCommDestroy");
    *(void **)&initialise = function(cuda, "cuInit");
    *(void **)&get_device = function(cuda, "cuDeviceGet");
    *(void **)&retain_context = function(cuda, "cuDevicePrimaryCtxRetain");
    *(void **)&set_context = function(cuda, "cuCtxSetCurrent");
    *(void **)&create_stream = function(cuda, "cuStreamCreate");
    *(void **)&synchronise = function(cuda, "cuStreamSynchronize");
    *(void **)&allocate = function(cuda, "cuMemAlloc_v2");
    *(void **)&release = function(cuda, "cuMemFree_v2");
    *(void **)&to_device = function(cuda, "cuMemcpyHtoD_v2");
    *(void **)&to_host = function(cuda, "cuMemcpyDtoH_v2");
}

static inline int64_t now(void)
{
    struct timespec reading;
    clock_gettime(CLOCK_MONOTONIC, &reading);
    return reading.tv_sec * INT64_C(1000000000) + reading.tv_nsec;
}

typedef struct { uint64_t send, recv; size_t count; long batch; void *comm, *stream; } Operation;
typedef struct { double whole, queued; } Sample; /* nanoseconds an operation */

static Sample measure(const Operation *operation)
{
    int status = 0;
    int64_t start = now();
    for (long k = 0; k < operation->batch; k++)
        status |= all_reduce((const void *)operation->send, (void *)operation->recv, operation->count, FLOAT32, SUM,
                             operation->comm, operation->stream);
    int64_t queued = now();
    status |= synchronise(operation->stream);
    int64_t done = now();
    require(status == 0, "ncclAllReduce");
    double batch = (double)operation->batch;
    return (Sample){(double)(done - start) / batch, (double)(queued - start) / batch};
}

/* Sample for so many seconds; the number of samples. */
static size_t collect(const Operation *operation, double seconds, Sample **samples)
{
    size_t taken = 0, room = 0;
    int64_t end = now() + (int64_t)(seconds * 1e9);
    while (now() < end || taken < LEAST_SAMPLES) {
        if (taken == room) {
            room = room ? 2 * room : 1024;
            *samples = realloc(*samples, room * sizeof **samples);
            require(*samples != NULL, "memory for the samples");
        }
        (*samples)[taken++] = measure(operation);
    }
    return taken;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(const Sample *samples, size_t count, int queued)
{
    double *values = malloc(count * sizeof *values);
    require(values != NULL, "memory for the samples");
    for (size_t k = 0; k < count; k++)
        values[k] = queued ? samples[k].queued : samples[k].whole;
    qsort(values, count, sizeof *values, ascending);
    double middle = (values[(count - 1) / 2] + values[count / 2]) / 2;
    free(values);
    return middle;
}

static void run(Operation operation, size_t bytes, double seconds)
{
    float *host = malloc(bytes + sizeof *host);
    require(host != NULL, "memory for the buffers");
    operation.count = bytes / sizeof *host;
    for (size_t k = 0; k < operation.count; k++)
        host[k] = (float)(k % 1000);
    require(allocate(&operation.send, bytes + 1) == 0 && allocate(&operation.recv, bytes + 1) == 0, "cuMemAlloc");
    require(to_device(operation.send, host, bytes) == 0, "cuMemcpyHtoD");
    Sample *samples = NULL;
    collect(&operation, WARM_UP_S, &samples);
    size_t taken = collect(&operation, seconds, &samples);
    require(to_host(host, operation.recv, bytes) == 0, "cuMemcpyDtoH");
    for (size_t k = 0; k < operation.count; k++)
        require(host[k] == (float)(k % 1000), "the sum");
    printf("%zu %zu %.1f %.1f\n", bytes, taken, median(samples, taken, 0), median(samples, taken, 1));
    fflush(stdout);
    release(operation.send);
    release(operation.recv);
    free(samples);
    free(host);
}

int main(int argc, char **argv)
{
    require(argc > 3, "usage: nccl_program LIBNCCL SECONDS BYTES:BATCH...");
    load(argv[1]);
    int device, version;
    void *context;
    UniqueId identity;
    Operation operation = {0};
    require(initialise(0) == 0 && get_device(&device, 0) == 0, "cuInit");
    require(retain_context(&context, device) == 0 && set_context(context) == 0, "the device's primary context");
    require(create_stream(&operation.stream, NON_BLOCKING) == 0, "cuStreamCreate");
    require(get_version(&version) == 0 && get_unique_id(&identity) == 0, "ncclGetUniqueId");
    require(comm_init_rank(&operation.comm, 1, identity, 0) == 0, "ncclCommInitRank");
    printf("%d\n", version);
    for (int i = 3; i < argc; i++) {
        char *rest;
        size_t bytes = strtoull(argv[i], &rest, 10);
        operation.batch = *rest == ':' ? strtol(rest + 1, NULL, 10) : 0;
        require(operation.batch > 0, "usage: BYTES:BATCH");
        run(operation, bytes, atof(argv[2]));
    }
    comm_destroy(operation.comm);
    return 0;
}
