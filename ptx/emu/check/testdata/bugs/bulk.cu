// Faults with bulk copies and mbarriers of compute capability 9.0. Each kernel has one fault.
#define KERNEL extern "C" __global__ void

__device__ unsigned shared(void *p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void init(unsigned m) {
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(m) : "memory");
        asm volatile("fence.proxy.async;" ::: "memory");
    }
    __syncthreads();
}

__device__ void load(unsigned to, int *from, unsigned m, int expect) {
    asm volatile("{ .reg .b64 s; mbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], %1; }" ::"r"(m), "r"(expect)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(to),
                 "l"(from), "r"(m)
                 : "memory");
}

__device__ void wait(unsigned m) {
    asm volatile("{ .reg .pred p;\nagain: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\n@!p bra again; }" ::"r"(m)
                 : "memory");
}

KERNEL bulk_without_wait(int *x, int *y, int n) {
    __shared__ alignas(128) int s[64];
    __shared__ unsigned long long m;
    init(shared(&m));
    if (threadIdx.x == 0) load(shared(s), x, shared(&m), 256);
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
    wait(shared(&m));
}

KERNEL bulk_of_too_few_bytes(int *x, int *y, int n) {
    __shared__ alignas(128) int s[64];
    __shared__ unsigned long long m;
    init(shared(&m));
    if (threadIdx.x == 0) load(shared(s), x, shared(&m), 512);
    wait(shared(&m));
    y[threadIdx.x] = s[threadIdx.x];
}

KERNEL bulk_store_without_fence(int *x, int *y, int n) {
    __shared__ alignas(128) int s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(y), "r"(shared(s)) : "memory");
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
    }
}

KERNEL bulk_source_reused(int *x, int *y, int n) {
    __shared__ alignas(128) int s[64];
    s[threadIdx.x] = x[threadIdx.x];
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(y), "r"(shared(s)) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
    __syncthreads();
    s[threadIdx.x] = 0;
}

KERNEL bulk_barrier_not_initialised(int *x, int *y, int n) {
    __shared__ alignas(128) int s[64];
    __shared__ unsigned long long m;
    if (threadIdx.x == 0) load(shared(s), x, shared(&m), 256);
    wait(shared(&m));
    y[threadIdx.x] = s[threadIdx.x];
}
