// Invalid accesses and undefined values. Each kernel has one fault.
#include <cassert>

#define KERNEL extern "C" __global__ void

KERNEL no_bounds_check(int *x, int *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i + 192] = i;
}

KERNEL off_by_one(int *x, int *y, int n) {
    for (int i = threadIdx.x; i <= 256; i += blockDim.x) y[i] = i;
}

KERNEL before_the_array(int *x, int *y, int n) {
    int t = threadIdx.x;
    y[t] = x[t - 1];
}

KERNEL past_shared(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t + n - 39] = x[t];
    __syncthreads();
    if (t > 0) y[t] = s[t];
}

KERNEL before_shared(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t - n] = x[t];
    __syncthreads();
    if (t < 24) y[t] = s[t];
}

KERNEL misaligned_vector(int *x, int *y, int n) {
    int t = threadIdx.x;
    int4 v = *(int4 *)(x + 4 * t % 64 + 1);
    y[t] = v.x + v.y + v.z + v.w;
}

KERNEL misaligned_word(int *x, int *y, int n) {
    y[threadIdx.x] = *(int *)((char *)x + 2 * threadIdx.x);
}

KERNEL null_pointer(int *x, int *y, int n) {
    int *p = (int *)(long long)(n - 40);
    p[threadIdx.x] = 1;
}

KERNEL null_member(int *x, int *y, int n) {
    int *p = (int *)(long long)(n - 40);
    y[threadIdx.x] = p[5];
}

KERNEL dynamic_shared_missing(int *x, int *y, int n) {
    extern __shared__ int dynamic[];
    int t = threadIdx.x;
    dynamic[t] = x[t];
    __syncthreads();
    y[t] = dynamic[63 - t];
}

__constant__ int table[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

KERNEL past_constants(int *x, int *y, int n) {
    y[threadIdx.x] = table[x[threadIdx.x]];
}

__device__ int values[32];

KERNEL past_a_global(int *x, int *y, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) values[i] = x[i];
}

KERNEL index_overflows(int *x, int *y, int n) {
    int i = (n + threadIdx.x) * 1000;
    y[i * i] = 1;
}

KERNEL used_after_free(int *x, int *y, int n) {
    if (threadIdx.x > 0) return;
    int *p = (int *)malloc(64);
    p[0] = x[0];
    free(p);
    y[0] = p[0];
}

KERNEL freed_twice(int *x, int *y, int n) {
    if (threadIdx.x > 0) return;
    int *p = (int *)malloc(64);
    free(p);
    free(p);
}

KERNEL past_malloc(int *x, int *y, int n) {
    if (threadIdx.x > 0) return;
    int *p = (int *)malloc(64);
    for (int i = 0; i <= n; i++) p[i] = i;
    y[0] = p[0];
}

KERNEL write_to_constant(int *x, int *y, int n) {
    asm volatile("st.u32 [%0], %1;" ::"l"(table), "r"(n) : "memory");
}

KERNEL undefined_sum(int *x, int *y, int n) {
    int sum;
    for (int k = 0; k < n; k++) sum += x[k];
    y[threadIdx.x] = sum;
}

KERNEL undefined_on_one_path(int *x, int *y, int n) {
    int v;
    for (int k = threadIdx.x; k < n; k++) v = x[k] + (k > 35 ? v : 0);
    y[threadIdx.x] = v;
}

KERNEL undefined_shared(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    if (x[t] > 300) s[t] = 1;
    __syncthreads();
    y[t] = s[t];
}

KERNEL undefined_tail(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x, sum = 0;
    if (t < n) s[t] = x[t];
    __syncthreads();
    for (int k = 0; k < 64; k++) sum += s[k];
    y[t] = sum;
}

KERNEL undefined_local(int *x, int *y, int n) {
    int a[8];
    for (int k = 0; k < 8; k++) a[x[k] & 7] += x[k];
    y[threadIdx.x] = a[n & 7];
}

KERNEL undefined_local_end(int *x, int *y, int n) {
    int a[8];
    for (int k = 0; k < 7; k++) a[x[k] & 7] = x[k];
    int sum = 0;
    for (int k = 0; k < 8; k++) sum += a[(k + n) & 7];
    y[threadIdx.x] = sum;
}

__device__ __noinline__ void fill(int *a, int n) {
    for (int k = 0; k < n; k++) a[k] = k;
}

KERNEL undefined_out_parameter(int *x, int *y, int n) {
    int a[4];
    fill(a, n - 38);
    y[threadIdx.x] = a[x[3]];
}

KERNEL undefined_global(int *x, int *y, int n) {
    y[threadIdx.x] += x[threadIdx.x];
}

KERNEL undefined_branch(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    if (x[t] > 300) s[t] = 1;
    __syncthreads();
    if (s[t] == 5) x[t] = 1; else x[t] = x[t + 64];
}

KERNEL undefined_address(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    if (x[t] > 300) s[t] = 1;
    __syncthreads();
    x[s[t] & 63] = 1;
}

KERNEL undefined_atomic(int *x, int *y, int n) {
    atomicAdd(&y[0], x[threadIdx.x]);
}

KERNEL undefined_counter(int *x, int *y, int n) {
    __shared__ int count;
    atomicAdd(&count, x[threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) y[0] = count;
}

struct pair { int a, b; };

KERNEL undefined_member(int *x, int *y, int n) {
    __shared__ pair s[64];
    int t = threadIdx.x;
    s[t].a = x[t];
    __syncthreads();
    y[t] = s[63 - t].a + s[63 - t].b;
}

KERNEL undefined_malloc(int *x, int *y, int n) {
    if (threadIdx.x > 0) return;
    int *p = (int *)malloc(64);
    p[0] = x[0];
    y[0] = p[0] + p[1];
    free(p);
}

KERNEL undefined_through_shared(int *x, int *y, int n) {
    __shared__ int s[64], u[64];
    int t = threadIdx.x;
    if (x[t] > 300) s[t] = 1;
    __syncthreads();
    u[63 - t] = s[t] + 1;
    __syncthreads();
    y[t] = u[t];
}

KERNEL too_much_shared(int *x, int *y, int n) {
    __shared__ int s[12289];
    int t = threadIdx.x;
    s[t * 192] = x[t];
    __syncthreads();
    y[t] = s[(63 - t) * 192];
}

KERNEL failed_assertion(int *x, int *y, int n) {
    assert(x[threadIdx.x] < n);
    y[threadIdx.x] = 1;
}

KERNEL reaches_a_trap(int *x, int *y, int n) {
    if (x[threadIdx.x] > n) __trap();
    y[threadIdx.x] = 1;
}

__device__ __noinline__ int depth(volatile int *x, int n) {
    volatile int a[64];
    a[n & 63] = n;
    return n == 0 ? a[0] : depth(x, n - 1) + a[n & 63];
}

KERNEL too_much_recursion(int *x, int *y, int n) {
    y[threadIdx.x] = depth(x, 1000 * n);
}
