// Correct kernels with patterns that a checker can mistake for faults.
#include <cuda_pipeline.h>
#include <mma.h>
#define KERNEL extern "C" __global__ void

// The compiler reads s[t ^ 1] in all threads and discards it in some.
KERNEL discarded_element(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    if (t < n) s[t] = x[t];
    __syncthreads();
    int sum = 0;
    for (int k = 0; k < 64; k++) sum += k < n ? s[k] : 0;
    y[t] = t + 1 < n && s[t + 1] > 3 ? sum : -1;
}

// Threads without an element pass undefined keys on, which never reach the result.
KERNEL odd_even_sort(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x, key;
    if (t < n) key = x[t];
    s[t] = key;
    __syncthreads();
    for (int k = 0; k < n; k++) {
        int other = t ^ 1;
        if (k & 1) other = ((t + 1) ^ 1) - 1;
        int theirs = other >= 0 && other < 64 ? s[other] : 0;
        __syncthreads();
        if (t < n && other >= 0 && other < n) s[t] = t < other ? min(s[t], theirs) : max(s[t], theirs);
        __syncthreads();
    }
    if (t < n) y[t] = s[t];
}

KERNEL warp_reduction(int *x, int *y, int n) {
    int t = threadIdx.x, lane = t % 32;
    unsigned mask = __ballot_sync(0xffffffff, t < n);
    if (t >= n) return;
    int v = x[t], last = 31 - __clz(mask);
    for (int d = 16; d > 0; d >>= 1) {
        int other = __shfl_down_sync(mask, v, d);
        if (lane + d <= last) v += other;
    }
    if (lane == 0) y[t / 32] = v;
}

KERNEL partial_warp_scan(int *x, int *y, int n) {
    int t = threadIdx.x, lane = t % 32, v = t < n ? x[t] : 0;
    for (int d = 1; d < 32; d *= 2) {
        int other = __shfl_up_sync(0xffffffff, v, d);
        if (lane >= d) v += other;
    }
    if (t < n) y[t] = v;
}

struct padded { char c; int i; double d; };

KERNEL copies_padding(int *x, int *y, int n) {
    int t = threadIdx.x;
    padded a[2];
    a[t & 1].c = t;
    a[t & 1].i = x[t];
    a[t & 1].d = t;
    padded b = a[t & 1];
    y[t] = b.c + b.i + (int)b.d;
}

// Atomic operations and __threadfence order the sums of all blocks before the last block's loads.
KERNEL last_block_sums(int *x, int *y, int n) {
    __shared__ int s[64];
    __shared__ bool last;
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 64 + t];
    __syncthreads();
    for (int d = 32; d > 0; d >>= 1) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    if (t == 0) {
        y[blockIdx.x] = s[0];
        __threadfence();
        last = atomicInc((unsigned *)&x[255], 1000) == 255 + gridDim.x - 1;
    }
    __syncthreads();
    if (last) {
        __threadfence();
        if (t == 0) {
            y[128] = y[0] + y[1];
            x[255] = 0;
        }
    }
}

KERNEL spin_lock(int *x, int *y, int n) {
    if (threadIdx.x % 32 != 0) return;
    while (atomicCAS(&x[0], 0, -1) != 0) {}
    __threadfence();
    x[64] += 1;
    __threadfence();
    atomicExch(&x[0], 0);
}

// The first load of the loop is plain. A stale value only costs an iteration.
KERNEL maximum_by_cas(int *x, int *y, int n) {
    int t = threadIdx.x, old = x[0];
    while (old < t) {
        int assumed = old;
        old = atomicCAS(&x[0], assumed, t);
        if (old == assumed) break;
    }
}

KERNEL float_add_by_cas(int *x, int *y, int n) {
    int old = x[0], assumed;
    do {
        assumed = old;
        old = atomicCAS(&x[0], assumed, __float_as_int(1 + __int_as_float(assumed)));
    } while (assumed != old);
}

KERNEL double_add_by_cas(int *x, int *y, int n) {
    unsigned long long *p = (unsigned long long *)x, old = *p, assumed;
    do {
        assumed = old;
        old = atomicCAS(p, assumed, __double_as_longlong(1 + __longlong_as_double(assumed)));
    } while (assumed != old);
}

KERNEL flag_of_many(int *x, int *y, int n) {
    if (x[threadIdx.x] > 3) x[255] = 1;
}

KERNEL shared_flag_of_many(int *x, int *y, int n) {
    __shared__ int found;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    if (x[threadIdx.x] > 3) found = 1;
    __syncthreads();
    y[threadIdx.x] = found;
}

