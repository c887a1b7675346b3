// Correct kernels with CUB, cooperative groups and libcu++. Requires the headers of nvidia-cuda-cccl.
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_store.cuh>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_discontinuity.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/barrier>
#include <cuda/atomic>
#include <cuda/pipeline>

namespace cg = cooperative_groups;

#define KERNEL extern "C" __global__ void
struct less { template <class T> __device__ bool operator()(T a, T b) const { return a < b; } };

KERNEL radix_sort(int *x, int *y, int n) {
    using Load = cub::BlockLoad<int, 64, 2, cub::BLOCK_LOAD_TRANSPOSE>;
    using Sort = cub::BlockRadixSort<int, 64, 2>;
    __shared__ union { typename Load::TempStorage l; typename Sort::TempStorage s; } m;
    int k[2];
    Load(m.l).Load(x, k, n, 2147483647);
    __syncthreads();
    Sort(m.s).Sort(k);
    for (int i = 0; i < 2; i++) if (threadIdx.x * 2 + i < n) y[threadIdx.x * 2 + i] = k[i];
}

KERNEL merge_sort(int *x, int *y, int n) {
    using Sort = cub::BlockMergeSort<int, 64, 2>;
    __shared__ typename Sort::TempStorage s;
    int k[2];
    for (int i = 0; i < 2; i++) if (threadIdx.x * 2 + i < n) k[i] = x[threadIdx.x * 2 + i];
    Sort(s).Sort(k, less(), n, 1 << 30);
    for (int i = 0; i < 2; i++) if (threadIdx.x * 2 + i < n) y[threadIdx.x * 2 + i] = k[i];
}

KERNEL warp_sort(int *x, int *y, int n) {
    using Sort = cub::WarpMergeSort<int, 4, 16>;
    __shared__ typename Sort::TempStorage s[4];
    int k[4], w = threadIdx.x / 16, l = threadIdx.x % 16;
    for (int i = 0; i < 4; i++) if (l * 4 + i < n) k[i] = x[w * 64 + l * 4 + i];
    Sort(s[w]).Sort(k, less(), n, 1 << 30);
    for (int i = 0; i < 4; i++) if (l * 4 + i < n) y[w * 64 + l * 4 + i] = k[i];
}

KERNEL block_reduce(int *x, int *y, int n) {
    using R = cub::BlockReduce<int, 64>;
    __shared__ typename R::TempStorage s;
    int t = threadIdx.x, v;
    if (t < n) v = x[t];
    int sum = R(s).Sum(v, n);
    if (t == 0) y[0] = sum;
}

KERNEL block_scan(int *x, int *y, int n) {
    using S = cub::BlockScan<int, 64>;
    __shared__ typename S::TempStorage s;
    int t = threadIdx.x, v = t < n ? x[t] : 0;
    S(s).InclusiveSum(v, v);
    if (t < n) y[t] = v;
}

KERNEL warp_reduce(int *x, int *y, int n) {
    using R = cub::WarpReduce<int>;
    __shared__ typename R::TempStorage s[2];
    int t = threadIdx.x, v;
    if (t % 32 < n - 20) v = x[t];
    int sum = R(s[t / 32]).Sum(v, n - 20);
    if (t % 32 == 0) y[t / 32] = sum;
}

KERNEL load_store(int *x, int *y, int n) {
    using Load = cub::BlockLoad<int, 64, 4, cub::BLOCK_LOAD_TRANSPOSE>;
    using Store = cub::BlockStore<int, 64, 4, cub::BLOCK_STORE_TRANSPOSE>;
    __shared__ union { typename Load::TempStorage l; typename Store::TempStorage s; } m;
    int k[4];
    Load(m.l).Load(x, k, n);
    __syncthreads();
    for (int i = 0; i < 4; i++) k[i] += 1;
    Store(m.s).Store(y, k, n);
}

KERNEL block_histogram(int *x, int *y, int n) {
    using H = cub::BlockHistogram<unsigned char, 64, 2, 8>;
    __shared__ typename H::TempStorage s;
    __shared__ int h[8];
    unsigned char k[2] = {(unsigned char)(x[threadIdx.x] & 7), (unsigned char)(x[threadIdx.x + 64] & 7)};
    H(s).Histogram(k, h);
    __syncthreads();
    if (threadIdx.x < 8) y[threadIdx.x] = h[threadIdx.x];
}

KERNEL heads(int *x, int *y, int n) {
    using D = cub::BlockDiscontinuity<int, 64>;
    __shared__ typename D::TempStorage s;
    int k[1] = {x[threadIdx.x] / 4}; int f[1];
    D(s).FlagHeads(f, k, cuda::std::not_equal_to<int>());
    y[threadIdx.x] = f[0];
}

KERNEL groups(int *x, int *y, int n) {
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<32>(block);
    int v = x[threadIdx.x];
    v = cg::reduce(tile, v, cg::plus<int>());
    __shared__ int s[2];
    if (tile.thread_rank() == 0) s[tile.meta_group_rank()] = v;
    block.sync();
    auto small = cg::tiled_partition<4>(block);
    int w = cg::reduce(small, (int)threadIdx.x, cg::greater<int>());
    if (threadIdx.x < n) {
        auto active = cg::coalesced_threads();
        w += active.shfl(w, 0) + active.size();
    }
    y[threadIdx.x] = s[0] + s[1] + w;
}

KERNEL cuda_barrier(int *x, int *y, int n) {
    using B = cuda::barrier<cuda::thread_scope_block>;
    __shared__ B b;
    __shared__ int s[64];
    if (threadIdx.x == 0) init(&b, 64);
    __syncthreads();
    for (int k = 0; k < 3; k++) {
        s[threadIdx.x] = x[threadIdx.x] + k;
        b.arrive_and_wait();
        y[threadIdx.x] = s[63 - threadIdx.x];
        b.arrive_and_wait();
    }
}

KERNEL atomics(int *x, int *y, int n) {
    cuda::atomic_ref<int, cuda::thread_scope_device> a(x[0]);
    a.fetch_add(1, cuda::memory_order_relaxed);
    a.fetch_max(5);
    int old = a.load();
    while (!a.compare_exchange_weak(old, old + 1)) {}
}

KERNEL message_ref(int *x, int *y, int n) {
    if (threadIdx.x > 0) return;
    cuda::atomic_ref<int, cuda::thread_scope_device> flag(x[100]);
    if (blockIdx.x == 0) { x[0] = 7; flag.store(-1, cuda::memory_order_release); }
    else { while (flag.load(cuda::memory_order_acquire) != -1) {} y[0] = x[0]; }
}

KERNEL pipeline_copy(int *x, int *y, int n) {
    auto block = cg::this_thread_block();
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> st;
    __shared__ int s[2][64];
    auto p = cuda::make_pipeline(block, &st);
    int sum = 0;
    p.producer_acquire(); cuda::memcpy_async(block, s[0], x, sizeof(int) * 64, p); p.producer_commit();
    for (int k = 1; k < 4; k++) {
        if (k < 4) { p.producer_acquire(); cuda::memcpy_async(block, s[k & 1], x + 64 * (k % 4), sizeof(int) * 64, p); p.producer_commit(); }
        p.consumer_wait(); sum += s[(k - 1) & 1][63 - threadIdx.x]; p.consumer_release();
    }
    p.consumer_wait(); sum += s[1][63 - threadIdx.x]; p.consumer_release();
    y[threadIdx.x] = sum;
}
