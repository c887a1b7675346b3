// Reductions and scans.
#define KERNEL extern "C" __global__ void
#define FULL 0xffffffffu

template <class T> __device__ T warp_reduce(T v) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(FULL, v, d);
    return v;
}

// block_reduce returns the sum of v over the block in thread 0.
template <class T> __device__ T block_reduce(T v) {
    __shared__ T partial[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    v = warp_reduce(v);
    if (lane == 0) partial[warp] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? partial[lane] : T(0);
    return warp == 0 ? warp_reduce(v) : v;
}

KERNEL warp_sum(const float *x, float *y) {
    float v = warp_reduce(x[threadIdx.x]);
    if (threadIdx.x == 0) *y = v;
}

KERNEL warp_max(const float *x, float *y) {
    float v = x[blockIdx.x * 32 + threadIdx.x];
    for (int d = 16; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(FULL, v, d));
    if (threadIdx.x == 0) y[blockIdx.x] = v;
}

KERNEL block_sum(const float *x, float *y, int n) {
    float v = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) v += x[i];
    v = block_reduce(v);
    if (threadIdx.x == 0) *y = v;
}

KERNEL tree_sum(const int *x, int *y, int n) {
    extern __shared__ int tree[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    tree[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d /= 2) {
        if (t < d) tree[t] += tree[t + d];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = tree[0];
}

KERNEL grid_sum(const int *x, int *y, int n) {
    int v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
    v = block_reduce(v);
    if (threadIdx.x == 0) atomicAdd(y, v);
}

__device__ unsigned finished;

KERNEL last_block_sum(const double *x, double *partial, double *y, int n) {
    double v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
    v = block_reduce(v);
    __shared__ bool last;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = v;
        __threadfence();
        last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last) return;
    v = threadIdx.x < gridDim.x ? ((volatile double *)partial)[threadIdx.x] : 0;
    __syncthreads();
    v = block_reduce(v);
    if (threadIdx.x == 0) *y = v;
}

KERNEL arg_max(const float *x, int *y, int n) {
    float best = -1e30f;
    int at = -1;
    for (int i = threadIdx.x; i < n; i += 32)
        if (x[i] > best) best = x[i], at = i;
    for (int d = 16; d > 0; d /= 2) {
        float other = __shfl_xor_sync(FULL, best, d);
        int from = __shfl_xor_sync(FULL, at, d);
        if (other > best || other == best && from < at) best = other, at = from;
    }
    if (threadIdx.x == 0) *y = at;
}

struct moments { float n, mean, m2; };

__device__ moments merge(moments a, moments b) {
    float n = a.n + b.n, d = b.mean - a.mean;
    if (n == 0) return a;
    return {n, a.mean + d * b.n / n, a.m2 + b.m2 + d * d * a.n * b.n / n};
}

KERNEL mean_variance(const float *x, float *y, int n) {
    moments m = {0, 0, 0};
    for (int i = threadIdx.x; i < n; i += blockDim.x) m = merge(m, {1, x[i], 0});
    __shared__ moments all[128];
    all[threadIdx.x] = m;
    __syncthreads();
    for (int d = 64; d > 0; d /= 2) {
        if (threadIdx.x < d) all[threadIdx.x] = merge(all[threadIdx.x], all[threadIdx.x + d]);
        __syncthreads();
    }
    if (threadIdx.x == 0) y[0] = all[0].mean, y[1] = all[0].m2 / n;
}

KERNEL dot(const float *x, const float *y, double *z, int n) {
    double v = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) v += (double)x[i] * y[i];
    v = block_reduce(v);
    if (threadIdx.x == 0) *z = v;
}

KERNEL redux(const int *x, int *y) {
    int v = x[threadIdx.x];
    int r[] = {(int)__reduce_add_sync(FULL, v), __reduce_min_sync(FULL, v), __reduce_max_sync(FULL, v),
               (int)__reduce_and_sync(FULL, (unsigned)v), (int)__reduce_or_sync(FULL, (unsigned)v),
               (int)__reduce_xor_sync(FULL, (unsigned)v)};
    if (threadIdx.x == 0)
        for (int i = 0; i < 6; i++) y[i] = r[i];
}

KERNEL count_positive(const float *x, int *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned votes = __ballot_sync(FULL, i < n && x[i] > 0);
    if (threadIdx.x % 32 == 0) atomicAdd(y, __popc(votes));
}

KERNEL block_count(const int *x, int *y) {
    int t = threadIdx.x, v = x[t];
    int many = __syncthreads_count(v > 3), all = __syncthreads_and(v > -100), any = __syncthreads_or(v == 7);
    if (t == 0) y[0] = many, y[1] = all != 0, y[2] = any != 0;
}

KERNEL segmented_sum(const float *x, const int *start, float *y, int rows) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float v = 0;
    for (int i = start[row] + lane; i < start[row + 1]; i += 32) v += x[i];
    v = warp_reduce(v);
    if (lane == 0) y[row] = v;
}

KERNEL kahan_sum(const float *x, float *y, int n) {
    float s = 0, c = 0;
    for (int i = 0; i < n; i++) {
        float a = __fsub_rn(x[i * 32 + threadIdx.x], c), t = __fadd_rn(s, a);
        c = __fsub_rn(__fsub_rn(t, s), a);
        s = t;
    }
    y[threadIdx.x] = s;
}

