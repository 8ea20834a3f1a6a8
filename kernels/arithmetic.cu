// One element type and one operation, for the kernels that are compiled behind this text. The macros say which:
// ELEMENT is how an element is stored, VALUE what is computed with, FORMAT how the one becomes the other.
// CUDA's own headers for the two half types are not needed, so that a driver and NVRTC are enough.

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

#define PLAIN 0
#define FLOAT16 1
#define BFLOAT16 2
#define SUM 0
#define PROD 1
#define MIN 2
#define MAX 3

__device__ VALUE widened(ELEMENT element) {
#if FORMAT == FLOAT16
    f32 value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(element));
    return value;
#elif FORMAT == BFLOAT16
    return __uint_as_float((u32)element << 16);
#else
    return element;
#endif
}

// To the nearest value, ties to even.
__device__ ELEMENT narrowed(VALUE value) {
#if FORMAT == FLOAT16
    u16 element;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(element) : "f"(value));
    return element;
#elif FORMAT == BFLOAT16
    u32 bits = __float_as_uint(value);
    if (value != value) return (u16)(bits >> 16 | 0x40);
    return (u16)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
#else
    return (ELEMENT)value;
#endif
}

__device__ VALUE combined(VALUE a, VALUE b) {
#if OPERATION == SUM
    return a + b;
#elif OPERATION == PROD
    return a * b;
#elif OPERATION == MIN
    return b < a ? b : a;
#else
    return b > a ? b : a;
#endif
}

#define LANES (16 / sizeof(ELEMENT))

// Sixteen bytes of elements, read and written at once.
union Pack {
    uint4 bits;
    ELEMENT lane[LANES];
};

// The same while it is computed with.
struct Wide {
    VALUE lane[LANES];
};

__device__ Wide widened(const Pack &pack) {
    Wide wide;
#pragma unroll
    for (int k = 0; k < LANES; ++k) wide.lane[k] = widened(pack.lane[k]);
    return wide;
}

__device__ Pack narrowed(const Wide &wide) {
    Pack pack;
#pragma unroll
    for (int k = 0; k < LANES; ++k) pack.lane[k] = narrowed(wide.lane[k]);
    return pack;
}

__device__ void combine(Wide &into, const Pack &pack) {
#pragma unroll
    for (int k = 0; k < LANES; ++k) into.lane[k] = combined(into.lane[k], widened(pack.lane[k]));
}
