// Races in shared and global memory. Each kernel has one fault.
#define KERNEL extern "C" __global__ void

KERNEL no_barrier(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    y[t] = s[63 - t];
}

KERNEL no_barrier_at_loop_end(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x, sum = 0;
    for (int k = 0; k < 3; k++) {
        s[t] = x[64 * k + t];
        __syncthreads();
        sum += s[63 - t];
    }
    y[t] = sum;
}

KERNEL no_barrier_after_halo(int *x, int *y, int n) {
    __shared__ int s[66];
    int t = threadIdx.x;
    s[t + 1] = x[t];
    if (t == 0) s[0] = 0;
    if (t == 63) s[65] = 0;
    y[t] = s[t] + s[t + 1] + s[t + 2];
}

KERNEL reduction_without_barrier(int *x, int *y, int n) {
    __shared__ int s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int d = 64; d > 0; d >>= 1)
        if (t < d) s[t] += s[t + d];
    __syncthreads();
    if (t == 0) y[0] = s[0];
}

KERNEL scan_in_place(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    for (int d = 1; d < 64; d *= 2) {
        __syncthreads();
        if (t >= d) s[t] += s[t - d];
    }
    y[t] = s[t];
}

KERNEL histogram_without_atomics(int *x, int *y, int n) {
    __shared__ int bins[8];
    int t = threadIdx.x;
    if (t < 8) bins[t] = 0;
    __syncthreads();
    bins[x[t] & 7]++;
    __syncthreads();
    if (t < 8) y[t] = bins[t];
}

KERNEL one_word_for_all(int *x, int *y, int n) {
    __shared__ int s;
    s = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = s;
}

KERNEL warp_exchange(int *x, int *y, int n) {
    __shared__ int s[32];
    int t = threadIdx.x;
    s[t] = x[t];
    y[t] = s[t ^ 1];
}

KERNEL volatile_reduction(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    s[t + 32] = x[t + 32];
    volatile int *v = s;
    v[t] += v[t + 32];
    if (t < 16) {
        v[t] += v[t + 16];
        v[t] += v[t + 8];
        v[t] += v[t + 4];
        v[t] += v[t + 2];
        v[t] += v[t + 1];
    }
    if (t == 0) y[0] = v[0];
}

KERNEL transposed_tile(int *x, int *y, int n) {
    __shared__ int s[8][9];
    int i = threadIdx.x % 8, j = threadIdx.x / 8;
    s[j][i] = x[8 * j + i];
    y[8 * j + i] = s[i][j];
}

KERNEL flag_without_barrier(int *x, int *y, int n) {
    __shared__ int found;
    int t = threadIdx.x;
    if (t == 0) found = x[0];
    y[t] = found;
}

KERNEL double_buffer_with_one_half(int *x, int *y, int n) {
    __shared__ int s[2][64];
    int t = threadIdx.x, sum = 0;
    s[0][t] = x[t];
    for (int k = 0; k < 3; k++) {
        __syncthreads();
        s[0][t] = x[64 + t];
        sum += s[k & 1 & n >> 8][63 - t];
    }
    y[t] = sum;
}

KERNEL block_exchange_with_syncwarp(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncwarp();
    y[t] = s[63 - t];
}

KERNEL scratch_reused(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    for (int k = 0; k < 2; k++) {
        s[t] = x[64 * k + t];
        __syncthreads();
        for (int d = 32; d > 0; d >>= 1) {
            if (t < d) s[t] = max(s[t], s[t + d]);
            __syncthreads();
        }
        y[64 * k + t] = s[0];
    }
}

KERNEL read_beside_atomics(int *x, int *y, int n) {
    __shared__ int count;
    int t = threadIdx.x;
    if (t == 0) count = 0;
    __syncthreads();
    if (x[t] > 10) atomicAdd(&count, 1);
    y[t] = count;
}

