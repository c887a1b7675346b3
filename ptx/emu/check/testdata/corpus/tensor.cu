// Products in tensor memory (tcgen05), in inline PTX.
#define KERNEL extern "C" __global__ void
#include <cuda_fp16.h>

typedef unsigned char byte;
typedef unsigned long long u64;

__device__ unsigned address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

// The offset of byte k of a row in a K-major matrix without a swizzle, whose rows have width bytes.
__device__ int place(int row, int k, int width) { return row / 8 * 8 * width + k / 16 * 128 + row % 8 * 16 + k % 16; }

// The descriptor of such a matrix, and that of a matrix with a swizzle.
__device__ u64 matrix(const void *p, int width) {
    return address(p) >> 4 | (u64)(128 >> 4) << 16 | (u64)(8 * width >> 4) << 32 | 1ull << 46;
}
__device__ u64 swizzled(const void *p, int code, int width) {
    return address(p) >> 4 | 1ull << 16 | (u64)(8 * width >> 4) << 32 | 1ull << 46 | (u64)code << 61;
}

// Copies a matrix of bytes to shared memory, by the threads of the block.
__device__ void fill(byte *to, const void *from, int rows, int width) {
    for (int i = threadIdx.x; i < rows * width; i += blockDim.x)
        to[place(i / width, i % width, width)] = ((const byte *)from)[i];
}

// The instruction descriptor: types of D, A and B, M and N.
__device__ unsigned shape(int d, int a, int b, int m, int n) { return d << 4 | a << 7 | b << 10 | n / 8 << 17 | m / 16 << 24; }

__device__ void init(u64 *bar, int n) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(bar)), "r"(n) : "memory");
}

__device__ void wait(u64 *bar, int parity) {
    asm volatile("{\n.reg .pred p;\nL: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra L;\n}" ::"r"(address(bar)),
                 "r"(parity) : "memory");
}

__device__ void before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ void after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

__device__ void sync() {
    asm volatile("fence.proxy.async;" ::: "memory");
    before();
    __syncthreads();
    after();
}

__device__ unsigned allocate(unsigned *slot, int columns) {
    if (threadIdx.x < 32)
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(address(slot)), "r"(columns)
                     : "memory");
    sync();
    return *slot;
}

__device__ void release(unsigned at, int columns) {
    sync();
    if (threadIdx.x < 32) {
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(at), "r"(columns));
    }
}

#define MMA(kind, d, a, b, idesc, adds)                                                                                   \
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::" kind " [%0], %1, %2, %3, p;\n}" \
                 ::"r"(d), "l"(a), "l"(b), "r"(idesc), "r"((unsigned)(adds)) : "memory")

__device__ void commit(u64 *bar) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(address(bar)) : "memory");
}

