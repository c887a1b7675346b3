// The textbook's kernels with one thing wrong each, to measure what it costs. Arguments
// and launches are those of ladder.cu.

// swapped: naive, but neighbours along x have neighbouring rows. The threads of a warp then
// load elements of A that are a row apart, and store elements of C that are.
extern "C" __global__ void __launch_bounds__(256)
swapped(const float *__restrict__ A, const float *__restrict__ B, float *C, int m, int n, int k,
        int lda, int ldb, int ldc, float alpha, float beta) {
	int row = blockIdx.y * blockDim.y + threadIdx.x, col = blockIdx.x * blockDim.x + threadIdx.y;
	if (row >= m || col >= n) return;
	float sum = 0;
	for (int p = 0; p < k; p++) sum += A[(long)row * lda + p] * B[(long)p * ldb + col];
	float *at = &C[(long)row * ldc + col], value = alpha * sum;
	*at = beta != 0 ? value + beta * *at : value;
}

// tiledT: tiled, but its tile of B is stored by columns. Elements that a warp stores or
// loads together are width floats apart: with a width of 32 in one bank, with 33 in 32.
template <int width>
__device__ __forceinline__ void tiledT(const float *__restrict__ A, const float *__restrict__ B, float *C,
                                       int m, int n, int k, int lda, int ldb, int ldc, float alpha, float beta) {
	constexpr int tile = 32;
	__shared__ float As[tile][tile], Bs[tile][width];
	int tx = threadIdx.x, ty = threadIdx.y;
	int row = blockIdx.y * tile + ty, col = blockIdx.x * tile + tx;
	float sum = 0;
	for (int p = 0; p < k; p += tile) {
		As[ty][tx] = row < m && p + tx < k ? A[(long)row * lda + p + tx] : 0.0f;
		Bs[tx][ty] = p + ty < k && col < n ? B[(long)(p + ty) * ldb + col] : 0.0f;
		__syncthreads();
#pragma unroll
		for (int i = 0; i < tile; i++) sum += As[ty][i] * Bs[tx][i];
		__syncthreads();
	}
	if (row >= m || col >= n) return;
	float *at = &C[(long)row * ldc + col], value = alpha * sum;
	*at = beta != 0 ? value + beta * *at : value;
}

extern "C" __global__ void __launch_bounds__(1024)
conflicts(const float *__restrict__ A, const float *__restrict__ B, float *C, int m, int n, int k,
          int lda, int ldb, int ldc, float alpha, float beta) {
	tiledT<32>(A, B, C, m, n, k, lda, ldb, ldc, alpha, beta);
}

extern "C" __global__ void __launch_bounds__(1024)
padded(const float *__restrict__ A, const float *__restrict__ B, float *C, int m, int n, int k,
       int lda, int ldb, int ldc, float alpha, float beta) {
	tiledT<33>(A, B, C, m, n, k, lda, ldb, ldc, alpha, beta);
}
