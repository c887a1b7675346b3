// Faults with asynchronous copies, mbarriers and reductions of compute capability 8.0. Each kernel
// has one fault.
#define KERNEL extern "C" __global__ void

__device__ void copy(int *to, const int *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
}
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int n> __device__ void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory"); }

KERNEL no_wait(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    copy(&s[t], &x[t]);
    commit();
    __syncthreads();
    y[t] = s[63 - t];
}

KERNEL wait_for_older_groups(int *x, int *y, int n) {
    __shared__ int s[2][64];
    int t = threadIdx.x;
    copy(&s[0][t], &x[t]);
    commit();
    copy(&s[1][t], &x[64 + t]);
    commit();
    wait<1>();
    __syncthreads();
    y[t] = s[0][63 - t] + s[1][63 - t];
}

KERNEL wait_without_barrier(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    copy(&s[t], &x[t]);
    commit();
    wait<0>();
    y[t] = s[63 - t];
}

KERNEL wait_before_commit(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    copy(&s[t], &x[t]);
    wait<0>();
    commit();
    __syncthreads();
    y[t] = s[63 - t];
}

KERNEL source_overwritten(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    copy(&s[t], &x[t]);
    x[t] = 0;
    commit();
    wait<0>();
    __syncthreads();
    y[t] = s[63 - t];
}

KERNEL stage_reused_early(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x, sum = 0;
    copy(&s[t], &x[t]);
    commit();
    for (int k = 1; k < 3; k++) {
        wait<0>();
        __syncthreads();
        sum += s[63 - t];
        copy(&s[t], &x[64 * k + t]);
        commit();
    }
    wait<0>();
    y[t] = sum;
}

KERNEL copy_of_undefined_memory(int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
    copy(&s[t], &y[t]);
    commit();
    wait<0>();
    __syncthreads();
    x[t] = s[63 - t];
}

KERNEL mbarrier_of_too_many(int *x, int *y, int n) {
    __shared__ unsigned long long m;
    unsigned a = __cvta_generic_to_shared(&m);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 65;" ::"r"(a) : "memory");
    __syncthreads();
    asm volatile("{ .reg .b64 s; .reg .pred p;\n"
                 "mbarrier.arrive.shared.b64 s, [%0];\n"
                 "again: mbarrier.test_wait.shared.b64 p, [%0], s;\n"
                 "@!p bra again; }" ::"r"(a) : "memory");
    y[threadIdx.x] = 1;
}

KERNEL redux_in_if(int *x, int *y, int n) {
    int t = threadIdx.x;
    if (t < 16) x[t] = __reduce_add_sync(0xffffffff, x[t]);
    y[t] = t;
}