// The wait is in the same statement, because the compiler may copy the registers after it.
#define LOAD4(shape, r, at)                                                                                              \
    asm volatile("tcgen05.ld.sync.aligned." shape ".b32 {%0, %1, %2, %3}, [%4];\ntcgen05.wait::ld.sync.aligned;"          \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory")

// The address of the calling warp's lanes.
__device__ unsigned mine(unsigned at) { return at + (threadIdx.x / 32 % 4 << 21); }

// Stores 128 rows of columns in the shape 32x32b.
__device__ void store(unsigned *c, unsigned at, int n) {
    for (int j = 0; j < n; j += 4) {
        unsigned r[4];
        LOAD4("32x32b.x4", r, mine(at) + j);
        for (int k = 0; k < 4; k++) c[threadIdx.x * n + j + k] = r[k];
    }
}

// C = A·Bᵀ for 128×64 halves and 32×64, one tcgen05.mma for each 16 columns.
KERNEL half_product(const half *a, const half *b, unsigned *c) {
    __shared__ __align__(1024) byte A[128 * 128], B[32 * 128];
    __shared__ u64 done;
    __shared__ unsigned slot;
    fill(A, a, 128, 128), fill(B, b, 32, 128);
    if (threadIdx.x == 0) init(&done, 1);
    unsigned d = allocate(&slot, 32);
    if (threadIdx.x == 0) {
        for (int k = 0; k < 4; k++) MMA("f16", d, matrix(A + 256 * k, 128), matrix(B + 256 * k, 128), shape(1, 0, 0, 128, 32), k);
        commit(&done);
    }
    wait(&done, 0);
    after();
    store(c, d, 32);
    release(d, 32);
}

// The same, whose results are read in the shapes of 16 lanes.
KERNEL half_shapes(const half *a, const half *b, unsigned *c) {
    __shared__ __align__(1024) byte A[128 * 32], B[32 * 32];
    __shared__ u64 done;
    __shared__ unsigned slot;
    fill(A, a, 128, 32), fill(B, b, 32, 32);
    if (threadIdx.x == 0) init(&done, 1);
    unsigned d = allocate(&slot, 64), lane = threadIdx.x % 32, first = threadIdx.x / 32 * 32;
    if (threadIdx.x == 0) {
        MMA("f16", d + 16, matrix(A, 32), matrix(B, 32), shape(1, 0, 0, 128, 32), 0);
        commit(&done);
    }
    wait(&done, 0);
    after();
    d += 16;
    for (int top = 0; top < 32; top += 16) {
        unsigned r[4], at = mine(d) + (top << 16), row = first + top + lane / 4;
        LOAD4("16x64b.x4", r, at); // columns 0 to 7
        for (int k = 0; k < 4; k++) c[(row + lane % 2 * 8) * 32 + lane / 2 % 2 + 2 * k] = r[k];
        LOAD4("16x128b.x2", r, at + 8); // 8 to 15
        for (int k = 0; k < 4; k++) c[(row + k % 2 * 8) * 32 + 8 + lane % 4 + k / 2 * 4] = r[k];
        LOAD4("16x256b.x1", r, at + 16); // 16 to 23
        for (int k = 0; k < 4; k++) c[(row + k / 2 * 8) * 32 + 16 + lane % 4 * 2 + k % 2] = r[k];
        asm volatile("tcgen05.ld.sync.aligned.16x32bx2.x4.b32 {%0, %1, %2, %3}, [%4], 4;\ntcgen05.wait::ld.sync.aligned;"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at + 24) : "memory"); // 24 to 31
        for (int k = 0; k < 4; k++) c[(first + top + lane % 16) * 32 + 24 + lane / 16 * 4 + k] = r[k];
    }
    release(d - 16, 64);
}

// A in tensor memory, stored from registers; sums of halves, packed as they are read.
KERNEL half_from_tensor_memory(const half *a, const half *b, unsigned *c) {
    __shared__ __align__(1024) byte B[16 * 32];
    __shared__ u64 done;
    __shared__ unsigned slot;
    fill(B, b, 16, 32);
    if (threadIdx.x == 0) init(&done, 1);
    unsigned d = allocate(&slot, 32), A = d + 16;
    const unsigned *r = (const unsigned *)a + 8 * threadIdx.x;
    asm volatile("tcgen05.st.sync.aligned.32x32b.x8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" ::"r"(mine(A)), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(r[4]), "r"(r[5]), "r"(r[6]), "r"(r[7]) : "memory");
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
    sync();
    if (threadIdx.x == 0) {
        asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %3, %3;\ntcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, p;\n}" ::"r"(d),
                     "r"(A), "l"(matrix(B, 32)), "r"(shape(0, 0, 0, 128, 16)) : "memory");
        commit(&done);
    }
    wait(&done, 0);
    after();
    for (int j = 0; j < 16; j += 8) {
        unsigned q[4];
        LOAD4("32x32b.x4.pack::16b", q, mine(d) + j);
        for (int k = 0; k < 4; k++) c[threadIdx.x * 8 + j / 2 + k] = q[k];
    }
    release(d, 32);
}

