// Barriers that not all threads reach, and threads that wait forever. Each kernel has one fault.
#define KERNEL extern "C" __global__ void

KERNEL in_if(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = t;
    if (t < n) __syncthreads();
    y[t] = s[t ^ 1];
}

KERNEL in_if_at_the_end(int *x, int *y, int n) {
    int t = threadIdx.x;
    y[t] = t;
    if (t < n) __syncthreads();
}

KERNEL in_if_for_a_warp(int *x, int *y, int n) {
    int t = threadIdx.x;
    if (t < 32) __syncthreads();
    y[t] = t;
}

KERNEL in_uneven_loop(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x, sum = 0;
    for (int k = 0; k <= x[t] / 16; k++) {
        s[t] = k;
        __syncthreads();
        sum += s[t ^ 1];
        __syncthreads();
    }
    y[t] = sum;
}

KERNEL in_both_branches(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    if (t < 32) {
        s[t] = x[t];
        __syncthreads();
        y[t] = s[t + 32];
    } else {
        s[t] = 2 * x[t];
        __syncthreads();
        y[t] = s[t - 32] + 1;
    }
}

__device__ __noinline__ void exchange(int *s, int *y) {
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x ^ 1];
}

KERNEL in_a_function(int *x, int *y, int n) {
    __shared__ int s[64];
    if (threadIdx.x < n) exchange(s, y);
    x[threadIdx.x] = 1;
}

KERNEL after_a_return(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    if (t >= n) return;
    s[t] = x[t];
    __syncthreads();
    y[t] = s[t ^ 1];
}

KERNEL in_a_switch(int *x, int *y, int n) {
    int t = threadIdx.x;
    switch (t / 16) {
    case 0: x[t] = 1; break;
    case 1: __syncthreads(); break;
    default: x[t] = 2; __syncthreads();
    }
    y[t] = t;
}

KERNEL count_in_if(int *x, int *y, int n) {
    int t = threadIdx.x, positive = 0;
    if (t < n) positive = __syncthreads_count(x[t] > 0);
    y[t] = positive;
}

KERNEL after_a_break(int *x, int *y, int n) {
    int t = threadIdx.x;
    for (int k = 0; k < 4; k++) {
        if (x[t] == k) break;
        __syncthreads();
        y[t] = k;
    }
    x[t] = 0;
}

KERNEL short_circuit(int *x, int *y, int n) {
    int t = threadIdx.x;
    bool any = t < n && __syncthreads_or(x[t] > 5);
    y[t] = any;
}

KERNEL expects_too_many(int *x, int *y, int n) {
    asm volatile("bar.sync 1, 96;" ::: "memory");
    y[threadIdx.x] = 1;
}

KERNEL different_numbers(int *x, int *y, int n) {
    if (threadIdx.x < 32)
        asm volatile("bar.sync 1, 64;" ::: "memory");
    else
        asm volatile("bar.sync 2, 64;" ::: "memory");
    y[threadIdx.x] = 1;
}

KERNEL different_counts(int *x, int *y, int n) {
    if (threadIdx.x < 32)
        asm volatile("bar.sync 1, 64;" ::: "memory");
    else
        asm volatile("bar.sync 1, 96;" ::: "memory");
    y[threadIdx.x] = 1;
}

KERNEL no_whole_warps(int *x, int *y, int n) {
    asm volatile("bar.sync 1, %0;" ::"r"(n) : "memory");
    y[threadIdx.x] = 1;
}

KERNEL no_such_barrier(int *x, int *y, int n) {
    asm volatile("bar.sync %0;" ::"r"(n) : "memory");
    y[threadIdx.x] = 1;
}

KERNEL flag_that_nobody_sets(int *x, int *y, int n) {
    while (((volatile int *)x)[0] == 0) {}
    y[threadIdx.x] = 1;
}

KERNEL lock_that_nobody_releases(int *x, int *y, int n) {
    if (threadIdx.x % 32 == 0) {
        while (atomicCAS(&x[0], 0, 1) != 0) {}
        y[threadIdx.x] = 1;
    }
}

KERNEL loop_without_end(int *x, int *y, int n) {
    volatile int k = n;
    while (k > 0) k = n;
    y[threadIdx.x] = k;
}

KERNEL waits_for_its_own_block(int *x, int *y, int n) {
    __shared__ volatile int ready;
    if (threadIdx.x == 0) ready = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        while (!ready) {}
        y[threadIdx.x] = 1;
    }
    __syncthreads();
    if (threadIdx.x == 63) ready = 1;
}