// Whole warps wait at two instructions for barrier 0.
KERNEL two_barrier_instructions(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    if (t < 32) {
        s[t] = x[t];
        asm volatile("barrier.sync 0;" ::: "memory");
    } else {
        s[t] = 2 * x[t];
        asm volatile("barrier.sync 0;" ::: "memory");
    }
    y[t] = s[63 - t];
}

KERNEL producer_and_consumer(int *x, int *y, int n) {
    __shared__ int s[32];
    int t = threadIdx.x;
    if (t < 32) {
        s[t] = x[t];
        asm volatile("bar.arrive 1, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 1, 64;" ::: "memory");
        y[t] = s[63 - t];
    }
}

KERNEL message(int *x, int *y, int n) {
    if (threadIdx.x > 0) return;
    volatile int *flag = &x[100];
    if (blockIdx.x == 0) {
        x[0] = 7;
        __threadfence();
        *flag = -1;
    } else {
        while (*flag != -1) {}
        __threadfence();
        y[0] = x[0];
    }
}

KERNEL histogram(int *x, int *y, int n) {
    __shared__ int bins[8];
    int t = threadIdx.x;
    if (t < 8) bins[t] = 0;
    __syncthreads();
    atomicAdd(&bins[x[t] & 7], 1);
    __syncthreads();
    if (t < 8) atomicAdd(&x[128 + t], bins[t]);
}

KERNEL warp_exchange_in_order(int *x, int *y, int n) {
    __shared__ volatile int s[32];
    int t = threadIdx.x % 32;
    if (threadIdx.x >= 32) return;
    s[t] = x[t];
    for (int d = 16; d > 0; d >>= 1) {
        __syncwarp();
        int other = s[t ^ d];
        __syncwarp();
        s[t] += other;
    }
    if (t == 0) y[0] = s[0];
}

// The lanes of both branches meet: the shuffles have the same mask.
KERNEL two_shuffles(int *x, int *y, int n) {
    int t = threadIdx.x, v = x[t];
    if (t < 16)
        v = __shfl_sync(0xffffffff, v, 0) + 1;
    else
        v = __shfl_sync(0xffffffff, v, 16) * v;
    y[t] = v;
}

// The result of a maximum by compare-and-swap is read after a barrier.
KERNEL shared_maximum_by_cas(int *x, int *y, int n) {
    __shared__ int most;
    int t = threadIdx.x;
    if (t == 0) most = -1;
    __syncthreads();
    int v = x[t * 7 % 64], old = most;
    while (old < v) {
        int assumed = old;
        old = atomicCAS(&most, assumed, v);
        if (old == assumed) break;
    }
    __syncthreads();
    y[t] = most;
}

// The exchanges store, and nobody uses the old values.
KERNEL exchanges_that_store(int *x, int *y, int n) {
    __shared__ int count;
    if (threadIdx.x == 0) atomicExch(&count, 0);
    __syncthreads();
    atomicAdd(&count, x[threadIdx.x]);
    __syncthreads();
    atomicExch(&y[threadIdx.x], count);
}

// Rows of 16 words, of which 11 are written, are copied in units of 4.
KERNEL copies_padded_rows(int *x, int *y, int n) {
    __shared__ __align__(16) int s[128];
    int t = threadIdx.x;
    for (int i = t; i < 128; i += 64)
        if (i % 16 < 11) y[i] = x[i];
    __syncthreads();
    if (t < 32) __pipeline_memcpy_async(&s[t * 4], &y[t * 4], 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    if (t % 16 < 11) y[128 + t] = s[64 + t] + 1;
}

// The last rows of a tile are neither loaded nor stored.
KERNEL rows_of_a_tile(int *x, int *y, int n) {
    using namespace nvcuda::wmma;
    __shared__ __align__(32) half a[256], b[256];
    __shared__ __align__(32) float c[256];
    if (threadIdx.x >= 32) return;
    for (int i = threadIdx.x; i < 256; i += 32) {
        if (i / 16 < 11) a[i] = __int2half_rn(x[i]);
        b[i] = __int2half_rn(x[i] & 3);
    }
    __syncwarp();
    fragment<matrix_a, 16, 16, 16, half, row_major> left;
    fragment<matrix_b, 16, 16, 16, half, row_major> right;
    fragment<accumulator, 16, 16, 16, float> sums;
    fill_fragment(sums, 0);
    load_matrix_sync(left, a, 16);
    load_matrix_sync(right, b, 16);
    mma_sync(sums, left, right, sums);
    store_matrix_sync(c, sums, 16, mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x; i < 11 * 16; i += 32) y[i] = c[i];
}
