// The ladder of docs/results in CUDA C: the algorithms of internal/gpu, for comparison
// with what this project's builder makes of them. Nothing else uses it.
//
// Each kernel computes C = alpha*A*B + beta*C of row-major matrices. -DELEMENT=double
// chooses another type; sums are of the same.

#ifndef ELEMENT
#define ELEMENT float
#endif
using T = ELEMENT;

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

// blocked: several elements of C in each thread's registers, vector loads, the next
// tiles under way. A block has tileM by tileN of C, a thread R by S of that, and a step
// goes 8 along K. cp.async brings the tiles of later steps into shared memory, A's
// transposed, while the present ones are multiplied; the fragments for the next k are
// on their way to registers. n, ldb and ldc are multiples of a vector's length.
constexpr int DEPTH = 8;
constexpr int WIDTH = 16 / sizeof(T); // elements of a vector, and of a fragment's side

struct __align__(16) vec { T v[WIDTH]; };

// copy moves bytes from global to shared memory, or zeros.
template <int bytes>
__device__ __forceinline__ void copy(void *to, const void *from, bool inside) {
	unsigned at = (unsigned)__cvta_generic_to_shared(to);
	int valid = inside ? bytes : 0;
	if (bytes == 16)
		asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(valid));
	else
		asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(bytes), "r"(valid));
}

// place is where a thread's element i lies along a side of the tile, from its first.
__device__ __forceinline__ constexpr int place(int i, int side, int perThread) {
	return i / WIDTH * (side / (perThread / WIDTH)) + i % WIDTH;
}

template <int side, int perThread>
__device__ __forceinline__ void loadFragments(T (&to)[perThread], const T *row) {
#pragma unroll
	for (int i = 0; i < perThread; i += WIDTH) *(vec *)&to[i] = *(const vec *)&row[place(i, side, perThread)];
}

template <int tileM, int tileN, int R, int S, int stages>
__device__ __forceinline__ void blocked(const T *__restrict__ A, const T *__restrict__ B, T *C,
                                        int m, int n, int k, int lda, int ldb, int ldc, T alpha, T beta) {
	constexpr int threads = tileM / R * (tileN / S), down = threads / DEPTH, across = threads / DEPTH * WIDTH;
	constexpr int copiesA = tileM / down, copiesB = tileN / across, pieces = copiesA + copiesB + 1;
	constexpr int each = (pieces + DEPTH - 2) / (DEPTH - 1);
	__shared__ __align__(16) T As[stages][DEPTH][tileM + WIDTH], Bs[stages][DEPTH][tileN + WIDTH];
	int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, row0 = blockIdx.y * tileM, col0 = blockIdx.x * tileN;
	int ty = (warp / (tileN / S / 8) * 4 + lane / 8) * WIDTH, tx = (warp % (tileN / S / 8) * 8 + lane % 8) * WIDTH;
	int ap = tid % DEPTH, ai = tid / DEPTH, bp = tid / (across / WIDTH), bi = tid % (across / WIDTH) * WIDTH;
	int next = 0; // the k of the tiles that depart next
	const T *fromA[copiesA], *fromB = B + (long)bp * ldb + col0 + bi;
#pragma unroll
	for (int i = 0; i < copiesA; i++) fromA[i] = A + (long)min(row0 + ai + i * down, m - 1) * lda + ap;

	// piece is one of the instructions that send a stage's tiles on their way.
	auto piece = [&](int i, int stage) {
		if (i < copiesA) {
			copy<sizeof(T)>(&As[stage][ap][ai + i * down], fromA[i] + next, next + ap < k);
		} else if (i < copiesA + copiesB) {
			int at = (i - copiesA) * across;
			copy<16>(&Bs[stage][bp][bi + at], fromB + at, next + bp < k && col0 + bi + at < n);
		} else if (i == copiesA + copiesB) {
			next += DEPTH;
			fromB += (long)DEPTH * ldb;
			asm volatile("cp.async.commit_group;");
		}
	};
	auto arrive = [&] {
		asm volatile("cp.async.wait_group %0;" ::"n"(stages - 2));
		__syncthreads();
	};
	T sum[R][S] = {}, x[2][R], y[2][S];
	int present = 0, free = stages - 1;
	auto load = [&](int p) {
		loadFragments<tileM>(x[p % 2], &As[present][p % DEPTH][ty]);
		loadFragments<tileN>(y[p % 2], &Bs[present][p % DEPTH][tx]);
	};
#pragma unroll
	for (int stage = 0; stage < stages - 1; stage++)
#pragma unroll
		for (int i = 0; i < pieces; i++) piece(i, stage);
	arrive();
	load(0);
	for (int step = 0; step < (k + DEPTH - 1) / DEPTH; step++) {
#pragma unroll
		for (int p = 0; p < DEPTH; p++) {
			if (p == DEPTH - 1) {
				arrive();
				free = present;
				present = present == stages - 1 ? 0 : present + 1;
			} else {
#pragma unroll
				for (int i = 0; i < each; i++) piece(p * each + i, free);
			}
			load(p + 1);
#pragma unroll
			for (int i = 0; i < R; i++)
#pragma unroll
				for (int j = 0; j < S; j++) {
					int e = i % 2 ? S - 1 - j : j; // serpentines
					sum[i][e] += x[p % 2][i] * y[p % 2][e];
				}
		}
	}
#pragma unroll
	for (int i = 0; i < R; i++) {
		int row = row0 + ty + place(i, tileM, R);
#pragma unroll
		for (int j = 0; j < S; j += WIDTH) {
			int col = col0 + tx + place(j, tileN, S);
			if (row >= m || col >= n) continue;
			vec *at = (vec *)&C[(long)row * ldc + col], value;
#pragma unroll
			for (int e = 0; e < WIDTH; e++) value.v[e] = alpha * sum[i][j + e];
			if (beta != 0) {
				vec old = *at;
#pragma unroll
				for (int e = 0; e < WIDTH; e++) value.v[e] += beta * old.v[e];
			}
			*at = value;
		}
	}
}

#define BLOCKED(tileM, tileN, R, S, stages, blocks)                                                                 \
	extern "C" __global__ void __launch_bounds__(tileM / R * (tileN / S), blocks)                                    \
	blocked##tileM##x##tileN(const T *__restrict__ A, const T *__restrict__ B, T *C, int m, int n, int k,            \
	                         int lda, int ldb, int ldc, T alpha, T beta) {                                           \
		blocked<tileM, tileN, R, S, stages>(A, B, C, m, n, k, lda, ldb, ldc, alpha, beta);                           \
	}

BLOCKED(128, 256, 16, 8, 3, 1)
BLOCKED(128, 128, 8, 8, 3, 2)
BLOCKED(64, 128, 8, 8, 4, 3)
BLOCKED(64, 64, 8, 4, 4, 4)
