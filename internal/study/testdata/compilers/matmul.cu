// matmul multiplies the m×k matrix a by the k×n matrix b with tiles of 16×16 in shared memory.
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ float s[16][16], t[16][16];
    int x = threadIdx.x, y = threadIdx.y, col = blockIdx.x * 16 + x, row = blockIdx.y * 16 + y;
    float sum = 0;
    for (int i = 0; i < k; i += 16) {
        s[y][x] = row < m && i + x < k ? a[row * k + i + x] : 0;
        t[y][x] = i + y < k && col < n ? b[(i + y) * n + col] : 0;
        __syncthreads();
        for (int j = 0; j < 16; j++) sum += s[y][j] * t[j][x];
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}