KERNEL int8_product(const signed char *a, const byte *b, unsigned *c) {
    __shared__ __align__(1024) byte A[64 * 32], B[32 * 32];
    __shared__ u64 done;
    __shared__ unsigned slot;
    fill(A, a, 64, 32), fill(B, b, 32, 32);
    if (threadIdx.x == 0) init(&done, 1);
    unsigned d = allocate(&slot, 32);
    if (threadIdx.x == 0) {
        MMA("i8", d, matrix(A, 32), matrix(B, 32), shape(2, 1, 0, 64, 32), 0);
        commit(&done);
    }
    wait(&done, 0);
    after();
    for (int j = 0; j < 32; j += 4) { // rows 16w to 16w+15 are in lanes 32w to 32w+15
        unsigned r[4];
        LOAD4("32x32b.x4", r, mine(d) + j);
        int row = threadIdx.x / 32 * 16 + threadIdx.x % 32;
        for (int k = 0; k < 4 && threadIdx.x % 32 < 16; k++) c[row * 32 + j + k] = r[k];
    }
    release(d, 32);
}

// tcgen05.mma.ws: 32 rows and 64 columns, 16 of them in each quarter of the lanes.
KERNEL reused_product(const half *a, const half *b, unsigned *c) {
    __shared__ __align__(1024) byte A[32 * 32], B[64 * 32];
    __shared__ u64 done;
    __shared__ unsigned slot;
    fill(A, a, 32, 32), fill(B, b, 64, 32);
    if (threadIdx.x == 0) init(&done, 1);
    unsigned d = allocate(&slot, 32);
    if (threadIdx.x == 0) {
        asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %3, %3;\ntcgen05.mma.ws.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n}" ::"r"(d),
                     "l"(matrix(A, 32)), "l"(matrix(B, 32)), "r"(shape(1, 0, 0, 32, 64)) : "memory");
        commit(&done);
    }
    wait(&done, 0);
    after();
    for (int j = 0; j < 16; j += 4) {
        unsigned r[4];
        LOAD4("32x32b.x4", r, mine(d) + j);
        for (int k = 0; k < 4; k++) c[threadIdx.x % 32 * 64 + threadIdx.x / 32 * 16 + j + k] = r[k];
    }
    release(d, 32);
}

// Block scales that tcgen05.cp copies from shared memory: 4 bytes of a row or column after the other.
KERNEL scaled_product(const byte *a, const byte *b, const unsigned *scaleA, const unsigned *scaleB, unsigned *c) {
    __shared__ __align__(1024) byte A[128 * 128], B[64 * 128];
    __shared__ __align__(128) unsigned S[2][128];
    __shared__ u64 done;
    __shared__ unsigned slot;
    fill(A, a, 128, 128), fill(B, b, 64, 128);
    // Row r of the 32 rows of 16 bytes holds the scales of rows r, r+32, r+64 and r+96.
    S[0][threadIdx.x % 32 * 4 + threadIdx.x / 32] = scaleA[threadIdx.x];
    S[1][threadIdx.x % 32 * 4 + threadIdx.x / 32] = threadIdx.x < 64 ? scaleB[threadIdx.x] : 0;
    if (threadIdx.x == 0) init(&done, 1);
    unsigned d = allocate(&slot, 128), sa = d + 64, sb = d + 68;
    if (threadIdx.x == 0) {
        for (int k = 0; k < 2; k++)
            asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(k ? sb : sa), "l"(matrix(S[k], 16)) : "memory");
        for (int k = 0; k < 4; k++) {
            unsigned idesc = shape(0, 0, 0, 128, 64) | 1 << 23 | k << 29 | k << 4;
            asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %6, 0;\ntcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X "
                         "[%0], %1, %2, %3, [%4], [%5], p;\n}" ::"r"(d), "l"(matrix(A + 256 * k, 128)), "l"(matrix(B + 256 * k, 128)),
                         "r"(idesc), "r"(sa), "r"(sb), "r"(k) : "memory");
        }
        commit(&done);
    }
    wait(&done, 0);
    after();
    store(c, d, 64);
    release(d, 128);
}

