// Copy bytes from anywhere to anywhere: sixteen at a time where both addresses have the same remainder, else as many
// as their remainders allow.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

template <class Word>
__device__ void copy_as(u8 *__restrict__ to, const u8 *__restrict__ from, u64 bytes) {
    u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 stride = (u64)gridDim.x * blockDim.x;
    u64 head = (0 - (u64)to) & (sizeof(Word) - 1);
    if (head > bytes) head = bytes;
    u64 words = (bytes - head) / sizeof(Word);
    u64 tail = head + words * sizeof(Word);
    // Head and tail are shorter than a word, and a block has more threads than a word has bytes.
    if (first < head) to[first] = from[first];
    if (tail + first < bytes) to[tail + first] = from[tail + first];
    Word *target = (Word *)(to + head);
    const Word *source = (const Word *)(from + head);
    u64 i = first;
    for (; i + 3 * stride < words; i += 4 * stride) {  // four loads are under way before the first store
        Word a = source[i], b = source[i + stride], c = source[i + 2 * stride], d = source[i + 3 * stride];
        target[i] = a;
        target[i + stride] = b;
        target[i + 2 * stride] = c;
        target[i + 3 * stride] = d;
    }
    for (; i < words; i += stride) target[i] = source[i];
}

extern "C" __global__ void __launch_bounds__(512) copy(u8 *to, const u8 *from, u64 bytes) {
    u64 apart = (u64)to ^ (u64)from;
    if (apart % 16 == 0) copy_as<uint4>(to, from, bytes);
    else if (apart % 8 == 0) copy_as<u64>(to, from, bytes);
    else if (apart % 4 == 0) copy_as<u32>(to, from, bytes);
    else if (apart % 2 == 0) copy_as<u16>(to, from, bytes);
    else copy_as<u8>(to, from, bytes);
}
