// all_reduce between the devices of one host, over memory that each rank has mapped of the others; goes behind
// arithmetic.cu, and is compiled for RANKS ranks.
//
// Block b of a rank meets only block b of the others, and reads only what those wrote, so every rank must launch the
// same grid; and since blocks wait for others, all of a grid must fit on the device at once.
//
// A meeting: each block writes a number that grows from meeting to meeting into the memory of every rank, with a
// release at system scope, and waits for the others' numbers in its own memory, with an acquire at system scope. By
// PTX's memory model a release covers what its thread has seen happen before, so, behind a barrier of the block, all
// that the block wrote, and what earlier kernels of the stream wrote; the acquire, before a barrier, does the same for
// those who read. Loads and stores are enough, so a link without atomic operations serves too. The numbers are never
// reset, and how far a block has come is kept in device memory, so that a captured launch can be replayed.

struct Arguments {
    u64 input[RANKS];    // two_shot: what each rank reduces; one_shot: only this rank's is used
    u64 scratch[RANKS];  // one_shot: two halves, each for a whole vector; two_shot: the rank's part of the result
    u64 flags[RANKS];    // [blocks][RANKS]: the number of the latest meeting that each rank has come to
    u64 output;
    u64 state;           // own device memory: whether a meeting has failed, then how many each block has had
    u64 error;           // pinned host memory: the missing rank's number + 1 as decimal digits
    u64 count;
    u64 rank;
    u64 deadline_ns;     // of one meeting
};

__device__ u64 load_acquire(const u64 *flag) {
    u64 value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
    return value;
}

__device__ void store_release(u64 *flag, u64 value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

__device__ u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

__device__ volatile u64 *failed(const Arguments &a) {
    return (volatile u64 *)a.state;
}

__device__ u64 *meetings(const Arguments &a) {
    return (u64 *)a.state + 1 + blockIdx.x;
}

const int BUSY_POLLS = 256;  // some tens of microseconds: peers that come at about the same time are met sooner

// Wait until the number is reached; false where that takes too long, or another block has given up.
__device__ bool reached(const u64 *flag, u64 number, int peer, const Arguments &a) {
    u64 begun = 0;
    for (u32 polls = 1;; ++polls) {
        if (load_acquire(flag) >= number) return true;
        if (polls % BUSY_POLLS) continue;
        if (*failed(a)) return false;
        u64 now = nanoseconds();
        if (!begun) begun = now;
        if (now - begun > a.deadline_ns) break;
        __nanosleep(200);
    }
    *failed(a) = 1;
    u32 missing = peer + 1;
    u32 digits = missing < 10 ? '0' + missing : ('0' + missing / 10) | ('0' + missing % 10) << 8;
    *(volatile u32 *)a.error = digits;
    __threadfence_system();
    return false;
}

// Meet the same block of all ranks; false, for all threads, where one did not come.
__device__ bool meet(u64 number, const Arguments &a) {
    bool came = true;
    __syncthreads();
    if (threadIdx.x < RANKS) {
        int peer = threadIdx.x;
        u64 row = (u64)blockIdx.x * RANKS;
        store_release((u64 *)a.flags[peer] + row + a.rank, number);
        came = reached((const u64 *)a.flags[a.rank] + row + peer, number, peer, a);
    }
    return __syncthreads_and(came);
}

// How many meetings this block has had; no number where one has failed.
const u64 FAILED = ~0ull;
__device__ u64 meetings_so_far(const Arguments &a) {
    __shared__ u64 so_far;
    if (threadIdx.x == 0) so_far = *failed(a) ? FAILED : *meetings(a);
    __syncthreads();
    return so_far;
}

__device__ void remember(u64 number, const Arguments &a) {
    if (threadIdx.x == 0) *meetings(a) = number;
}

// Whether pack p of `count` elements is a full one; only the last one may be short.
__device__ bool is_full(u64 p, u64 count) {
    return (p + 1) * LANES <= count;
}

__device__ Pack read_full(u64 from, u64 p) {
    Pack pack;
    pack.bits = ((const uint4 *)from)[p];
    return pack;
}

// A short pack is filled up with its own first element.
__device__ Pack read_short(u64 from, u64 p, u64 count) {
    const ELEMENT *element = (const ELEMENT *)from + p * LANES;
    Pack pack;
    for (int k = 0; k < LANES; ++k) pack.lane[k] = element[p * LANES + k < count ? k : 0];
    return pack;
}

__device__ void write(u64 to, u64 p, u64 count, const Pack &pack) {
    if (is_full(p, count)) {
        ((uint4 *)to)[p] = pack.bits;
        return;
    }
    for (int k = 0; k < LANES; ++k)
        if (p * LANES + k < count) ((ELEMENT *)to)[p * LANES + k] = pack.lane[k];
}

const int AT_ONCE = 8;  // loads that are under way before the first is used

// Reduce pack p over all ranks, in the order of the ranks, so that every rank gets the same bits.
template <class Read>
__device__ Pack reduced(Read read_from) {
    Wide sum;
    for (int first = 0; first < RANKS; first += AT_ONCE) {
        Pack pack[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k)
            if (first + k < RANKS) pack[k] = read_from(first + k);
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) {
            if (first + k == 0) sum = widened(pack[0]);
            else if (first + k < RANKS) combine(sum, pack[k]);
        }
    }
    return narrowed(sum);
}

