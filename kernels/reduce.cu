// Reduce two inputs to one output, element by element; goes behind arithmetic.cu.

__device__ ELEMENT of_two(ELEMENT a, ELEMENT b) {
    return narrowed(combined(widened(a), widened(b)));
}

__device__ uint4 of_two(uint4 a, uint4 b) {
    Pack one, other;
    one.bits = a;
    other.bits = b;
    Wide wide = widened(one);
    combine(wide, other);
    return narrowed(wide).bits;
}

extern "C" __global__ void __launch_bounds__(512)
    reduce(ELEMENT *__restrict__ out, const ELEMENT *__restrict__ a, const ELEMENT *__restrict__ b, u64 count) {
    u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 stride = (u64)gridDim.x * blockDim.x;
    // Where the three addresses differ in their remainders there are no common sixteen bytes.
    bool apart = (((u64)out ^ (u64)a) | ((u64)out ^ (u64)b)) % 16;
    u64 head = apart ? count : ((0 - (u64)out) & 15) / sizeof(ELEMENT);
    if (head > count) head = count;
    u64 packs = (count - head) / LANES;
    u64 tail = head + packs * LANES;
    for (u64 i = first; i < head; i += stride) out[i] = of_two(a[i], b[i]);
    for (u64 i = tail + first; i < count; i += stride) out[i] = of_two(a[i], b[i]);
    uint4 *to = (uint4 *)(out + head);
    const uint4 *one = (const uint4 *)(a + head), *other = (const uint4 *)(b + head);
    u64 i = first;
    for (; i + stride < packs; i += 2 * stride) {  // four loads are under way before the first store
        uint4 x = one[i], y = other[i], z = one[i + stride], w = other[i + stride];
        to[i] = of_two(x, y);
        to[i + stride] = of_two(z, w);
    }
    for (; i < packs; i += stride) to[i] = of_two(one[i], other[i]);
}
