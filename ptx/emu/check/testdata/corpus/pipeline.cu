// Longer kernels: attention with asynchronous copies, one sweep of a radix sort, a solver with grid
// barriers, sorts over clusters, latches and atomic operations of unusual widths.
#define KERNEL extern "C" __global__ void
#define FULL 0xffffffffu
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/atomic>
#include <cuda/latch>
#include <cuda_fp16.h>
namespace cg = cooperative_groups;

__device__ unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void copy_16_bytes(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ void load_matrices(unsigned *r, const void *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p))
                 : "memory");
}
__device__ void load_transposed(unsigned *r, const void *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p))
                 : "memory");
}
__device__ void multiply(float *c, const unsigned *a, const unsigned *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ float greatest_of_four(float v) {
    v = fmaxf(v, __shfl_xor_sync(FULL, v, 1));
    return fmaxf(v, __shfl_xor_sync(FULL, v, 2));
}
__device__ float sum_of_four(float v) {
    v += __shfl_xor_sync(FULL, v, 1);
    return v + __shfl_xor_sync(FULL, v, 2);
}

// attention_pipeline computes 64 rows of 64 columns per block. It copies tiles of 32 keys and values while it
// multiplies the ones before.
KERNEL attention_pipeline(const half *q, const half *k, const half *v, float *o, int n) {
    constexpr int D = 64, TILE = 32, PITCH = D + 8;
    __shared__ __align__(128) half sq[64][PITCH], sk[2][TILE][PITCH], sv[2][TILE][PITCH];
    int t = threadIdx.x, w = t / 32, l = t % 32, first = blockIdx.x * 64;
    for (int i = t; i < 64 * D / 8; i += 128) copy_16_bytes(&sq[i / 8][i % 8 * 8], q + (first + i / 8) * D + i % 8 * 8);
    auto load = [&](int j) {
        for (int i = t; i < TILE * D / 8; i += 128) {
            copy_16_bytes(&sk[j & 1][i / 8][i % 8 * 8], k + (j * TILE + i / 8) * D + i % 8 * 8);
            copy_16_bytes(&sv[j & 1][i / 8][i % 8 * 8], v + (j * TILE + i / 8) * D + i % 8 * 8);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    load(0);
    float acc[8][4] = {}, most[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    unsigned a[4][4];
    for (int j = 0; j < n / TILE; j++) {
        if (j + 1 < n / TILE) {
            load(j + 1);
            asm volatile("cp.async.wait_group 1;" ::: "memory");
        } else {
            asm volatile("cp.async.wait_group 0;" ::: "memory");
        }
        __syncthreads();
        if (j == 0)
            for (int c = 0; c < 4; c++) load_matrices(a[c], &sq[w * 16 + l % 16][c * 16 + l / 16 * 8]);
        float s[4][4] = {}, high[2] = {most[0], most[1]};
        for (int column = 0; column < 4; column += 2)
            for (int c = 0; c < 4; c++) {
                unsigned b[4];
                load_matrices(b, &sk[j & 1][column * 8 + l / 16 * 8 + l % 8][c * 16 + (l / 8 & 1) * 8]);
                multiply(s[column], a[c], b);
                multiply(s[column + 1], a[c], b + 2);
            }
        for (int x = 0; x < 4; x++)
            for (int y = 0; y < 4; y++) high[y / 2] = fmaxf(high[y / 2], s[x][y] *= 0.125f);
        for (int h = 0; h < 2; h++) {
            high[h] = greatest_of_four(high[h]);
            float shrink = __expf(most[h] - high[h]);
            most[h] = high[h];
            sum[h] *= shrink;
            for (int x = 0; x < 8; x++) acc[x][2 * h] *= shrink, acc[x][2 * h + 1] *= shrink;
        }
        unsigned p[2][4];
        for (int x = 0; x < 4; x++) {
            for (int y = 0; y < 4; y++) sum[y / 2] += s[x][y] = __expf(s[x][y] - most[y / 2]);
            half2 upper = __floats2half2_rn(s[x][0], s[x][1]), lower = __floats2half2_rn(s[x][2], s[x][3]);
            p[x / 2][x % 2 * 2] = *(unsigned *)&upper;
            p[x / 2][x % 2 * 2 + 1] = *(unsigned *)&lower;
        }
        for (int row = 0; row < 2; row++)
            for (int d = 0; d < 8; d += 2) {
                unsigned b[4];
                load_transposed(b, &sv[j & 1][row * 16 + l % 16][d * 8 + l / 16 * 8]);
                multiply(acc[d], p[row], b);
                multiply(acc[d + 1], p[row], b + 2);
            }
        __syncthreads();
    }
    for (int h = 0; h < 2; h++) {
        sum[h] = sum_of_four(sum[h]);
        float2 *row = (float2 *)(o + (first + w * 16 + l / 4 + 8 * h) * D);
        for (int d = 0; d < 8; d++) row[d * 4 + l % 4] = make_float2(acc[d][2 * h] / sum[h], acc[d][2 * h + 1] / sum[h]);
    }
}

// sort_sweep sorts by one digit: it ranks keys by match, and looks back at the counts of earlier blocks.
KERNEL sort_sweep(const unsigned *x, unsigned *y, const unsigned *starts, volatile unsigned *state, unsigned *tickets, int n) {
    __shared__ unsigned counts[4][16], base[16], ticket;
    int t = threadIdx.x, w = t / 32, l = t % 32;
    if (t == 0) ticket = atomicAdd(tickets, 1);
    if (t < 64) ((unsigned *)counts)[t] = 0;
    __syncthreads();
    int block = ticket, i = block * 128 + t;
    unsigned v = i < n ? x[i] : FULL, d = v & 15;
    unsigned same = __match_any_sync(FULL, d), before = __popc(same & ((1u << l) - 1));
    if (before == 0) counts[w][d] = __popc(same);
    __syncthreads();
    if (t < 16) {
        unsigned sum = 0, ahead = 0;
        for (int k = 0; k < 4; k++) {
            unsigned count = counts[k][t];
            counts[k][t] = sum;
            sum += count;
        }
        state[block * 16 + t] = (block ? 1u : 2u) << 30 | sum; // 1: the count of a block, 2: of all up to it
        for (int p = block - 1; p >= 0;) {
            unsigned s = state[p * 16 + t];
            if (s >> 30 == 0) continue;
            ahead += s & 0x3fffffff;
            if (s >> 30 == 2) break;
            p--;
        }
        if (block) state[block * 16 + t] = 2u << 30 | (ahead + sum);
        base[t] = starts[t] + ahead;
    }
    __syncthreads();
    if (i < n) y[base[d] + counts[w][d] + before] = v;
}

// conjugate_gradient solves a tridiagonal system, with a grid barrier between its steps.
KERNEL conjugate_gradient(const float *b, float *x, float *r, float *p, float *ap, double *sums, int n, int steps) {
    auto grid = cg::this_grid();
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    __shared__ double part[2];
    auto dot = [&](const float *u, const float *v, double *to) {
        double s = 0;
        for (int i = grid.thread_rank(); i < n; i += grid.size()) s += (double)u[i] * v[i];
        s = cg::reduce(warp, s, cg::plus<double>());
        if (warp.thread_rank() == 0) part[warp.meta_group_rank()] = s;
        block.sync();
        if (block.thread_rank() == 0) atomicAdd(to, part[0] + part[1]);
        grid.sync();
    };
    for (int i = grid.thread_rank(); i < n; i += grid.size()) x[i] = 0, r[i] = p[i] = b[i];
    grid.sync();
    dot(r, r, sums);
    for (int k = 0; k < steps; k++, sums += 2) {
        for (int i = grid.thread_rank(); i < n; i += grid.size())
            ap[i] = 4 * p[i] - (i > 0 ? p[i - 1] : 0) - (i + 1 < n ? p[i + 1] : 0);
        grid.sync();
        dot(p, ap, sums + 1);
        double alpha = sums[0] / sums[1];
        for (int i = grid.thread_rank(); i < n; i += grid.size()) x[i] += alpha * p[i], r[i] -= alpha * ap[i];
        grid.sync();
        dot(r, r, sums + 2);
        double beta = sums[2] / sums[0];
        for (int i = grid.thread_rank(); i < n; i += grid.size()) p[i] = r[i] + beta * p[i];
        grid.sync();
    }
}

// cluster_sort sorts 64 numbers in each of 4 blocks of a cluster, through distributed shared memory.
KERNEL cluster_sort(const int *x, int *y) {
    __shared__ int s[64];
    auto cluster = cg::this_cluster();
    int t = threadIdx.x, i = cluster.block_rank() * 64 + t;
    s[t] = x[i];
    cluster.sync();
    for (int k = 2; k <= 256; k *= 2)
        for (int j = k / 2; j > 0; j /= 2) {
            int other = i ^ j, u = cluster.map_shared_rank(s, other / 64)[other % 64], v = s[t];
            cluster.barrier_wait(cluster.barrier_arrive());
            s[t] = (i < other) == ((i & k) == 0) ? min(u, v) : max(u, v);
            cluster.sync();
        }
    y[i] = s[t];
}

// latch_exchange waits for a latch, which counts down by atomic operations that release.
KERNEL latch_exchange(const int *x, int *y) {
    using Latch = cuda::latch<cuda::thread_scope_block>;
    __shared__ alignas(Latch) char memory[sizeof(Latch)];
    __shared__ int s[64];
    Latch *latch = reinterpret_cast<Latch *>(memory);
    if (threadIdx.x == 0) new (latch) Latch(64);
    __syncthreads();
    s[threadIdx.x] = 2 * x[threadIdx.x];
    latch->arrive_and_wait();
    y[threadIdx.x] = s[63 - threadIdx.x];
}

// pair_counter counts in one half of 16 bytes and adds up in the other.
KERNEL pair_counter(unsigned long long *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long count = 0, sum = 0;
    for (bool done = false; !done;) {
        unsigned long long was_count = count, was_sum = sum;
        asm volatile("{ .reg .b128 old, want, was; mov.b128 want, {%2, %3}; mov.b128 was, {%4, %5};\n"
                     "atom.relaxed.gpu.global.cas.b128 old, [%6], was, want; mov.b128 {%0, %1}, old; }"
                     : "=l"(count), "=l"(sum)
                     : "l"(was_count + 1), "l"(was_sum + i), "l"(was_count), "l"(was_sum), "l"(y)
                     : "memory");
        done = count == was_count && sum == was_sum;
    }
}

// half_word_counter counts in 16 bits.
KERNEL half_word_counter(unsigned short *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned short old = y[i % 4], was;
    do {
        was = old;
        old = atomicCAS(y + i % 4, was, (unsigned short)(was + i));
    } while (old != was);
}
