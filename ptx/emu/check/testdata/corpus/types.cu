// Number types, conversions and mathematical functions.
#define KERNEL extern "C" __global__ void
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cmath>

#define I int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return

KERNEL elementary(const float *x, float *y, int n) {
    I;
    float v = x[i], r[] = {sinf(v), cosf(v), tanf(v), expf(v), exp2f(v), expm1f(v), logf(fabsf(v)), log1pf(fabsf(v)),
                           atanf(v), sinhf(v), coshf(v), tanhf(v), erff(v), cbrtf(v), sqrtf(fabsf(v)), 1 / v};
    for (int k = 0; k < 16; k++) y[k * n + i] = r[k];
}

KERNEL elementary_double(const double *x, double *y, int n) {
    I;
    double v = x[i], r[] = {sin(v), cos(v), exp(v), log(fabs(v)), atan(v), tanh(v), sqrt(fabs(v)), 1 / v,
                            pow(fabs(v), 1.7), hypot(v, 2.0), fmod(v, 0.3), atan2(v, 0.5)};
    for (int k = 0; k < 12; k++) y[k * n + i] = r[k];
}

KERNEL fast(const float *x, float *y, int n) {
    I;
    float v = x[i], r[] = {__sinf(v), __cosf(v), __expf(v), __logf(fabsf(v)), __fdividef(1, v), rsqrtf(fabsf(v)),
                           __powf(fabsf(v), 1.5f), __saturatef(v)};
    for (int k = 0; k < 8; k++) y[k * n + i] = r[k];
}

KERNEL rounding(const float *x, float *y, int *z, int n) {
    I;
    float v = x[i], r[] = {floorf(v), ceilf(v), truncf(v), rintf(v), roundf(v), fabsf(v), copysignf(2, v), v - floorf(v)};
    for (int k = 0; k < 8; k++) y[k * n + i] = r[k];
    int q[] = {__float2int_rn(v), __float2int_rz(v), __float2int_ru(v), __float2int_rd(v), (int)(v * 1e20f), (unsigned char)v};
    for (int k = 0; k < 5; k++) z[k * n + i] = q[k];
}

KERNEL directed(const float *x, const float *y, float *z, int n) {
    I;
    z[i] = __fadd_ru(x[i], y[i]) - __fadd_rd(x[i], y[i]);
    z[n + i] = __fmul_ru(x[i], y[i]) - __fmul_rd(x[i], y[i]);
    z[2 * n + i] = __fmaf_rz(x[i], y[i], 1.f);
    z[3 * n + i] = __fdiv_rn(x[i], y[i]);
    z[4 * n + i] = __fsqrt_rn(fabsf(x[i]));
}

KERNEL classes(const float *x, int *y, int n) {
    I;
    float v = x[i];
    y[i] = isnan(v) | isinf(v) << 1 | isfinite(v) << 2 | signbit(v) << 3 | (v == 0) << 4 | (v < 1e-38f) << 5;
}

KERNEL subnormal(const float *x, float *y, int n) {
    I;
    y[i] = x[i] * 1e-20f * 1e-20f * 1e20f;
}

KERNEL integers(const unsigned *x, const unsigned *y, unsigned *z, int n) {
    I;
    unsigned a = x[i], b = y[i];
    unsigned r[] = {(unsigned)__clz(a), (unsigned)__popc(a), __brev(a), (unsigned)__ffs(a), __byte_perm(a, b, 0x5140),
                    __funnelshift_l(a, b, a & 31), __funnelshift_r(a, b, b & 31), __umulhi(a, b), (unsigned)__mulhi((int)a, (int)b),
                    a / (b | 1), a % (b | 1), (unsigned)((int)a / (int)(b | 1)), __usad(a, b, 5), __umul24(a & 0xffffff, b & 0xffffff),
                    (unsigned)abs((int)a), (unsigned)max((int)a, (int)b)};
    for (int k = 0; k < 16; k++) z[k * n + i] = r[k];
}

KERNEL long_integers(const long long *x, const long long *y, long long *z, int n) {
    I;
    long long a = x[i], b = y[i] | 1;
    long long r[] = {a / b, a % b, (long long)((unsigned long long)a / (unsigned long long)b), __mul64hi(a, b), (long long)__clzll(a),
                     (long long)__popcll(a), (long long)__brevll(a), a << (b & 63), a >> (b & 63), a * b};
    for (int k = 0; k < 10; k++) z[k * n + i] = r[k];
}

KERNEL wide_product(const unsigned long long *x, unsigned long long *y, int n) {
    I;
    unsigned __int128 v = (unsigned __int128)x[i] * x[(i + 1) % n] + x[i];
    y[2 * i] = (unsigned long long)v;
    y[2 * i + 1] = (unsigned long long)(v >> 64);
}

KERNEL bytes_in_words(const unsigned *x, const unsigned *y, unsigned *z, int n) {
    I;
    unsigned r[] = {__vadd4(x[i], y[i]), __vsub4(x[i], y[i]), __vmaxu4(x[i], y[i]), __vmins4(x[i], y[i]), __vabsdiffu4(x[i], y[i]),
                    __vavgu4(x[i], y[i]), __vcmpgtu4(x[i], y[i]), __vaddus2(x[i], y[i])};
    for (int k = 0; k < 8; k++) z[k * n + i] = r[k];
}

struct packed { unsigned low : 5, middle : 13; int high : 14; };

KERNEL bit_fields(const packed *x, int *y, packed *z, int n) {
    I;
    packed p = x[i];
    y[3 * i] = p.low, y[3 * i + 1] = p.middle, y[3 * i + 2] = p.high;
    p.middle += 1, p.high = -p.low;
    z[i] = p;
}

