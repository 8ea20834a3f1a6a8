// Fill and compare device memory with the data that collbench/pattern.py describes; the same bits as kernels/pattern.py.

typedef unsigned long long u64;

// collbench.pattern.WORDS, in its order.
struct Words {
    u64 operation, width, mantissa, sign, origin, key, left, right, base, ranks, first, last, window, step_mask, step_half,
        base_mask, base_half, lift, exponent_low, exponent_span, keep, force;
};

enum { UNTOUCHED, MOVE, SUM, PROD, MIN, MAX, AVG };

const u64 STEP = 0x9E3779B97F4A7C15;
const u64 ALL = ~0ull;

__device__ u64 mix(u64 x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
}

__device__ u64 draw(u64 g, u64 multiplier) {
    u64 x = g * multiplier;
    return x ^ (x >> 32);
}

// A number below count from 32 random bits.
__device__ u64 scaled(u64 bits, u64 count) {
    return ((bits & 0xFFFFFFFF) * count) >> 32;
}

__device__ u64 random_bits(const Words &w, u64 g, u64 multiplier) {
    return (draw(g, multiplier) & w.keep) | w.force;
}

// Lifts and steps of the ranks first..last.
__device__ u64 path(const Words &w, u64 g, u64 h) {
    u64 after = w.last + 1 < w.ranks ? w.last + 1 : 0;
    u64 a = w.first - h + (w.first < h ? w.ranks : 0);
    u64 b = after - h + (after < h ? w.ranks : 0);
    u64 k = w.lift * ((b < w.window ? b : w.window) - (a < w.window ? a : w.window) + (b <= a ? w.window : 0));
    if (a - 1 < w.window - 1) k += (draw(g, w.left) & w.step_mask) - w.step_half;
    if (b - 1 < w.window - 1) k -= (draw(g, w.right) & w.step_mask) - w.step_half;
    return k;
}

__device__ bool among(const Words &w, u64 rank) {
    return rank - w.first <= w.last - w.first;
}

__device__ u64 base(const Words &w, u64 g, u64 h) {
    return among(w, h) ? (draw(g, w.base) & w.base_mask) - w.base_half : 0;
}

__device__ u64 sum(const Words &w, u64 g) {
    u64 h = scaled(g, w.ranks);
    u64 k = path(w, g, h) + base(w, g, h);
    if (w.mantissa == 0 || k == 0) return k;
    u64 minus = 0 - (k >> 63);
    u64 magnitude = (k ^ minus) - minus;
    u64 top = 63 - __clzll((long long)magnitude);
    u64 exponent = w.exponent_low + scaled(g >> 32, w.exponent_span) + top;
    // The leading one of the magnitude adds itself to the exponent.
    return (((exponent - 1) << w.mantissa) + (magnitude << (w.mantissa - top))) | (w.sign & minus);
}

__device__ u64 prod(const Words &w, u64 g) {
    u64 h = scaled(g, w.ranks);
    u64 exponent = w.exponent_low + path(w, g, h);
    u64 drawn = base(w, g, h);
    u64 minus = 0 - ((exponent ^ drawn) >> 63);
    u64 factor = drawn & (ALL >> 1);
    if (w.mantissa) return ((exponent << w.mantissa) + factor) ^ (w.sign & minus);
    return (((factor | 1) << (exponent & 63)) ^ minus) - minus;
}

// Integers that are ordered as the type is: a float's magnitude counts down where it is negative.
__device__ u64 extreme(const Words &w, u64 g) {
    u64 everything = ALL >> (64 - w.width);
    u64 turned = w.mantissa ? everything : w.sign;
    u64 reverse = w.operation == MAX ? everything : 0;
    u64 best = ALL;
    for (u64 rank = w.first; rank <= w.last; ++rank) {
        u64 bits = random_bits(w, g, mix(w.key + rank * STEP) | 1);
        bits ^= (bits & w.sign ? turned : w.sign) ^ reverse;
        best = bits < best ? bits : best;
    }
    best ^= reverse;
    return best ^ (best & w.sign ? w.sign : turned);
}

