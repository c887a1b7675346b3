// Features of compute capability 9.0: clusters, distributed shared memory, mbarriers.
#include <cooperative_groups.h>
#include <cuda/barrier>

namespace cg = cooperative_groups;

__global__ void __cluster_dims__(2, 1, 1) neighbours(const float *x, float *y) {
    __shared__ float mine[128];
    cg::cluster_group cluster = cg::this_cluster();
    mine[threadIdx.x] = x[blockIdx.x * 128 + threadIdx.x];
    cluster.sync();
    y[blockIdx.x * 128 + threadIdx.x] = *cluster.map_shared_rank(&mine[127 - threadIdx.x], cluster.block_rank() ^ 1);
    cluster.sync();
}

__global__ void bulk(const int *x, int *y) {
    using barrier = cuda::barrier<cuda::thread_scope_block>;
    __shared__ alignas(128) int tile[256];
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ barrier bar;
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::device::memcpy_async_tx(tile, x, cuda::aligned_size_t<16>(sizeof tile), bar);
        token = cuda::device::barrier_arrive_tx(bar, 1, sizeof tile);
    } else {
        token = bar.arrive();
    }
    bar.wait(std::move(token));
    y[threadIdx.x] = tile[threadIdx.x ^ 1];
}
