// A pipe of stages in plain CUDA: a warp copies tiles in bulk, a warpgroup reads them. MODE 0: bytes in
// bulk, read by threads; 1: boxes of a tensor, read by threads; 2: boxes of a tensor, read by wgmma.
// FAULT 1: the readers wait for a stage to be full when they have
// read it.
#include <cstdint>
#include <cstdio>
#include <cuda.h>
#include <cuda_runtime.h>
#ifndef MODE
#define MODE 0
#endif
#ifndef FAULT
#define FAULT 0
#endif
constexpr int stages = 4, rows = 64, bytes = rows * 128;
__device__ uint32_t at(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ void init(uint64_t *b, int n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(b)), "r"(n)); }
__device__ void arrive(uint64_t *b) { asm volatile("{.reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0];}" ::"r"(at(b)) : "memory"); }
__device__ void expect(uint64_t *b, int n) { asm volatile("{.reg .b64 s; mbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], %1;}" ::"r"(at(b)), "r"(n) : "memory"); }
__device__ void wait(uint64_t *b, int phase) {
  asm volatile("{.reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra L;}" ::"r"(at(b)), "r"(phase) : "memory");
}
__global__ void __launch_bounds__(160) pipe(const __grid_constant__ CUtensorMap map, const char *in, float *out, int steps) {
  __shared__ __align__(1024) char tile[stages][bytes];
  __shared__ uint64_t full[stages], empty[stages];
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; i++) init(&full[i], 1), init(&empty[i], 4);
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  __syncthreads();
  if (threadIdx.x >= 128) {
    if (threadIdx.x == 128)
      for (int n = 0; n < steps; n++) {
        int s = n % stages, turn = n / stages;
        wait(&empty[s], (turn & 1) ^ 1);
        expect(&full[s], bytes);
        if (MODE == 0)
          asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(at(tile[s])), "l"(in + (size_t)n * bytes), "r"(bytes), "r"(at(&full[s])) : "memory");
        else
          asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(at(tile[s])), "l"(&map), "r"(0), "r"(n * rows), "r"(at(&full[s])) : "memory");
      }
    return;
  }
  float sum = 0, d[4] = {};
  for (int n = 0; n < steps; n++) {
    int s = n % stages;
    if (!FAULT) wait(&full[s], n / stages & 1);
    if (MODE < 2) {
      sum += ((float *)tile[s])[threadIdx.x];
    } else {
#if __CUDA_ARCH_FEAT_SM90_ALL
      uint64_t desc = (uint64_t)(at(tile[s]) & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
      asm volatile("wgmma.fence.sync.aligned;");
      asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %4, 1, 1, 1, 0, 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(desc));
      asm volatile("wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
      sum = d[0];
    }
    if (FAULT) wait(&full[s], n / stages & 1);
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(&empty[s]);
  }
  out[threadIdx.x] = sum;
}
int main() {
  const int steps = 16;
  char *in;
  float *out;
  cudaMalloc(&in, steps * bytes);
  cudaMalloc(&out, 128 * 4);
  cudaMemset(in, 0, steps * bytes);
  CUtensorMap map = {};
  if (MODE > 0) {
    cuuint64_t dims[] = {64, (cuuint64_t)steps * rows}, strides[] = {128};
    cuuint32_t box[] = {64, rows}, ones[] = {1, 1};
    void *f = nullptr;
    cudaDriverEntryPointQueryResult q;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &q);
    CUresult r = ((decltype(&cuTensorMapEncodeTiled))f)(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, in, dims, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r) printf("map: %d\n", r);
  }
  pipe<<<1, 160>>>(map, in, out, steps);
  cudaError_t e = cudaDeviceSynchronize();
  printf("mode %d fault %d: %s\n", MODE, FAULT, cudaGetErrorString(e));
  return e != cudaSuccess;
}