template <class T> __device__ T warp_inclusive(T v) {
    int lane = threadIdx.x % 32;
    for (int d = 1; d < 32; d *= 2) {
        T u = __shfl_up_sync(FULL, v, d);
        if (lane >= d) v += u;
    }
    return v;
}

KERNEL warp_scan(const int *x, int *y) {
    int i = blockIdx.x * 32 + threadIdx.x;
    y[i] = warp_inclusive(x[i]);
}

// block_inclusive returns the inclusive scan of v over the block.
__device__ int block_inclusive(int v, int *sums) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    v = warp_inclusive(v);
    if (lane == 31) sums[warp] = v;
    __syncthreads();
    if (warp == 0) {
        int s = lane < blockDim.x / 32 ? sums[lane] : 0;
        sums[lane] = warp_inclusive(s);
    }
    __syncthreads();
    return warp > 0 ? v + sums[warp - 1] : v;
}

KERNEL block_scan(const int *x, int *y, int n) {
    __shared__ int sums[32];
    int i = threadIdx.x, v = i < n ? x[i] : 0;
    v = block_inclusive(v, sums);
    if (i < n) y[i] = v;
}

KERNEL hillis_steele(const int *x, int *y) {
    __shared__ int s[2][128];
    int t = threadIdx.x, from = 0;
    s[0][t] = x[t];
    __syncthreads();
    for (int d = 1; d < 128; d *= 2) {
        s[1 - from][t] = s[from][t] + (t >= d ? s[from][t - d] : 0);
        from = 1 - from;
        __syncthreads();
    }
    y[t] = s[from][t];
}

KERNEL blelloch(const int *x, int *y) {
    __shared__ int s[256];
    int t = threadIdx.x;
    s[2 * t] = x[2 * t], s[2 * t + 1] = x[2 * t + 1];
    int offset = 1;
    for (int d = 128; d > 0; d /= 2, offset *= 2) {
        __syncthreads();
        if (t < d) s[offset * (2 * t + 2) - 1] += s[offset * (2 * t + 1) - 1];
    }
    if (t == 0) s[255] = 0;
    for (int d = 1; d < 256; d *= 2) {
        offset /= 2;
        __syncthreads();
        if (t < d) {
            int a = offset * (2 * t + 1) - 1, b = offset * (2 * t + 2) - 1, v = s[a];
            s[a] = s[b];
            s[b] += v;
        }
    }
    __syncthreads();
    y[2 * t] = s[2 * t], y[2 * t + 1] = s[2 * t + 1];
}

KERNEL scan_blocks(const int *x, int *y, int *totals, int n) {
    __shared__ int sums[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int v = block_inclusive(i < n ? x[i] : 0, sums);
    if (i < n) y[i] = v;
    if (threadIdx.x == blockDim.x - 1) totals[blockIdx.x] = v;
}

KERNEL add_totals(int *y, const int *totals, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.x > 0 && i < n) y[i] += totals[blockIdx.x - 1];
}

// decoupled_scan finds the sum of the blocks before its own in status words: bits 30 and 31 say
// whether the word holds the sum of the block or of all blocks up to it.
KERNEL decoupled_scan(const int *x, int *y, unsigned *status) {
    __shared__ int sums[32], before;
    int i = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.x;
    int v = block_inclusive(x[i], sums);
    if (threadIdx.x == blockDim.x - 1) {
        int sum = 0;
        atomicExch(&status[b], (b == 0 ? 2u << 30 : 1u << 30) | v);
        for (int k = b - 1; k >= 0; k--) {
            unsigned s;
            do s = atomicAdd(&status[k], 0);
            while (s >> 30 == 0);
            sum += s & 0x3fffffff;
            if (s >> 30 == 2) break;
        }
        if (b > 0) atomicExch(&status[b], 2u << 30 | (sum + v));
        before = sum;
    }
    __syncthreads();
    y[i] = v + before;
}

// compact appends the positive elements, one atomic operation per warp.
KERNEL compact(const int *x, int *y, int *count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    bool keep = i < n && x[i] > 0;
    unsigned votes = __ballot_sync(FULL, keep);
    int at = 0;
    if (lane == 0) at = atomicAdd(count, __popc(votes));
    at = __shfl_sync(FULL, at, 0) + __popc(votes & ((1u << lane) - 1));
    if (keep) y[at] = x[i];
}

KERNEL running_maximum(const float *x, float *y) {
    int lane = threadIdx.x;
    float v = x[blockIdx.x * 32 + lane];
    for (int d = 1; d < 32; d *= 2) {
        float u = __shfl_up_sync(FULL, v, d);
        if (lane >= d) v = fmaxf(v, u);
    }
    y[blockIdx.x * 32 + lane] = v;
}

KERNEL column_sums(const float *x, float *y, int rows, int cols) {
    __shared__ float part[8][33];
    int c = blockIdx.x * 32 + threadIdx.x;
    float v = 0;
    for (int r = threadIdx.y; r < rows; r += 8)
        if (c < cols) v += x[r * cols + c];
    part[threadIdx.y][threadIdx.x] = v;
    __syncthreads();
    if (threadIdx.y > 0 || c >= cols) return;
    for (int k = 1; k < 8; k++) v += part[k][threadIdx.x];
    y[c] = v;
}
