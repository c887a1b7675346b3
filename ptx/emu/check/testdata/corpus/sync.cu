// Cooperative groups, pipelines, barriers, locks, atomics, clusters, TMA and wgmma.
#define KERNEL extern "C" __global__ void
#define FULL 0xffffffffu
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_fp16.h>
namespace cg = cooperative_groups;

// Shared is memory for an object whose constructor does nothing there: clang accepts no shared
// variables of such types.
template <class T> struct Shared {
    alignas(T) char bytes[sizeof(T)];
    __device__ T *get() { return reinterpret_cast<T *>(bytes); }
};

KERNEL tile_reduce(const int *x, int *y) {
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    int v = cg::reduce(tile, x[threadIdx.x], cg::plus<int>());
    if (tile.thread_rank() == 0) y[threadIdx.x / 8] = v;
}

KERNEL tile_scan(const int *x, int *y) {
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    y[threadIdx.x] = cg::inclusive_scan(tile, x[threadIdx.x], cg::plus<int>());
}

KERNEL tile_shuffles(const float *x, float *y) {
    auto tile = cg::tiled_partition<4>(cg::this_thread_block());
    float v = x[threadIdx.x];
    y[threadIdx.x] = tile.shfl_down(v, 1) + tile.shfl_xor(v, 2) * tile.any(v > 1) + tile.shfl(v, 3);
}

KERNEL coalesced_counter(const int *x, int *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0) {
        auto active = cg::coalesced_threads();
        if (active.thread_rank() == 0) atomicAdd(y, (int)active.size());
    }
}

KERNEL labelled_groups(const int *x, int *y) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    auto group = cg::labeled_partition(warp, x[threadIdx.x]);
    y[threadIdx.x] = group.size() * 100 + group.thread_rank();
}

KERNEL two_way_groups(const int *x, int *y) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    auto group = cg::binary_partition(warp, x[threadIdx.x] > 0);
    y[threadIdx.x] = cg::reduce(group, x[threadIdx.x], cg::plus<int>());
}

KERNEL group_copy(const int *x, int *y) {
    __shared__ int s[128];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, s, x, sizeof s);
    cg::wait(block);
    y[threadIdx.x] = s[127 - threadIdx.x];
}

// shared_pipeline copies stages of 64 elements with cuda::pipeline.
KERNEL shared_pipeline(const int *x, int *y, int stages) {
    __shared__ int s[2][64];
    __shared__ Shared<cuda::pipeline_shared_state<cuda::thread_scope_block, 2>> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, state.get());
    auto load = [&](int k) {
        pipe.producer_acquire();
        cuda::memcpy_async(block, s[k % 2], x + k * 64, sizeof s[0], pipe);
        pipe.producer_commit();
    };
    load(0);
    int sum = 0;
    for (int k = 0; k < stages; k++) {
        if (k + 1 < stages) load(k + 1);
        pipe.consumer_wait();
        sum += s[k % 2][63 - threadIdx.x] * (k + 1);
        pipe.consumer_release();
    }
    y[threadIdx.x] = sum;
}

KERNEL thread_pipeline(const float4 *x, float4 *y, int n) {
    __shared__ float4 s[64];
    auto pipe = cuda::make_pipeline();
    int i = blockIdx.x * 64 + threadIdx.x;
    pipe.producer_acquire();
    if (i < n) cuda::memcpy_async(&s[threadIdx.x], &x[i], cuda::aligned_size_t<16>(16), pipe);
    pipe.producer_commit();
    pipe.consumer_wait();
    if (i < n) y[i] = make_float4(s[threadIdx.x].w, s[threadIdx.x].z, s[threadIdx.x].y, s[threadIdx.x].x);
    pipe.consumer_release();
}

KERNEL split_barrier(const int *x, int *y, int steps) {
    __shared__ Shared<cuda::barrier<cuda::thread_scope_block>> shared;
    __shared__ int s[2][64];
    int t = threadIdx.x;
    auto &bar = *shared.get();
    if (t == 0) init(&bar, blockDim.x);
    __syncthreads();
    int v = x[t];
    for (int k = 0; k < steps; k++) {
        s[k % 2][t] = v;
        auto token = bar.arrive();
        int own = v * 3;
        bar.wait(std::move(token));
        v = own + s[k % 2][(t + 1) % 64];
    }
    y[t] = v;
}

