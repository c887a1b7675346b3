// 16-bit arithmetic, tensor cores through wmma and through inline PTX.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

__global__ void halves(__half *h, __half2 *h2, float *f) {
    h[0] = __hfma(h[1], h[2], h[3]) + __float2half(f[0]);
    h2[0] = __hfma2(h2[1], h2[2], __hadd2(h2[3], h2[4]));
    f[1] = __half2float(h[4]) + __low2float(h2[5]);
    if (__hlt(h[5], h[6])) h[7] = __int2half_rn(3);
}

__global__ void bfloats(__nv_bfloat16 *b, __nv_bfloat162 *b2, float *f) {
    b[0] = __float2bfloat16(f[0] + __bfloat162float(b[1]));
#if __CUDA_ARCH__ >= 800
    b2[0] = __hfma2(b2[1], b2[2], b2[3]);
    b[2] = b[3] * b[4] + b[5];
#endif
}

__global__ void tensor(const __half *a, const __half *b, float *c, int n, int k) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    for (int p = 0; p < k; p += 16) {
        wmma::load_matrix_sync(fa, a + p, k);
        wmma::load_matrix_sync(fb, b + p, k);
        wmma::mma_sync(fc, fa, fb, fc);
    }
    wmma::store_matrix_sync(c, fc, n, wmma::mem_row_major);
}

__global__ void inline_ptx(const __half *a, float *c) {
    __shared__ __align__(128) __half tile[512];
    unsigned r[4], s = (unsigned)__cvta_generic_to_shared(tile + threadIdx.x * 8);
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(s), "l"(a + threadIdx.x * 8));
    asm volatile("cp.async.commit_group;\n cp.async.wait_group 0;");
#else
    *(uint4 *)(tile + threadIdx.x * 8) = *(const uint4 *)(a + threadIdx.x * 8);
#endif
    __syncthreads();
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(s));
    float d[4] = {c[0], c[1], c[2], c[3]};
    asm volatile("{ .reg .b32 low; mov.b32 low, %4;\n"
                 "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {low, %5}, {%6}, {%0, %1, %2, %3}; }"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(r[0]), "r"(r[1]), "r"(r[2]));
    for (int i = 0; i < 4; i++) c[threadIdx.x * 4 + i] = d[i];
}