KERNEL half_arithmetic(const half *x, const half *y, half *z, int n) {
    I;
    half a = x[i], b = y[i];
    half r[] = {__hadd(a, b), __hsub(a, b), __hmul(a, b), __hdiv(a, b), __hfma(a, b, a), __hneg(a), __habs(b), __hmax(a, b),
                __hmin(a, b), hsqrt(__habs(a)), hfloor(a), hceil(b), __hgt(a, b) ? a : b, __float2half(0.1f) * a};
    for (int k = 0; k < 14; k++) z[k * n + i] = r[k];
}

KERNEL half_functions(const half *x, float *y, int n) {
    I;
    half r[] = {hexp(x[i]), hexp2(x[i]), hlog(__habs(x[i])), hsin(x[i]), hcos(x[i]), hrcp(x[i]), hrsqrt(__habs(x[i])), htanh(x[i])};
    for (int k = 0; k < 8; k++) y[k * n + i] = __half2float(r[k]);
}

KERNEL half_pairs(const half2 *x, const half2 *y, half2 *z, int n) {
    I;
    half2 a = x[i], b = y[i];
    z[i] = __hfma2(a, b, __hadd2(a, __lowhigh2highlow(b)));
    z[n + i] = __hmax2(a, b);
    z[2 * n + i] = __hmul2(a, __high2half2(b));
}

KERNEL bf16_arithmetic(const __nv_bfloat16 *x, const __nv_bfloat16 *y, float *z, int n) {
    I;
    __nv_bfloat16 a = x[i], b = y[i];
    __nv_bfloat16 r[] = {__hadd(a, b), __hsub(a, b), __hmul(a, b), __hfma(a, b, a), __hmax(a, b), __hneg(a)};
    for (int k = 0; k < 6; k++) z[k * n + i] = __bfloat162float(r[k]);
}

KERNEL from_float(const float *x, half *h, __nv_bfloat16 *b, __nv_fp8_e4m3 *e, __nv_fp8_e5m2 *f, int n) {
    I;
    h[i] = __float2half_rn(x[i]);
    b[i] = __float2bfloat16_rn(x[i]);
    e[i] = __nv_fp8_e4m3(x[i]);
    f[i] = __nv_fp8_e5m2(x[i]);
}

KERNEL from_fp8(const __nv_fp8_e4m3 *x, const __nv_fp8_e5m2 *y, float *z, int n) {
    I;
    z[i] = (float)x[i];
    z[n + i] = (float)y[i];
}

KERNEL fp8_pairs(const __nv_fp8x4_e4m3 *x, float4 *y, int n) {
    I;
    y[i] = (float4)x[i];
}

KERNEL between_integers(const int *x, long long *y, int n) {
    I;
    int v = x[i];
    y[6 * i] = (signed char)v, y[6 * i + 1] = (unsigned char)v, y[6 * i + 2] = (short)v, y[6 * i + 3] = (unsigned short)v;
    y[6 * i + 4] = (unsigned)v, y[6 * i + 5] = (long long)(double)v * 3;
}

KERNEL complex_powers(const float2 *x, float2 *y, int n) {
    I;
    float2 v = x[i], p = make_float2(1, 0);
    for (int k = 0; k < 5; k++) p = make_float2(p.x * v.x - p.y * v.y, p.x * v.y + p.y * v.x);
    y[i] = p;
}

// fft computes a transform of 64 complex numbers in shared memory.
KERNEL fft(const float2 *x, float2 *y) {
    __shared__ float2 s[64];
    int t = threadIdx.x;
    s[t] = x[__brev(t) >> 26], s[t + 32] = x[__brev(t + 32) >> 26];
    for (int half = 1; half < 64; half *= 2) {
        __syncthreads();
        int j = t % half, at = t / half * 2 * half + j;
        float c, d;
        sincospif(-(float)j / half, &d, &c);
        float2 a = s[at], b = s[at + half], v = make_float2(b.x * c - b.y * d, b.x * d + b.y * c);
        s[at] = make_float2(a.x + v.x, a.y + v.y);
        s[at + half] = make_float2(a.x - v.x, a.y - v.y);
    }
    __syncthreads();
    y[t] = s[t], y[t + 32] = s[t + 32];
}

__device__ __noinline__ long long factorial(int n) { return n < 2 ? 1 : n * factorial(n - 1); }

KERNEL recursion(const int *x, long long *y, int n) {
    I;
    y[i] = factorial(x[i]);
}

struct shape { __device__ virtual float area() const = 0; };
struct square : shape { float a; __device__ square(float a) : a(a) {} __device__ float area() const override { return a * a; } };
struct circle : shape { float r; __device__ circle(float r) : r(r) {} __device__ float area() const override { return 3.0f * r * r; } };

KERNEL virtual_calls(const float *x, float *y, int n) {
    I;
    square s(x[i]);
    circle c(x[i]);
    const shape *p = x[i] > 0 ? (const shape *)&s : &c;
    y[i] = p->area();
}

KERNEL switches(const int *x, int *y, int n) {
    I;
    int v = x[i];
    switch (v % 8) {
    case 0: v = v * 3; break;
    case 1: v = v + 100; break;
    case 2: v = v ^ 0x55;
    case 3: v = v - 7; break;
    case 4: v = v << 2; break;
    case 5: v = -v; break;
    case 6: v = v / 3; break;
    default: v = 1;
    }
    y[i] = v;
}

KERNEL random_numbers(const unsigned long long *seed, unsigned *y, int n) {
    I;
    unsigned long long s = seed[i];
    for (int k = 0; k < 4; k++) {
        s = s * 6364136223846793005ull + 1442695040888963407ull;
        unsigned x = (unsigned)(((s >> 18) ^ s) >> 27), r = (unsigned)(s >> 59);
        y[4 * i + k] = x >> r | x << (-r & 31);
    }
}
