// Reductions and scans: shuffles, votes, atomics, dynamic shared memory, a constant table.

__constant__ float weights[32] = {1.0f, 0.5f, 0.25f, 0.125f};
__device__ unsigned int counter = 7;
__device__ const unsigned char letters[] = "tilework";
__device__ float *table[2] = {nullptr, nullptr};
extern __shared__ float scratch[];

__inline__ __device__ float warp_sum(float v) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
    return v;
}

__global__ void sum(const float *x, float *out, int n) {
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i] * weights[i & 31];
    v = warp_sum(v);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (lane == 0) scratch[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = lane < (blockDim.x + 31) / 32 ? scratch[lane] : 0.0f;
        v = warp_sum(v);
        if (lane == 0) atomicAdd(out, v);
    }
}

__global__ void atomics(int *i, unsigned *u, unsigned long long *l, double *d) {
    unsigned mask = __ballot_sync(__activemask(), threadIdx.x % 3 == 0);
    if (__any_sync(mask, i[0] > 4) && !__all_sync(mask, u[0] < 9)) atomicMax(i, __popc(mask));
    atomicMin(u, __clz(mask) + __ffs(mask));
    atomicCAS(l, 1ull, 2ull);
    atomicExch(u + 1, __brev(mask));
    atomicInc(&counter, 100u);
    atomicXor(u + 2, letters[threadIdx.x & 7]);
    atomicAdd(d, 1.5);
    atomicAdd_block(i + 1, 3);
    __threadfence();
    __threadfence_block();
    __threadfence_system();
    __syncwarp(mask);
    if (__syncthreads_or(i[2])) i[3] = __syncthreads_count(i[4]);
    volatile int *v = i;
    v[5] = v[6] + 1;
    if (table[0]) *table[0] = clock64();
    if (i[9] == 12345) __trap();
}

__global__ void bits(unsigned *u, long long *l, int *s) {
    unsigned x = u[threadIdx.x], y = u[threadIdx.x + 1];
    u[0] = __funnelshift_l(x, y, 5) ^ __byte_perm(x, y, 0x1234);
    u[1] = __umulhi(x, y) + __umul24(x, y) + __usad(x, y, 3u);
    l[0] = __mul64hi(l[1], l[2]) / (l[3] | 1) + l[4] % (l[5] | 1);
    s[0] = abs(s[1]) + max(s[2], min(s[3], 9)) - s[7] / (s[8] | 1) + s[9] % 7;
    u[2] = (x & y) | (~x & 0xff) ^ (y >> 3) << 2;
    ((unsigned char *)u)[40] = (unsigned char)x;
    ((short *)u)[30] = (short)(s[10] * ((short *)u)[31]);
    switch (x) {
    case 0: s[20] = 5; break;
    case 1: s[21] = 7; break;
    case 2: s[22] = 1; break;
    case 3: s[23] = 2; break;
    case 9: s[24] = 8; break;
    }
}
