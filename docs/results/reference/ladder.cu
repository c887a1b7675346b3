// The ladder of docs/results in CUDA C: the algorithms of internal/gpu, for comparison
// with what this project's own compiler chain makes of them. Nothing else uses it.
//
// Each kernel computes C = alpha*A*B + beta*C of row-major matrices. -DT=double and so
// on chooses the type; sums are of the same.

#ifndef T
#define T float
#endif

__device__ __forceinline__ void store(T *C, int ldc, int row, int col, T sum, T alpha, T beta) {
	T *at = &C[(long)row * ldc + col];
	T value = alpha * sum;
	if (beta != 0) value += beta * *at;
	*at = value;
}

// naive: one thread for each element of C, straight from global memory.
extern "C" __global__ void __launch_bounds__(256)
naive(const T *__restrict__ A, const T *__restrict__ B, T *C, int m, int n, int k,
      int lda, int ldb, int ldc, T alpha, T beta) {
	int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
	if (row >= m || col >= n) return;
	T sum = 0;
	for (int p = 0; p < k; p++) sum += A[(long)row * lda + p] * B[(long)p * ldb + col];
	store(C, ldc, row, col, sum, alpha, beta);
}

// tiled: tiles of A and B in shared memory, read once by the block for all its threads.
template <int tile>
__device__ __forceinline__ void tiled(const T *__restrict__ A, const T *__restrict__ B, T *C,
                                      int m, int n, int k, int lda, int ldb, int ldc, T alpha, T beta) {
	__shared__ T As[tile][tile], Bs[tile][tile];
	int tx = threadIdx.x, ty = threadIdx.y;
	int row = blockIdx.y * tile + ty, col = blockIdx.x * tile + tx;
	T sum = 0;
	for (int p = 0; p < k; p += tile) {
		As[ty][tx] = row < m && p + tx < k ? A[(long)row * lda + p + tx] : T(0);
		Bs[ty][tx] = p + ty < k && col < n ? B[(long)(p + ty) * ldb + col] : T(0);
		__syncthreads();
#pragma unroll
		for (int i = 0; i < tile; i++) sum += As[ty][i] * Bs[i][tx];
		__syncthreads();
	}
	if (row < m && col < n) store(C, ldc, row, col, sum, alpha, beta);
}

extern "C" __global__ void __launch_bounds__(256)
tiled16(const T *__restrict__ A, const T *__restrict__ B, T *C, int m, int n, int k,
        int lda, int ldb, int ldc, T alpha, T beta) {
	tiled<16>(A, B, C, m, n, k, lda, ldb, ldc, alpha, beta);
}

extern "C" __global__ void __launch_bounds__(1024)
tiled32(const T *__restrict__ A, const T *__restrict__ B, T *C, int m, int n, int k,
        int lda, int ldb, int ldc, T alpha, T beta) {
	tiled<32>(A, B, C, m, n, k, lda, ldb, ldc, alpha, beta);
}

// blocked: 8 by 8 elements of C in each thread's registers, the next tiles under way.
// A block of 256 threads has 128 by 128 of C and goes 8 along K in a step. A's tile is
// stored transposed. Its vectors want m, n, k and the leading dimensions to be multiples
// of 4; the edges of C are checked as in the kernels above.
#define SIDE 128
#define DEPTH 8
#define WIDTH 4

struct __align__(WIDTH * sizeof(T)) vec { T v[WIDTH]; };

extern "C" __global__ void __launch_bounds__(256)
blocked(const T *__restrict__ A, const T *__restrict__ B, T *C, int m, int n, int k,
        int lda, int ldb, int ldc, T alpha, T beta) {
	__shared__ __align__(16) T As[2][DEPTH][SIDE + WIDTH], Bs[2][DEPTH][SIDE + WIDTH];
	int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
	int row0 = blockIdx.y * SIDE, col0 = blockIdx.x * SIDE;
	int ty = (warp / 2 * 4 + lane / 8) * WIDTH, tx = (warp % 2 * 8 + lane % 8) * WIDTH;
	int ai = tid / 2, ap = tid % 2 * WIDTH, bp = tid / 32, bi = tid % 32 * WIDTH;
	T sum[8][8] = {};
	vec a, b;
	auto fetch = [&](int p) {
		a = b = vec{};
		if (row0 + ai < m && p + ap < k) a = *(const vec *)&A[(long)(row0 + ai) * lda + p + ap];
		if (p + bp < k && col0 + bi < n) b = *(const vec *)&B[(long)(p + bp) * ldb + col0 + bi];
	};
	auto put = [&](int stage) {
#pragma unroll
		for (int e = 0; e < WIDTH; e++) As[stage][ap + e][ai] = a.v[e];
		*(vec *)&Bs[stage][bp][bi] = b;
	};
	fetch(0);
	put(0);
	__syncthreads();
	int stage = 0;
	for (int p = 0; p < k; p += DEPTH, stage ^= 1) {
		fetch(p + DEPTH);
#pragma unroll
		for (int q = 0; q < DEPTH; q++) {
			T x[8], y[8];
#pragma unroll
			for (int h = 0; h < 2; h++) {
				*(vec *)&x[h * WIDTH] = *(vec *)&As[stage][q][ty + h * SIDE / 2];
				*(vec *)&y[h * WIDTH] = *(vec *)&Bs[stage][q][tx + h * SIDE / 2];
			}
#pragma unroll
			for (int i = 0; i < 8; i++)
#pragma unroll
				for (int j = 0; j < 8; j++) sum[i][j] += x[i] * y[j];
		}
		put(stage ^ 1);
		__syncthreads();
	}
#pragma unroll
	for (int i = 0; i < 8; i++) {
		int row = row0 + ty + i % WIDTH + i / WIDTH * SIDE / 2;
#pragma unroll
		for (int h = 0; h < 2; h++) {
			int col = col0 + tx + h * SIDE / 2;
			if (row >= m || col >= n) continue;
			vec *at = (vec *)&C[(long)row * ldc + col], value;
#pragma unroll
			for (int e = 0; e < WIDTH; e++) value.v[e] = alpha * sum[i][h * WIDTH + e];
			if (beta != 0) {
				vec old = *at;
#pragma unroll
				for (int e = 0; e < WIDTH; e++) value.v[e] += beta * old.v[e];
			}
			*at = value;
		}
	}
}