// producer_consumer passes buffers from two warps to two others with barriers 1 to 4.
KERNEL producer_consumer(const int *x, int *y, int rounds) {
    __shared__ int s[2][64];
    int t = threadIdx.x % 64, sum = 0;
    for (int k = 0; k < rounds; k++) {
        int b = k % 2;
        if (threadIdx.x < 64) {
            if (k >= 2) asm volatile("barrier.sync %0, 128;" ::"r"(3 + b) : "memory");
            s[b][t] = x[k * 64 + t];
            asm volatile("barrier.arrive %0, 128;" ::"r"(1 + b) : "memory");
        } else {
            asm volatile("barrier.sync %0, 128;" ::"r"(1 + b) : "memory");
            sum = sum * 2 + s[b][63 - t];
            if (k + 2 < rounds) asm volatile("barrier.arrive %0, 128;" ::"r"(3 + b) : "memory");
        }
    }
    if (threadIdx.x >= 64) y[t] = sum;
}

__device__ int lock;

KERNEL spin_lock(volatile int *y) {
    if (threadIdx.x != 0) return;
    while (atomicCAS(&lock, 0, 1) != 0) __nanosleep(20);
    __threadfence();
    y[0] = y[0] * 3 + 1;
    __threadfence();
    atomicExch(&lock, 0);
}

KERNEL message(const int *x, int *y, int *buffer, int *flag) {
    cuda::atomic_ref<int, cuda::thread_scope_device> ready(*flag);
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        buffer[t] = x[t] * 2;
        __syncthreads();
        if (t == 0) ready.store(1, cuda::memory_order_release);
    } else {
        if (t == 0)
            while (ready.load(cuda::memory_order_acquire) == 0) {}
        __syncthreads();
        y[t] = buffer[t] + 1;
    }
}

KERNEL grid_barrier(int *x, int *y, int n) {
    auto grid = cg::this_grid();
    for (int k = 0; k < 3; k++) {
        for (int i = grid.thread_rank(); i < n; i += grid.size()) y[i] = x[i] + x[(i + 1) % n];
        grid.sync();
        for (int i = grid.thread_rank(); i < n; i += grid.size()) x[i] = y[i] - y[(i + 2) % n];
        grid.sync();
    }
}

__device__ double atomic_multiply(double *p, double v) {
    unsigned long long *at = (unsigned long long *)p, old = *at, seen;
    do {
        seen = old;
        old = atomicCAS(at, seen, __double_as_longlong(v * __longlong_as_double(seen)));
    } while (seen != old);
    return __longlong_as_double(old);
}

KERNEL atomics(const int *x, int *y, unsigned long long *z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(&y[0], x[i]);
    atomicSub(&y[1], x[i]);
    atomicMin(&y[2], x[i]);
    atomicMax(&y[3], x[i]);
    atomicAnd(&y[4], x[i]);
    atomicOr(&y[5], x[i]);
    atomicXor(&y[6], x[i]);
    atomicInc((unsigned *)&y[7], 10);
    atomicDec((unsigned *)&y[8], 10);
    atomicAdd(&z[0], (unsigned long long)x[i] << 20);
    atomicMax(&z[1], (unsigned long long)x[i] * x[i]);
}

KERNEL float_atomics(const float *x, float *y, double *z, half2 *h, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(&y[0], x[i]);
    atomicAdd(&z[0], (double)x[i]);
    atomicAdd(h, __floats2half2_rn(x[i], 1));
    if (i < 40) atomic_multiply(&z[1], 1 + x[i] / 10);
    int bits = __float_as_int(x[i]); // the order of floats as integers
    if (bits >= 0) atomicMax((int *)&y[1], bits);
    else atomicMin((unsigned *)&y[1], (unsigned)bits);
}

KERNEL matches(const int *x, unsigned *y, int *z) {
    int t = threadIdx.x, all;
    y[t] = __match_any_sync(FULL, x[t]);
    __match_all_sync(FULL, x[t] & 0, &all);
    z[t] = all + 2 * __all_sync(FULL, x[t] >= 0) + 4 * __any_sync(FULL, x[t] == 2);
}