// A pair of blocks: each holds half of the rows of A and D and half of the columns of B.
template <int M, int N> __device__ void pair(const half *a, const half *b, unsigned *c) {
    __shared__ __align__(1024) byte A[M / 2 * 32], B[N / 2 * 32];
    __shared__ u64 done;
    __shared__ unsigned slot;
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    fill(A, a + rank * M / 2 * 16, M / 2, 32), fill(B, b + rank * N / 2 * 16, N / 2, 32);
    if (threadIdx.x == 0) init(&done, 1);
    if (threadIdx.x < 32)
        asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], 64;" ::"r"(address(&slot)) : "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    before();
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    after();
    unsigned d = slot;
    if (rank == 0 && threadIdx.x == 0) {
        asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %3, %3;\ntcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, p;\n}" ::"r"(d),
                     "l"(matrix(A, 32)), "l"(matrix(B, 32)), "r"(shape(1, 0, 0, M, N)) : "memory");
        asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(
                         address(&done)), "h"((short)3) : "memory");
    }
    wait(&done, 0);
    after();
    c += rank * M / 2 * N;
    for (int j = 0; j < N * M / 256; j += 4) {
        unsigned r[4];
        LOAD4("32x32b.x4", r, mine(d) + j);
        int row = threadIdx.x % (M / 2), column = threadIdx.x / (M / 2) * (N / 2) + j;
        for (int k = 0; k < 4; k++) c[row * N + column + k] = r[k];
    }
    before();
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    after();
    if (threadIdx.x < 32) {
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;");
        asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, 64;" ::"r"(d));
    }
}

KERNEL __cluster_dims__(2) pair_256(const half *a, const half *b, unsigned *c) { pair<256, 64>(a, b, c); }
KERNEL __cluster_dims__(2) pair_128(const half *a, const half *b, unsigned *c) { pair<128, 64>(a, b, c); }

// A pipeline of two stages: warp 0 loads by TMA, warp 1 multiplies, warps 4 to 7 store the results.
struct __align__(64) Map { byte bytes[128]; };
KERNEL pipelined(const __grid_constant__ Map a, const __grid_constant__ Map b, unsigned *c, int k) {
    __shared__ __align__(1024) byte A[2][128 * 128], B[2][32 * 128];
    __shared__ u64 full[2], empty[2], done;
    __shared__ unsigned slot;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) init(full + i, 1), init(empty + i, 1);
        init(&done, 1);
    }
    unsigned d = allocate(&slot, 32);
    if (threadIdx.x == 0)
        for (int i = 0; i < k / 64; i++) {
            int s = i % 2;
            if (i >= 2) wait(empty + s, i / 2 + 1 & 1);
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(full + s)), "r"(160 * 128) : "memory");
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                             address(A[s])), "l"(&a), "r"(64 * i), "r"(0), "r"(address(full + s)) : "memory");
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                             address(B[s])), "l"(&b), "r"(64 * i), "r"(0), "r"(address(full + s)) : "memory");
        }
    if (threadIdx.x == 32) {
        for (int i = 0; i < k / 64; i++) {
            int s = i % 2;
            wait(full + s, i / 2 & 1);
            after();
            for (int q = 0; q < 4; q++)
                MMA("f16", d, swizzled(A[s] + 32 * q, 2, 128), swizzled(B[s] + 32 * q, 2, 128), shape(1, 0, 0, 128, 32), i + q);
            commit(empty + s);
        }
        commit(&done);
    }
    __syncwarp();
    if (threadIdx.x >= 128) {
        wait(&done, 0);
        after();
        store(c - 128 * 32, d, 32);
    }
    release(d, 32);
}
