// The naive and the tiled matrix multiplication of CUDA courses.

__global__ void naive(const float *a, const float *b, float *c, int m, int n, int k) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (int p = 0; p < k; p++) sum += a[row * k + p] * b[p * n + col];
    c[row * n + col] = sum;
}

template <typename T, int TILE>
__global__ void __launch_bounds__(TILE * TILE, 1) tiled(const T *a, const T *b, T *c, int m, int n, int k) {
    __shared__ T as[TILE][TILE], bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    T sum = 0;
    for (int p = 0; p < k; p += TILE) {
        as[ty][tx] = row < m && p + tx < k ? a[(size_t)row * k + p + tx] : T(0);
        bs[ty][tx] = p + ty < k && col < n ? b[(size_t)(p + ty) * n + col] : T(0);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) sum += as[ty][i] * bs[i][tx];
        __syncthreads();
    }
    if (row < m && col < n) c[(size_t)row * n + col] = sum;
}

template __global__ void tiled<float, 16>(const float *, const float *, float *, int, int, int);
template __global__ void tiled<double, 8>(const double *, const double *, double *, int, int, int);
template __global__ void tiled<int, 4>(const int *, const int *, int *, int, int, int);

// Each thread computes four elements with 16-byte loads.
__global__ void vectors(const float4 *a, const float4 *b, float4 *c, long n, float alpha) {
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x) {
        float4 x = a[i], y = __ldg(&b[i]);
        c[i] = make_float4(alpha * x.x + y.x, alpha * x.y + y.y, alpha * x.z + y.z, alpha * x.w + y.w);
    }
}