KERNEL cluster_sum(const int *x, int *y) {
    __shared__ int sum;
    auto cluster = cg::this_cluster();
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, x[blockIdx.x * blockDim.x + threadIdx.x]);
    cluster.sync();
    int all = 0;
    for (int k = 0; k < cluster.num_blocks(); k++) all += *cluster.map_shared_rank(&sum, k);
    cluster.sync();
    if (threadIdx.x == 0) y[blockIdx.x] = all * 10 + cluster.block_rank();
}

KERNEL cluster_histogram(const unsigned char *x, int *y, int n) {
    __shared__ int bins[64];
    auto cluster = cg::this_cluster();
    bins[threadIdx.x] = 0;
    cluster.sync();
    for (int i = blockIdx.x * 64 + threadIdx.x; i < n; i += gridDim.x * 64)
        atomicAdd(cluster.map_shared_rank(bins, x[i] / 64) + x[i] % 64, 1);
    cluster.sync();
    atomicAdd(&y[cluster.block_rank() * 64 + threadIdx.x], bins[threadIdx.x]);
}

__device__ unsigned shared(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void start(unsigned long long *m, int count) {
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(m)), "r"(count) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
    }
    __syncthreads();
}

__device__ void expect(unsigned long long *m, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(m)), "r"(bytes) : "memory");
}

__device__ void wait(unsigned long long *m, int parity) {
    asm volatile("{ .reg .pred p;\nagain: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again; }"
                 ::"r"(shared(m)), "r"(parity) : "memory");
}

KERNEL bulk_copy(const int *x, int *y) {
    __shared__ __align__(128) int s[128];
    __shared__ unsigned long long m;
    start(&m, 1);
    if (threadIdx.x == 0) {
        expect(&m, sizeof s);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     ::"r"(shared(s)), "l"(x + blockIdx.x * 128), "r"(512), "r"(shared(&m)) : "memory");
    }
    wait(&m, 0);
    s[threadIdx.x] = s[threadIdx.x] * 2 + 1;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(y + blockIdx.x * 128), "r"(shared(s)),
                     "r"(512) : "memory");
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
    }
}

struct alignas(64) tensor_map { char bytes[128]; };

__device__ void load_box(void *to, const tensor_map *from, int col, int row, unsigned long long *m) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(shared(to)), "l"(from), "r"(col), "r"(row), "r"(shared(m)) : "memory");
}

KERNEL tma_transpose(const __grid_constant__ tensor_map x, float *y, int rows) {
    __shared__ __align__(128) float s[16][32];
    __shared__ unsigned long long m;
    start(&m, 1);
    int row = blockIdx.y * 16, col = blockIdx.x * 32;
    if (threadIdx.x == 0) {
        expect(&m, sizeof s);
        load_box(s, &x, col, row, &m);
    }
    wait(&m, 0);
    for (int e = threadIdx.x; e < 512; e += blockDim.x) y[(col + e / 16) * rows + row + e % 16] = s[e % 16][e / 16];
}

KERNEL tma_store(const int *x, const __grid_constant__ tensor_map y, int n) {
    __shared__ __align__(128) int s[8][32];
    for (int e = threadIdx.x; e < 256; e += blockDim.x) s[e / 32][e % 32] = x[e] + n;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&y), "r"(0), "r"(4),
                     "r"(shared(s)) : "memory");
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
    }
}