// The bits of value * 2^(exponent - bias), rounded to nearest, ties to even; value is positive.
__device__ u64 rounded(double value, u64 exponent, u64 mantissa) {
    u64 bits = (u64)__double_as_longlong(value);
    exponent += bits >> 52;
    bits = (bits & (ALL >> 12)) | (1ull << 52);
    u64 lost = exponent <= 1023 ? 1024 - exponent : 0;  // of a subnormal number
    u64 drop = 52 - mantissa + lost;
    if (drop > 63) drop = 63;
    if (drop) bits = (bits + (1ull << (drop - 1)) - 1 + ((bits >> drop) & 1)) >> drop;
    return bits + ((exponent + lost - 1024) << mantissa);
}

__device__ u64 mean(const Words &w, u64 g) {
    u64 h = scaled(g, w.ranks);
    u64 second = h + 1 < w.ranks ? h + 1 : 0;
    u64 k = 0;
    if (among(w, h)) k += w.lift + (draw(g, w.base) & w.base_mask) - w.base_half;
    if (w.ranks > 1 && among(w, second)) k += w.lift + (draw(g, w.left) & w.base_mask) - w.base_half;
    if (k == 0) return 0;
    u64 parts = w.last - w.first + 1 == w.ranks ? w.ranks : 1;
    if (w.mantissa) {
        u64 exponent = w.exponent_low + scaled(g >> 32, w.exponent_span);
        u64 bits = rounded(__ull2double_rn(k) / __ull2double_rn(parts), exponent, w.mantissa);
        return bits | (w.sign & (0 - ((g >> 40) & 1)));
    }
    u64 minus = w.sign ? 0 - (k >> 63) : 0;
    return ((((k ^ minus) - minus) / parts) ^ minus) - minus;
}

__device__ u64 value(const Words &w, u64 index) {
    u64 g = mix(w.origin + index * STEP);
    switch (w.operation) {
        case SUM: return sum(w, g);
        case PROD: return prod(w, g);
        case MIN:
        case MAX: return extreme(w, g);
        case AVG: return mean(w, g);
        default: return random_bits(w, g, w.left);
    }
}

// Write count values, or their complements where flip is all ones.
extern "C" __global__ void pattern_fill(void *memory, u64 count, Words w, u64 index, u64 flip) {
    u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        u64 bits = value(w, index + i) ^ flip;
        switch (w.width) {
            case 8: ((unsigned char *)memory)[i] = (unsigned char)bits; break;
            case 16: ((unsigned short *)memory)[i] = (unsigned short)bits; break;
            case 32: ((unsigned int *)memory)[i] = (unsigned int)bits; break;
            default: ((u64 *)memory)[i] = bits;
        }
    }
}

// Add to found[0] how many elements differ by more than tolerance, and lower found[1] to the first of them.
extern "C" __global__ void pattern_compare(
    const void *memory, u64 count, Words w, u64 index, u64 tolerance, u64 *found) {
    u64 stride = (u64)gridDim.x * blockDim.x;
    u64 wrong = 0, first = ALL;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        u64 expected = value(w, index + i) & (ALL >> (64 - w.width));
        u64 actual;
        switch (w.width) {
            case 8: actual = ((const unsigned char *)memory)[i]; break;
            case 16: actual = ((const unsigned short *)memory)[i]; break;
            case 32: actual = ((const unsigned int *)memory)[i]; break;
            default: actual = ((const u64 *)memory)[i];
        }
        if ((actual > expected ? actual - expected : expected - actual) > tolerance) {
            if (wrong == 0) first = i;
            ++wrong;
        }
    }
    if (wrong) {
        atomicAdd(&found[0], wrong);
        atomicMin(&found[1], first);
    }
}
