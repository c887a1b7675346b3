// Matrix products: C = A·B, row by row.
#define KERNEL extern "C" __global__ void
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>
using namespace nvcuda;

KERNEL naive(const float *a, const float *b, float *c, int m, int n, int k) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || col >= n) return;
    float sum = 0;
    for (int i = 0; i < k; i++) sum += a[row * k + i] * b[i * n + col];
    c[row * n + col] = sum;
}

template <class T> __device__ void tiles(const T *a, const T *b, T *c, int m, int n, int k) {
    __shared__ T as[16][16], bs[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    T sum = 0;
    for (int i = 0; i < k; i += 16) {
        as[threadIdx.y][threadIdx.x] = row < m && i + threadIdx.x < k ? a[row * k + i + threadIdx.x] : T(0);
        bs[threadIdx.y][threadIdx.x] = col < n && i + threadIdx.y < k ? b[(i + threadIdx.y) * n + col] : T(0);
        __syncthreads();
        for (int j = 0; j < 16; j++) sum += as[threadIdx.y][j] * bs[j][threadIdx.x];
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}

KERNEL tiled(const float *a, const float *b, float *c, int m, int n, int k) { tiles(a, b, c, m, n, k); }
KERNEL tiled_double(const double *a, const double *b, double *c, int m, int n, int k) { tiles(a, b, c, m, n, k); }
KERNEL tiled_int(const int *a, const int *b, int *c, int m, int n, int k) { tiles(a, b, c, m, n, k); }

// blocked computes 64×64 elements per block, 4×4 per thread, and loads vectors.
KERNEL blocked(const float *a, const float *b, float *c, int n, int k) {
    __shared__ float as[8][64], bs[8][64];
    int t = threadIdx.x, row = blockIdx.y * 64, col = blockIdx.x * 64, ty = t / 16 * 4, tx = t % 16 * 4;
    float sum[4][4] = {};
    for (int i = 0; i < k; i += 8) {
        if (t < 128) {
            float4 v = *(const float4 *)&a[(row + t / 2) * k + i + t % 2 * 4];
            as[t % 2 * 4][t / 2] = v.x, as[t % 2 * 4 + 1][t / 2] = v.y;
            as[t % 2 * 4 + 2][t / 2] = v.z, as[t % 2 * 4 + 3][t / 2] = v.w;
        } else
            *(float4 *)&bs[(t - 128) / 16][t % 16 * 4] = *(const float4 *)&b[(i + (t - 128) / 16) * n + col + t % 16 * 4];
        __syncthreads();
        for (int j = 0; j < 8; j++) {
            float4 u = *(float4 *)&as[j][ty], v = *(float4 *)&bs[j][tx];
            float us[] = {u.x, u.y, u.z, u.w}, vs[] = {v.x, v.y, v.z, v.w};
            for (int y = 0; y < 4; y++)
                for (int x = 0; x < 4; x++) sum[y][x] += us[y] * vs[x];
        }
        __syncthreads();
    }
    for (int y = 0; y < 4; y++)
        *(float4 *)&c[(row + ty + y) * n + col + tx] = make_float4(sum[y][0], sum[y][1], sum[y][2], sum[y][3]);
}

// pipelined copies the next tiles with cp.async while it multiplies.
KERNEL pipelined(const float *a, const float *b, float *c, int n, int k) {
    __shared__ float as[3][16][16], bs[3][16][16];
    int ty = threadIdx.y, tx = threadIdx.x, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
    auto load = [&](int stage, int i) {
        if (i < k) {
            __pipeline_memcpy_async(&as[stage][ty][tx], &a[row * k + i + tx], 4);
            __pipeline_memcpy_async(&bs[stage][ty][tx], &b[(i + ty) * n + col], 4);
        }
        __pipeline_commit();
    };
    load(0, 0);
    load(1, 16);
    float sum = 0;
    for (int i = 0, stage = 0; i < k; i += 16, stage = (stage + 1) % 3) {
        __pipeline_wait_prior(1);
        __syncthreads();
        load((stage + 2) % 3, i + 32);
        for (int j = 0; j < 16; j++) sum += as[stage][ty][j] * bs[stage][j][tx];
    }
    c[row * n + col] = sum;
}

// fragments multiplies with the fragments of nvcuda::wmma.
template <class T, class R, int M, int N, int K, class P>
__device__ void fragments(const P *a, const P *b, R *c, int n, int k) {
    wmma::fragment<wmma::matrix_a, M, N, K, T, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, M, N, K, T, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, M, N, K, R> sum;
    wmma::fill_fragment(sum, R(0));
    int row = blockIdx.y * M, col = blockIdx.x * N;
    for (int i = 0; i < k; i += K) {
        wmma::load_matrix_sync(fa, a + row * k + i, k);
        wmma::load_matrix_sync(fb, b + i * n + col, n);
        wmma::mma_sync(sum, fa, fb, sum);
    }
    wmma::store_matrix_sync(c + row * n + col, sum, n, wmma::mem_row_major);
}

KERNEL wmma_half(const half *a, const half *b, float *c, int n, int k) { fragments<half, float, 16, 16, 16>(a, b, c, n, k); }
KERNEL wmma_half_sum(const half *a, const half *b, half *c, int n, int k) { fragments<half, half, 16, 16, 16>(a, b, c, n, k); }
KERNEL wmma_bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c, int n, int k) {
    fragments<__nv_bfloat16, float, 32, 8, 16>(a, b, c, n, k);
}
KERNEL wmma_int8(const signed char *a, const signed char *b, int *c, int n, int k) {
    fragments<signed char, int, 8, 32, 16>(a, b, c, n, k);
}
KERNEL wmma_tf32(const float *a, const float *b, float *c, int n, int k) {
    fragments<wmma::precision::tf32, float, 16, 16, 8>(a, b, c, n, k);
}
KERNEL wmma_double(const double *a, const double *b, double *c, int n, int k) { fragments<double, double, 8, 8, 4>(a, b, c, n, k); }

__device__ unsigned shared(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

// mma_half multiplies a tile of 16×8 per warp; ldmatrix loads A and, transposed, B.
KERNEL mma_half(const half *a, const half *b, float *c, int n, int k) {
    __shared__ __align__(16) half as[16][24], bs[16][8];
    int lane = threadIdx.x, row = blockIdx.y * 16, col = blockIdx.x * 8;
    float d[4] = {};
    for (int i = 0; i < k; i += 16) {
        for (int e = lane; e < 256; e += 32) as[e / 16][e % 16] = a[(row + e / 16) * k + i + e % 16];
        for (int e = lane; e < 128; e += 32) bs[e / 8][e % 8] = b[(i + e / 8) * n + col + e % 8];
        __syncwarp();
        unsigned x[4], y[2];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(shared(&as[lane % 16][lane / 16 * 8])) : "memory");
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(y[0]), "=r"(y[1]) : "r"(shared(bs[lane % 16])) : "memory");
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
        __syncwarp();
    }
    float2 *to = (float2 *)&c[(row + lane / 4) * n + col + lane % 4 * 2];
    to[0] = make_float2(d[0], d[1]);
    to[4 * n] = make_float2(d[2], d[3]);
}