// For short messages: each rank leaves its vector in its scratch memory, and reads everybody's. The halves take turns:
// a rank that writes to one again has met all others since, who had come there only after they had read it.
extern "C" __global__ void __launch_bounds__(512) one_shot(const __grid_constant__ Arguments a) {
    u64 so_far = meetings_so_far(a);
    if (so_far == FAILED) return;
    u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 stride = (u64)gridDim.x * blockDim.x;
    u64 packs = (a.count + LANES - 1) / LANES;
    u64 half = (so_far & 1) * packs;
    u64 input = a.input[a.rank];
    uint4 *mine = (uint4 *)a.scratch[a.rank] + half;
    for (u64 p = first; p < packs; p += stride)
        mine[p] = (is_full(p, a.count) ? read_full(input, p) : read_short(input, p, a.count)).bits;
    if (!meet(so_far + 1, a)) return;
    for (u64 p = first; p < packs; p += stride)
        write(a.output, p, a.count, reduced([&](int rank) { return read_full(a.scratch[rank], half + p); }));
    remember(so_far + 1, a);
}

// For long messages: each rank reduces its part from everybody's input into its scratch memory; then each gathers the
// parts. The second meeting is also the word that nobody reads the inputs any more, so that they may be overwritten,
// here where the call is in place and by the caller afterwards; the first one, that nobody reads the scratch memory.
extern "C" __global__ void __launch_bounds__(512) two_shot(const __grid_constant__ Arguments a) {
    u64 so_far = meetings_so_far(a);
    if (so_far == FAILED) return;
    u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 stride = (u64)gridDim.x * blockDim.x;
    u64 packs = (a.count + LANES - 1) / LANES;
    u64 part = (packs + RANKS - 1) / RANKS;
    if (!meet(so_far + 1, a)) return;
    uint4 *mine = (uint4 *)a.scratch[a.rank];
    for (u64 i = first; i < part; i += stride) {
        u64 p = a.rank * part + i;
        if (p >= packs) break;
        Pack pack = is_full(p, a.count)
                        ? reduced([&](int rank) { return read_full(a.input[rank], p); })
                        : reduced([&](int rank) { return read_short(a.input[rank], p, a.count); });
        mine[i] = pack.bits;
        write(a.output, p, a.count, pack);  // nobody else reads this part of any input
    }
    if (!meet(so_far + 2, a)) return;
    for (u64 i = first; i < part; i += stride) {
        for (int next = 1; next < RANKS; next += AT_ONCE) {  // the next rank first: not all of them at one
            Pack pack[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; ++k)  // the last ranks' parts may be shorter, their memory is not
                if (next + k < RANKS) pack[k] = read_full(a.scratch[(a.rank + next + k) % RANKS], i);
#pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) {
                u64 p = (a.rank + next + k) % RANKS * part + i;
                if (next + k < RANKS && p < packs) write(a.output, p, a.count, pack[k]);
            }
        }
    }
    remember(so_far + 2, a);
}
