// Kernels with calls: functions that are not inlined, printf, assert, local arrays.
#include <assert.h>
#include <stdio.h>

struct Pair { double x; int y; };

__noinline__ __device__ int twice(int x) { return 2 * x + (threadIdx.x & 1); }
__noinline__ __device__ void swap(float *a, float *b) { float t = *a; *a = *b; *b = t; }
__noinline__ __device__ Pair pair(Pair p, float f) { p.x += f; p.y--; return p; }
__noinline__ __device__ unsigned long factorial(unsigned n) { return n < 2 ? 1 : n * factorial(n - 1); }
__device__ float square(float x) { return x * x; }

__global__ void calls(float *f, int *i, Pair *p) {
    i[0] = twice(i[1]) + (int)factorial(i[2] & 7);
    swap(f, f + 1);
    p[0] = pair(p[1], square(f[2]));
}

__global__ void says(const int *x, int n) {
    assert(n > 0);
    if (threadIdx.x == 0) printf("%d of %d: %f\n", x[0], n, x[1] * 0.5);
}

__global__ void locals(int *out, int n) {
    int a[16];
    for (int k = 0; k < 16; k++) a[k] = k * n;
    for (int k = 0; k < n; k++) a[(k * 7 + n) & 15] += a[(k + threadIdx.x) & 15];
    out[threadIdx.x] = a[n & 15];
}

__global__ void mathematics(float *f, double *d) {
    f[0] = sinf(f[1]) + __expf(f[2]) + sqrtf(f[3]) / f[4] + rsqrtf(f[5]) + fmaf(f[6], f[7], f[8]);
    f[9] = __fdividef(f[10], f[11]) + fminf(f[12], fabsf(f[13])) + tanhf(f[14]) + __log2f(f[15]) + floorf(f[16]) + rintf(f[17]);
    d[0] = sqrt(d[1]) + d[2] / d[3] + exp(d[4]) + (double)f[18] + (double)(long)d[5];
    f[19] = (float)d[6] + (float)(unsigned char)f[20] + (int)f[21] + isnan(f[22]);
}