// Fragments of B with K-major columns: bt is n×k.
template <class F> __device__ void with_fragments(const void *a, const void *bt, int n, int bytes, F multiply) {
    int lane = threadIdx.x, row = blockIdx.y * 16 + lane / 4, col = blockIdx.x * 8 + lane / 4;
    for (int i = lane % 4 * 4; i < bytes; i += 32) {
        auto at = [&](const void *p, int r, int o) { return *(const unsigned *)((const char *)p + r * bytes + i + o); };
        multiply(at(a, row, 0), at(a, row + 8, 0), at(a, row, 16), at(a, row + 8, 16), at(bt, col, 0), at(bt, col, 16));
    }
}

template <class T> __device__ void store_fragment(T *c, const T *d, int n) {
    int lane = threadIdx.x, row = blockIdx.y * 16 + lane / 4, col = blockIdx.x * 8 + lane % 4 * 2;
    for (int i = 0; i < 4; i++) c[(row + i / 2 * 8) * n + col + i % 2] = d[i];
}

#define MMA(name, T, bound, shape)                                                                                     \
    KERNEL name(const void *a, const void *bt, T *c, int n, int bytes) {                                               \
        T d[4] = {};                                                                                                   \
        with_fragments(a, bt, n, bytes, [&](unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) { \
            asm volatile("mma.sync.aligned." shape " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"  \
                         : bound(d[0]), bound(d[1]), bound(d[2]), bound(d[3])                                          \
                         : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                                      \
        });                                                                                                            \
        store_fragment(c, d, n);                                                                                       \
    }

MMA(mma_bf16, float, "+f", "m16n8k16.row.col.f32.bf16.bf16.f32")
MMA(mma_tf32, float, "+f", "m16n8k8.row.col.f32.tf32.tf32.f32")
MMA(mma_int8, int, "+r", "m16n8k32.row.col.s32.s8.s8.s32")
MMA(mma_uint8, int, "+r", "m16n8k32.row.col.satfinite.s32.u8.s8.s32")
MMA(mma_int4, int, "+r", "m16n8k64.row.col.s32.s4.s4.s32")
MMA(mma_e4m3, float, "+f", "m16n8k32.row.col.f32.e4m3.e4m3.f32")
MMA(mma_e5m2, float, "+f", "m16n8k32.row.col.f32.e5m2.e4m3.f32")

KERNEL dot_products(const int *a, const int *bt, int *c, int n, int words) {
    int row = blockIdx.x, col = threadIdx.x, sum = 0;
    for (int i = 0; i < words; i++) // not __dp4a, which nvcc 13.5 -G does not compile
        asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a[row * words + i]), "r"(bt[col * words + i]));
    c[row * n + col] = sum;
}

KERNEL half_products(const half2 *a, const half2 *b, half2 *c, int n, int k) {
    int row = blockIdx.x, col = threadIdx.x;
    half2 sum = __float2half2_rn(0);
    const half *as = (const half *)a + row * k;
    for (int i = 0; i < k; i++) sum = __hfma2(__half2half2(as[i]), b[i * n + col], sum);
    c[row * n + col] = sum;
}

KERNEL split_k(const float *a, const float *b, float *c, int n, int k, int part) {
    int col = threadIdx.x, row = blockIdx.x, from = blockIdx.y * part;
    float sum = 0;
    for (int i = from; i < min(k, from + part); i++) sum += a[row * k + i] * b[i * n + col];
    atomicAdd(&c[row * n + col], sum);
}