KERNEL counter_set_late(int *x, int *y, int n) {
    __shared__ int count;
    int t = threadIdx.x;
    if (t == 63) count = 0;
    atomicAdd(&count, x[t]);
    __syncthreads();
    y[t] = count;
}

KERNEL overlapping_vectors(int *x, int *y, int n) {
    __shared__ int4 s4[65];
    int *s = (int *)s4;
    int t = threadIdx.x;
    *(int2 *)(s + 2 * (t / 2 + t % 2)) = make_int2(t, t);
    __syncthreads();
    y[t] = s[t];
}

KERNEL overlapping_arrays(int *x, int *y, int n) {
    extern __shared__ int dynamic[];
    int *a = dynamic, *b = dynamic + 32;
    int t = threadIdx.x;
    a[t] = x[t];
    b[t] = x[t + 64];
    __syncthreads();
    y[t] = a[t] + b[t];
}

KERNEL syncwarp_of_other_lanes(int *x, int *y, int n) {
    __shared__ int s[32];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncwarp(t < 16 ? 0xffff : 0xffff0000);
    y[t] = s[31 - t];
}

KERNEL blocks_write_one_word(int *x, int *y, int n) {
    if (threadIdx.x == 0) y[0] = blockIdx.x;
}

KERNEL sum_of_blocks(int *x, int *y, int n) {
    if (threadIdx.x == 0) x[0] += x[64 + blockIdx.x];
}

KERNEL neighbour_block(int *x, int *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = i;
    __syncthreads();
    y[i] = x[(i + 64) % 128];
}

KERNEL last_block_without_fence(int *x, int *y, int n) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        y[blockIdx.x] = blockIdx.x + 1;
        last = atomicAdd(&x[255], 1) % gridDim.x == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) y[128] = y[0] + y[1];
}

KERNEL flag_without_writers_fence(int *x, int *y, int n) {
    if (threadIdx.x != 0) return;
    if (blockIdx.x == 0) {
        x[0] = 7;
        atomicExch(&x[100], -1);
    } else {
        while (atomicAdd(&x[100], 0) != -1) {}
        __threadfence();
        y[0] = x[0];
    }
}

KERNEL flag_without_readers_fence(int *x, int *y, int n) {
    if (threadIdx.x != 0) return;
    if (blockIdx.x == 0) {
        x[0] = 7;
        __threadfence();
        atomicExch(&x[100], -1);
    } else {
        while (atomicAdd(&x[100], 0) != -1) {}
        y[0] = x[0];
    }
}

KERNEL plain_flag(int *x, int *y, int n) {
    if (threadIdx.x != 0) return;
    if (blockIdx.x == 0) {
        x[1] = 7;
        __threadfence();
        x[100] = -1;
    } else {
        if (x[100] == -1) y[0] = x[1];
    }
}

KERNEL lock_without_fence(int *x, int *y, int n) {
    if (threadIdx.x != 0) return;
    while (atomicCAS(&x[0], 0, 1) != 0) {}
    x[64] += 1;
    atomicExch(&x[0], 0);
}

KERNEL global_histogram(int *x, int *y, int n) {
    x[128 + (x[threadIdx.x] & 7)]++;
}

KERNEL stencil_in_place(int *x, int *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < 127) x[i] = x[i - 1] + x[i + 1];
}

KERNEL reversal_in_place(int *x, int *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = x[127 - i];
}

KERNEL atomics_of_the_block(int *x, int *y, int n) {
    if (threadIdx.x == 0) atomicAdd_block(&x[0], 1);
}

KERNEL block_fence_for_grid(int *x, int *y, int n) {
    if (threadIdx.x != 0) return;
    if (blockIdx.x == 0) {
        x[0] = 7;
        __threadfence_block();
        atomicExch(&x[100], -1);
    } else {
        while (atomicAdd(&x[100], 0) != -1) {}
        __threadfence_block();
        y[0] = x[0];
    }
}