__device__ unsigned long long descriptor(const void *p) { // rows of 128 bytes, swizzled; groups of 8 rows
    return (unsigned long long)(shared(p) >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// multiply_tile adds the product of A (64×64) and the transpose of B (8×64) to d.
__device__ void multiply_tile(float *d, const half *a, const half *b) {
    // One statement, because nvcc -G copies the registers of each.
    asm volatile("wgmma.fence.sync.aligned;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %6, %7, 1, 1, 1, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %8, %9, 1, 1, 1, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %10, %11, 1, 1, 1, 0, 0;\n"
                 "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "l"(descriptor(a)), "l"(descriptor(b)), "l"(descriptor(a + 16)), "l"(descriptor(b + 16)),
                   "l"(descriptor(a + 32)), "l"(descriptor(b + 32)), "l"(descriptor(a + 48)), "l"(descriptor(b + 48))
                 : "memory");
}

__device__ void store_tile(float *c, const float *d) {
    int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4, col = threadIdx.x % 4 * 2;
    c[row * 8 + col] = d[0], c[row * 8 + col + 1] = d[1], c[(row + 8) * 8 + col] = d[2], c[(row + 8) * 8 + col + 1] = d[3];
}

// wgmma_half multiplies A (64×k) with the transpose of B (8×k) in tiles of 64 along k, by TMA.
KERNEL wgmma_half(const __grid_constant__ tensor_map a, const __grid_constant__ tensor_map b, float *c, int k) {
    __shared__ __align__(1024) half as[2][64 * 64], bs[2][8 * 64];
    __shared__ unsigned long long full[2];
    start(&full[0], 1);
    start(&full[1], 1);
    auto load = [&](int i) {
        int stage = i & 1;
        expect(&full[stage], sizeof as[0] + sizeof bs[0]);
        load_box(as[stage], &a, i * 64, 0, &full[stage]);
        load_box(bs[stage], &b, i * 64, 0, &full[stage]);
    };
    if (threadIdx.x == 0) load(0);
    float d[4] = {};
    for (int i = 0; i < k / 64; i++) {
        if (threadIdx.x == 0 && i + 1 < k / 64) load(i + 1);
        wait(&full[i & 1], i >> 1 & 1);
        multiply_tile(d, as[i & 1], bs[i & 1]);
        __syncthreads();
    }
    store_tile(c, d);
}

// specialised_warps multiplies A (128×k) with the transpose of B (8×k). One warpgroup loads tiles by TMA, and two
// multiply them.
KERNEL specialised_warps(const __grid_constant__ tensor_map a, const __grid_constant__ tensor_map b, float *c, int k) {
    __shared__ __align__(1024) half as[2][128 * 64], bs[2][8 * 64];
    __shared__ unsigned long long full[2], empty[2];
    for (int i = 0; i < 2; i++) {
        start(&full[i], 1);
        start(&empty[i], 256);
    }
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        for (int i = 0; threadIdx.x == 0 && i < k / 64; i++) {
            int stage = i & 1;
            wait(&empty[stage], i >> 1 & 1 ^ 1);
            expect(&full[stage], sizeof as[0] + sizeof bs[0]);
            load_box(as[stage], &a, i * 64, 0, &full[stage]);
            load_box(bs[stage], &b, i * 64, 0, &full[stage]);
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 152;");
    int group = threadIdx.x / 128 - 1;
    float d[4] = {};
    for (int i = 0; i < k / 64; i++) {
        int stage = i & 1;
        wait(&full[stage], i >> 1 & 1);
        multiply_tile(d, as[stage] + group * 64 * 64, bs[stage]);
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared(&empty[stage])) : "memory");
    }
    store_tile(c + group * 64 * 8, d);
}

// multicast copies the same elements to both blocks of a cluster; each of them loads one half.
KERNEL multicast(const int *x, int *y) {
    __shared__ __align__(128) int s[64];
    __shared__ unsigned long long m;
    start(&m, 1);
    auto cluster = cg::this_cluster();
    cluster.sync();
    int rank = cluster.block_rank();
    if (threadIdx.x == 0) {
        expect(&m, sizeof s);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 128, "
                     "[%2], %3;" ::"r"(shared(s + 32 * rank)), "l"(x + 32 * rank), "r"(shared(&m)), "h"((short)3) : "memory");
    }
    wait(&m, 0);
    y[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x] + rank;
    cluster.sync();
}

KERNEL bulk_reduction(const float *x, float *y) {
    __shared__ __align__(128) float s[64];
    s[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 256;" ::"l"(y), "r"(shared(s))
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// other_branch shuffles the odd and the even lanes in different branches.
KERNEL other_branch(const int *x, int *y) {
    int t = threadIdx.x, v = x[t];
    if (t % 2) v = __shfl_xor_sync(0xaaaaaaaau, v, 2) + 1;
    else v = __shfl_xor_sync(0x55555555u, v, 2) * 2;
    y[t] = v;
}

KERNEL uneven_loops(const int *x, int *y) {
    int t = threadIdx.x, sum = 0;
    for (int k = 0; k < x[t]; k++) {
        unsigned active = __activemask();
        sum += __popc(active) > 0 ? k : -1;
        if (k > 20) break;
    }
    __syncwarp();
    y[t] = __shfl_xor_sync(FULL, sum, 1);
}
